"""``%agent model`` and ``%agent unload``: list, choose, download and unload models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.notebook.display.render import line_bundle, place, table_bundle
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic.conversation_commands import Say
from agent_kernel.notebook.magic.missing_model_download import MB, ModelDownload
from agent_kernel.notebook.server_client import ServerClient, quote_segment

HELP = {
    "model": "list models and servers, and show the one in use; NAME|URL: use that one; pull NAME: download it",
    "unload": "free the memory of the model; the next turn loads it again",
}


class ModelCommands:
    """One method for each command; ``table`` maps names to methods. ``confirm`` waits until the user confirms in the
    browser."""

    def __init__(
        self,
        shell: Any,
        server: Callable[[], ServerClient],
        person: Person,
        say: Say,
        confirm: Callable[[Mapping[str, Any], str, str], None],
    ) -> None:
        self._shell = shell
        self._server = server
        self._person = person
        self._say = say
        self._confirm = confirm
        self.table: dict[str, Callable[[str], None]] = {"model": self.model, "unload": self.unload}

    def model(self, rest: str) -> None:
        verb, _, name = rest.partition(" ")
        if verb == "pull":
            self._pull(name.strip())
        elif verb == "unload":
            self.unload("")
        elif name:
            raise AgentError("%agent model [NAME|URL[#MODEL]|reset]; %agent model pull NAME; %agent model unload.")
        elif verb:
            self._choose("" if verb == "reset" else verb)
        else:
            self._list_models()

    def unload(self, rest: str) -> None:
        answer = self._server().call("POST", "engine/unload", {})
        engine, freed = answer["engine"], answer.get("freed_bytes", 0) / MB
        gave = f" and freed {freed:,.0f} MB" if freed else ""
        self._say(line_bundle(f"{engine['model']} is {engine['state']}{gave}; the next turn loads it again."))

    def _choose(self, name: str) -> None:
        """Set the model of this notebook's session from its next turn on."""
        answer = self._server().call("PUT", "engine", {"model": name})
        engine = answer["engine"]
        where = place(engine["local"], engine["host"])
        if "pending" in answer:
            self._confirm(
                answer,
                f"{engine['host']} is not in the configuration of the server. It would receive the "
                "conversation of this notebook and all later turns.",
                "Let this notebook send its conversation there",
            )
        notice = (
            "" if engine["local"] else f" From the next turn on, the whole conversation is sent to {engine['host']}."
        )
        self._say(line_bundle(f"This notebook talks to {engine['model']} ({where}).{notice}"))

    def _list_models(self) -> None:
        answer = self._server().call("GET", "models")
        rows = [
            (
                model["name"],
                model["description"],
                model["state"],
                f"{model['download_bytes'] / MB:,.0f} MB",
                model["licence"],
                model["publisher"],
            )
            for model in answer["models"]
        ]
        self._say(table_bundle(("model", "", "state", "download", "licence", "publisher"), rows))
        if answer["engines"]:
            servers = [
                (entry["name"], entry["model"], place(entry["local"], entry["host"]), "refused" * entry["refused"])
                for entry in answer["engines"]
            ]
            self._say(table_bundle(("engine", "model", "where", ""), servers))
        engine = answer["current"]
        where = place(engine["local"], engine["host"])
        current = f"This notebook talks to {engine['model']} ({where}, {engine['state']})."
        self._say(line_bundle(f"{current} {engine['problem']}".strip()))

    def _pull(self, name: str) -> None:
        models = {model["name"]: model for model in self._server().call("GET", "models")["models"]}
        if "/" in name:
            self._pull_from_hub(name)
            return
        if name not in models:
            raise AgentError(f"There is no model {name!r}. Models: {', '.join(models)}, or org/name of a model hub.")
        pull = ModelDownload(self._server(), self._shell, models[name])
        self._say(
            line_bundle(pull.described if models[name]["state"] != "ready" else f"{name} is already on this machine.")
        )
        if models[name]["state"] == "ready":
            return
        if not self._person.agrees("Download it now?"):
            raise AgentError(f"nothing was downloaded. In a terminal: agent-kernel model pull {name}")
        pull.run()

    def _pull_from_hub(self, name: str) -> None:
        """Download a model of a hub. Its size and source are shown first, as for every model outside the catalog."""
        offer = self._server().call("GET", f"models/{quote_segment(name)}")
        pull = ModelDownload(self._server(), self._shell, offer)
        if offer["state"] == "ready":
            self._say(line_bundle(f"{name} is already on this machine."))
        elif pull.offer_download(self._person):
            return
        else:
            raise AgentError(f"nothing was downloaded. In a terminal: agent-kernel model pull {name}")
