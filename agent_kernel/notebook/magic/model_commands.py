"""Implements ``%agent model`` and ``%agent unload``, which list, choose, download and unload models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import place, table_bundle
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_context import CommandGroup
from agent_kernel.notebook.magic.missing_model_download import MB, ModelDownload
from agent_kernel.notebook.server_client import route

HELP = {
    "model": "list models and servers, and show the one in use; NAME|URL: use that one; pull NAME: download it",
    "unload": "free the memory of the model; the next turn loads it again",
}


class ModelCommands(CommandGroup):
    """Implements the commands that HELP lists, with one method for each."""

    def model(self, line: str) -> None:
        verb, _, name = line.partition(" ")
        if verb == "pull":
            self._pull(name.strip())
        elif verb == "unload":
            self.unload("")
        elif name:
            raise AgentError(
                "Usage: %agent model [NAME|URL[#MODEL]|reset], %agent model pull NAME, or %agent model unload."
            )
        elif verb:
            self._choose("" if verb == "reset" else verb)
        else:
            self._list_models()

    def unload(self, line: str) -> None:
        answer = self._context.server.call("POST", "engine/unload", {})
        engine, freed = answer["engine"], answer.get("freed_bytes", 0) / MB
        gave = f" and freed {freed:,.0f} MB" if freed else ""
        self._print_line(f"{engine['model']} is {engine['state']}{gave}; the next turn loads it again.")

    def _choose(self, name: str) -> None:
        """Set the model that this notebook's session uses from its next turn on."""
        answer = self._context.server.call("PUT", "engine", {"model": name})
        engine = answer["engine"]
        self._context.await_confirmation(
            answer,
            f"{engine['host']} is not in the configuration of the server. It would receive the conversation of this "
            "notebook and all later turns.",
            "Let this notebook send its conversation there",
        )
        sent = f" From the next turn on, the whole conversation is sent to {engine['host']}."
        self._print_line(
            f"This notebook talks to {engine['model']} ({_place_of(engine)}).{'' if engine['local'] else sent}"
        )

    def _list_models(self) -> None:
        answer = self._context.server.call("GET", "models")
        rows = [
            (
                *(model[key] for key in ("name", "description", "state")),
                f"{model['download_bytes'] / MB:,.0f} MB",
                *(model[key] for key in ("licence", "publisher")),
            )
            for model in answer["models"]
        ]
        self._context.publish(table_bundle(("model", "", "state", "download", "licence", "publisher"), rows))
        if answer["engines"]:
            servers = [
                (entry["name"], entry["model"], _place_of(entry), "refused" * entry["refused"])
                for entry in answer["engines"]
            ]
            self._context.publish(table_bundle(("engine", "model", "where", ""), servers))
        engine = answer["current"]
        current = f"This notebook talks to {engine['model']} ({_place_of(engine)}, {engine['state']})."
        self._print_line(f"{current} {engine['problem']}".strip())

    def _pull(self, name: str) -> None:
        """Download a model of the catalog, or the model ``org/name`` of a model hub, after the user has agreed."""
        if "/" in name:
            offer = self._context.server.call("GET", route("models", name))
        else:
            models = {model["name"]: model for model in self._context.server.call("GET", "models")["models"]}
            if name not in models:
                known = ", ".join(models)
                raise AgentError(f"There is no model {name!r}. Models: {known}, or org/name of a model hub.")
            offer = models[name]
        if offer["state"] == "ready":
            self._print_line(f"{name} is already on this machine.")
            return
        download = ModelDownload(self._context.server, self._context.shell, offer)
        if not self._context.person.is_there:
            self._print_line(download.described)
        if not download.offer_download(self._context.person):
            raise AgentError(f"nothing was downloaded. To download it in a terminal: agent-kernel model pull {name}")


def _place_of(engine: Mapping[str, Any]) -> str:
    return place(engine["local"], engine["host"])
