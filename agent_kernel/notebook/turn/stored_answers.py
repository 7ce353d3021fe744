"""Runs agent cells without a model, in the two modes of ``AGENT_KERNEL_MODE``: ``replay`` shows answers from
NAME.agent.json, ``off`` shows none.

For graders and CI: only the file is needed, no server. The file is not trusted: text is shown like any answer, only
media of types that cannot run code are shown, and no code in the file runs.
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
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, corrected_call
from agent_kernel.notebook.display.media_bundle import BUNDLE, TABLE
from agent_kernel.notebook.display.render import STATES, Card, TurnSummary, line_bundle, moment
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.turn.sidecar_document import (
    SUFFIX,
    SidecarDocument,
    SidecarTurn,
    normalize_prompt,
    read_document,
)

MODE = "AGENT_KERNEL_MODE"
MISSING = "AGENT_KERNEL_REPLAY_MISSING"
FILE = "AGENT_KERNEL_SIDECAR"
OFF = f"Agent cells are off ({MODE}=off): no model was asked."
STORED = "Stored answer of {when} ({mode}=replay): no model was asked."
NOTEBOOKS = ("JPY_SESSION_NAME", "PAPERMILL_INPUT_PATH")
"""Environment variables that name the notebook of a kernel."""


class StoredAnswers:
    """Shows stored answers. Counts how often each prompt has occurred since the kernel started: if the front end sends
    no cell ids, the first cell with a prompt gets the first answer to this prompt, the second cell the second, and so
    on."""

    def __init__(self, shell: Any, env: Mapping[str, str] = os.environ) -> None:
        self._shell = shell
        self._env = env
        self._occurrences: Counter[str] = Counter()
        self._cache: dict[Path, tuple[tuple[int, int], SidecarDocument]] = {}

    @property
    def is_on(self) -> bool:
        """Whether cells show stored answers and ask no model. Raises AgentError if AGENT_KERNEL_MODE has an unknown
        value."""
        mode = self._env.get(MODE, "")
        if mode not in ("", "replay", "off"):
            raise AgentError(f"{MODE} must be replay or off, not {mode[:40]!r}.")
        return bool(mode)

    def show(self, prompt: str, cell: str, screen: Screen) -> str | None:
        """Show the stored answer of a cell and return its text.

        If there is no answer, raises AgentError, or returns None if AGENT_KERNEL_REPLAY_MISSING is "tell". Also returns
        None in the mode ``off``."""
        if self._env.get(MODE) == "off":
            self._tell(OFF)
            return None
        try:
            document, turn = self._find_answer(prompt, cell)
        except AgentError as missing:
            if self._env.get(MISSING, "fail") != "tell":
                raise
            self._tell(str(missing))
            return None
        self._present(document, turn, screen, cell)
        return turn.messages[-1].text if turn.messages and turn.messages[-1].role == "assistant" else ""

    def _find_answer(self, prompt: str, cell: str) -> tuple[SidecarDocument, SidecarTurn]:
        self._occurrences[normalize_prompt(prompt)] += 1
        files = self._files()
        if not files:
            raise AgentError(
                f"no conversation file ({'NAME' + SUFFIX}) is beside this notebook; set {FILE} to its path."
            )
        documents = [self._read(path) for path in files]
        time = self._occurrences[normalize_prompt(prompt)]
        matches = [(document, turn) for document in documents if (turn := document.find(prompt, cell, time))]
        if len(matches) > 1:
            names = ", ".join(document.path.name for document, _ in matches)
            raise AgentError(f"several conversations answer this prompt ({names}); set {FILE} to one of them.")
        if not matches:
            names = ", ".join(path.name for path in files)
            raise AgentError(
                f"{names} has no answer to this prompt, and no model is asked ({MODE}=replay). Unset {MODE} to ask one."
            )
        return matches[0]

    def _files(self) -> list[Path]:
        """Return the file that the environment names; else the sidecar of the notebook; else all sidecars in the
        working directory."""
        if configured := self._env.get(FILE):
            return [Path(configured).expanduser()]
        names = [
            str(self._shell.user_ns.get("__vsc_ipynb_file__", "")),
            *(self._env.get(name, "") for name in NOTEBOOKS),
        ]
        for name in filter(None, names):
            beside = Path(name).with_suffix(SUFFIX)
            if beside.is_file():
                return [beside]
        return [path for path in sorted(Path.cwd().glob(f"*{SUFFIX}")) if ".conflict." not in path.name]

    def _read(self, path: Path) -> SidecarDocument:
        try:
            facts = path.stat()
        except OSError as error:
            raise AgentError(f"{path} cannot be read: {error.strerror}.") from None
        stamp = (facts.st_mtime_ns, facts.st_size)
        if path not in self._cache or self._cache[path][0] != stamp:
            self._cache[path] = (stamp, read_document(path))
        return self._cache[path][1]

    def _present(self, document: SidecarDocument, turn: SidecarTurn, screen: Screen, cell: str) -> None:
        screen.line(STORED.format(when=moment(turn.closed), mode=MODE))
        cards: dict[str, Card] = {}
        for message in turn.messages:
            if message.role == "tool":
                self._result(document, message, turn, screen, cards)
            elif message.role == "assistant":
                if message.reasoning:
                    screen.reasoning(message.reasoning)
                if message.text:
                    screen.text(message.text)
        screen.flush(force=True)
        if notice := AnswerChecked(turn.numbers).summary_line:
            screen.line(notice)
        summary = TurnSummary(turn.turn, document.session, "committed", turn.model, cell=cell, stored=turn.closed)
        screen.summary(summary)

    def _result(
        self, document: SidecarDocument, message: Any, turn: SidecarTurn, screen: Screen, cards: dict[str, Card]
    ) -> None:
        code = turn.code.get(message.call_id or "", "")
        card = Card(message.call_id or "", message.name or "tool", turn.where, code)
        card.add(message.text)
        card.close(STATES.get(message.status or "success", "done"))
        card.corrects = cards.get(corrected_call(card.call))
        cards[card.call] = card
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
