"""Agent cells that ask no model (``AGENT_KERNEL_MODE``): they show what NAME.agent.json holds, or only say so.

For graders and CI: no server of ours is needed, only the file. What it says is somebody else's: words are shown as the
words of any answer are, pictures only of kinds that can not act, and nothing in it runs.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.core.events import AnswerChecked
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES
from agent_kernel.notebook.display.media_bundle import BUNDLE, TABLE
from agent_kernel.notebook.display.render import Card, TurnSummary, line_bundle, moment
from agent_kernel.notebook.display.screen import Screen, screen_for
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.turn.sidecar_document import SUFFIX, Document, Said, asked, read

MODE = "AGENT_KERNEL_MODE"
MISSING = "AGENT_KERNEL_REPLAY_MISSING"
FILE = "AGENT_KERNEL_SIDECAR"
OFF = f"Agent cells are off here ({MODE}=off): nothing was asked."
STORED = "Stored answer of {when} ({mode}=replay): no model was asked."
WORDS = {"success": "done", "error": "failed", "denied": "not run", "timeout": "out of time", "interrupted": "stopped"}
NOTEBOOKS = ("JPY_SESSION_NAME", "PAPERMILL_INPUT_PATH")
"""Variables of the environment that name the notebook of a kernel."""


class StoredAnswers:
    """``shown`` counts how often a prompt was met in this life of the kernel: without ids of cells the first cell with
    it gets its first answer."""

    def __init__(self, shell: Any, env: Mapping[str, str] = os.environ) -> None:
        self._shell = shell
        self._env = env
        self._met: Counter[str] = Counter()
        self._known: dict[Path, tuple[tuple[int, int], Document]] = {}

    @property
    def is_on(self) -> bool:
        """Whether cells ask no model. Raises AgentError for a mode that there is not."""
        mode = self._env.get(MODE, "")
        if mode not in ("", "replay", "off"):
            raise AgentError(f"{MODE} is replay or off, not {mode[:40]!r}.")
        return bool(mode)

    def show(self, prompt: str, cell: str) -> None:
        """Instead of a turn. Raises AgentError where no answer is stored, unless that is only to be told."""
        if self._env.get(MODE) == "off":
            self._tell(OFF)
            return
        try:
            document, said = self._found(prompt, cell)
        except AgentError as missing:
            if self._env.get(MISSING, "fail") != "tell":
                raise
            self._tell(str(missing))
            return
        self._present(document, said, screen_for(self._shell), cell)

    def _found(self, prompt: str, cell: str) -> tuple[Document, Said]:
        self._met[asked(prompt)] += 1
        files = self._files()
        if not files:
            raise AgentError(f"no conversation ({'NAME' + SUFFIX}) lies beside this notebook; {FILE} names one.")
        documents = [self._read(path) for path in files]
        found = [(one, said) for one in documents if (said := one.find(prompt, cell, self._met[asked(prompt)]))]
        if len(found) > 1:
            names = ", ".join(document.path.name for document, _ in found)
            raise AgentError(f"several conversations here have an answer to this ({names}); {FILE} names one.")
        if not found:
            names = ", ".join(path.name for path in files)
            raise AgentError(f"{names} holds no answer to this prompt, and no model is asked ({MODE}=replay).")
        return found[0]

    def _files(self) -> list[Path]:
        """The one that is named, that of the notebook, or all that lie in the working directory."""
        if named := self._env.get(FILE):
            return [Path(named).expanduser()]
        names = [
            str(self._shell.user_ns.get("__vsc_ipynb_file__", "")),
            *(self._env.get(name, "") for name in NOTEBOOKS),
        ]
        for name in filter(None, names):
            beside = Path(name).with_suffix(SUFFIX)
            if beside.is_file():
                return [beside]
        return [path for path in sorted(Path.cwd().glob(f"*{SUFFIX}")) if ".conflict." not in path.name]

    def _read(self, path: Path) -> Document:
        try:
            facts = path.stat()
        except OSError as error:
            raise AgentError(f"{path} can not be read: {error.strerror}.") from None
        stamp = (facts.st_mtime_ns, facts.st_size)
        if path not in self._known or self._known[path][0] != stamp:
            self._known[path] = (stamp, read(path))
        return self._known[path][1]

    def _present(self, document: Document, said: Said, screen: Screen, cell: str) -> None:
        screen.line(STORED.format(when=moment(said.closed), mode=MODE))
        for message in said.messages:
            if message.role == "tool":
                self._result(document, message, said, screen)
            elif message.role == "assistant":
                if message.reasoning:
                    screen.reasoning(message.reasoning)
                if message.text:
                    screen.text(message.text)
        screen.flush(force=True)
        if told := AnswerChecked(said.numbers).told:
            screen.line(told)
        summary = TurnSummary(said.turn, document.session, "committed", said.model, cell=cell, stored=said.closed)
        screen.summary(summary)

    def _result(self, document: Document, message: Any, said: Said, screen: Screen) -> None:
        code = said.code.get(message.call_id or "", "")
        card = Card(message.call_id or "", message.name or "tool", said.where, code)
        card.add(message.text)
        card.close(WORDS.get(message.status or "success", "done"))
        screen.card(card)
        for number, medium in enumerate(message.media, 1):
            alt = f"image {number} of {card.name}, {medium.mime}"
            data = document.medium(medium.hash) if medium.mime in {*VISIBLE_IMAGE_TYPES, TABLE, BUNDLE} else None
            if data is None or hashlib.sha256(data).hexdigest() != medium.hash:
                screen.line(f"[{alt}: not in the file]")
            else:
                screen.image(medium.mime, base64.b64encode(data).decode(), alt)

    def _tell(self, text: str) -> None:
        self._shell.display_pub.publish(line_bundle(text))
