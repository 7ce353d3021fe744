"""Drafts: the agent's code on a copy of the person's kernel, which sees every variable and changes none.

One copy lives as long as the kernel stays what it is: calls, and turns that follow each other, see what earlier ones
made in it. A call that fails leaves nothing in it. Any other code that runs in the kernel ends the copy, and so does
IDLE_S without a call.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.messages import shorten
from agent_kernel.notebook.display.safe_output import PICTURES, safe_bundle, safe_metadata
from agent_kernel.notebook.draft import fork_safety
from agent_kernel.notebook.draft.process import DraftEnded, DraftProcess
from agent_kernel.notebook.kernel.capture import Listener, Show
from agent_kernel.notebook.kernel.changed_names import Changes, names_in, plain
from agent_kernel.notebook.kernel.live_execution import MAX_IMAGES, RESULT_CHARS, Outcome, interruptible
from agent_kernel.notebook.kernel.missing_imports import missing_imports
from agent_kernel.notebook.kernel.variable_fingerprints import NOTHING, Mark

IDLE_S = 1800.0
STATUSES = ("success", "error", "timeout", "interrupted")
MAX_NAME = 200
NO_OUTPUT = "(no output)"
OWN_MAGICS = ("%agent", "%%agent")
UNDONE = "Nothing that this code did is kept: every variable is as it was before it."
LOST = "Every variable that earlier code made in the draft is gone: this code failed, and the draft ended with it."
NOT_HERE = (
    "(A draft writes nowhere but in its temporary directory, reads no hidden files, and has no network, no input, no "
    "widgets. This code has to run in the person's kernel: only they can say so.)"
)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A call that ran to its end in a draft. ``read`` are the person's variables that it names, as they were."""

    turn: str
    code: str
    changes: Changes
    names: frozenset[str] = frozenset()
    read: Mapping[str, Mark] = field(default_factory=dict)

    def moved_on(self, namespace: Mapping[str, object]) -> list[str]:
        """Variables that it read and that are others now."""
        return [name for name, mark in self.read.items() if not mark.fits(namespace.get(name, NOTHING))]


@dataclass(frozen=True, slots=True)
class DraftOutcome:
    """``refused``: it failed for want of something that only the kernel itself has."""

    outcome: Outcome
    refused: bool = False


class Drafts:
    """Of one kernel. ``done`` are the calls of the copy that lives, or of the last one, in order. A call that failed is
    not among them: its code is never offered to the person, nor joined with other code."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._process: DraftProcess | None = None
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None
        self._made: set[str] = set()
        self._unfit = ""
        self._proved = False
        self._own_cell = True
        self.done: list[Drafted] = []
        shell.events.register("pre_run_cell", self._cell_runs)
        atexit.register(self.drop)

    def unfit(self) -> str:
        """Why no draft can be made of this kernel now, in words that end a sentence; empty if one can. The first time
        one is made, to see."""
        if reason := self._unfit or ("" if self._process else fork_safety.unsafe()):
            return reason
        if not self._proved:
            try:
                self._alive()
            except DraftEnded as error:
                self._unfit = str(error)
        return self._unfit

    def begin(self) -> None:
        """A turn begins. One that a person's own code asks for may find variables changed since the last one."""
        if not self._own_cell:
            self.drop()

    def prepared(self, code: str) -> str:
        """What will run: the code, after the imports it leaves out."""
        known = dict.fromkeys(self._made) | self._shell.user_ns
        return "\n".join([*missing_imports(plain(self._shell, code), known), code])

    def run(self, turn: str, code: str, listener: Listener, show: Show) -> DraftOutcome:
        """In the copy that lives, or in a new one. Never raises what the code raises; an interrupt ends the call."""
        said = _Heard(listener)
        with self._lock, interruptible() as interrupt:
            try:
                answer = self._alive().run(
                    code, said.hear, lambda bundle: _shown(bundle, show, id(self)), stopped=interrupt.is_set
                )
            except KeyboardInterrupt:
                self._forget_ended()
                return DraftOutcome(Outcome("interrupted", said.told("KeyboardInterrupt"), "", (), True))
            except DraftEnded as error:
                return DraftOutcome(self._ended(error, said, interrupt.is_set()))
            self._forget_ended()
            self._rest_later()
        return self._noted(turn, code, answer, said)

    def needed(self, names: Iterable[str]) -> list[Drafted]:
        """The calls that made or changed these names, and those that these needed, in order."""
        wanted, found = set(names), list[Drafted]()
        for call in reversed(self.done):
            if wanted & set(call.changes.names):
                found.append(call)
                wanted |= call.names
        return found[::-1]

    def names(self, code: str) -> frozenset[str]:
        """All that stand in code."""
        return frozenset(names_in(plain(self._shell, code)))

    def kept(self, calls: Sequence[Drafted]) -> None:
        """They ran in the kernel itself."""
        self.done = [call for call in self.done if not any(call is one for one in calls)]

    def drop(self) -> None:
        """Ends the copy; what it did can still be kept."""
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def close(self) -> None:
        self._shell.events.unregister("pre_run_cell", self._cell_runs)
        atexit.unregister(self.drop)
        self.drop()

    def _alive(self) -> DraftProcess:
        if self._process is None:
            self._process = DraftProcess.start(self._shell)
            self._proved = True
            self._made.clear()
            self.done.clear()
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            process.end()

    def _forget_ended(self) -> None:
        if self._process is not None and self._process.pid == 0:
            self._forget()

    def _rest_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(IDLE_S, self.drop)
        self._idle.daemon = True
        self._idle.start()

    def _ended(self, error: DraftEnded, said: _Heard, interrupted: bool) -> Outcome:
        self._forget_ended()
        if error.hung:
            self._unfit = "a draft of this kernel hung"
        status = "interrupted" if interrupted else "timeout" if error.timeout else "error"
        lost = f"The draft is gone, with the variables it made: {error}. The person's kernel is as it was."
        reason = f"The code was ended: {error}. {UNDONE}" if error.restored else lost
        return Outcome(status, said.told(reason), reason, (), interrupted)

    def _noted(self, turn: str, code: str, answer: Mapping[str, Any], said: _Heard) -> DraftOutcome:
        status = answer.get("status") if answer.get("status") in STATUSES else "error"
        attempted = Changes(*(_names(answer.get(kind)) for kind in ("new", "changed", "deleted")))
        changes = attempted if status == "success" else Changes()
        names = self.names(code)
        namespace: Mapping[str, object] = self._shell.user_ns
        read = {name: Mark(namespace[name]) for name in names - self._made if name in namespace}
        if status == "success":
            self.done.append(Drafted(turn, code, changes, names, read))
        self._made |= set(changes.names)
        refused = answer.get("refused") is True
        beside, said_in_python = _text(answer, "beside").rstrip(), _text(answer, "text")
        if beside and said_in_python == NO_OUTPUT:
            said_in_python = ""
        undone = LOST if answer.get("lost") is True else UNDONE if attempted and not changes else ""
        parts = (undone, beside, NOT_HERE * refused, said_in_python)  # the error is the last line: a retry goes by it
        text = "\n".join(part for part in parts if part)
        outcome = Outcome(str(status), text, _text(answer, "traceback"), _media(answer.get("media")), False)
        return DraftOutcome(outcome, refused)

    def _cell_runs(self, info: Any) -> None:
        """Code that is not ours changes what a copy was made of."""
        self._own_cell = str(getattr(info, "raw_cell", "") or "").lstrip().startswith(OWN_MAGICS)
        if not self._own_cell:
            self.drop()


class _Heard:
    """What came before a draft ended, for the model."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._parts: list[str] = []
        self._size = 0

    def hear(self, stream: str, text: str) -> None:
        if self._size < 4 * RESULT_CHARS:
            self._parts.append(text)
            self._size += len(text)
        self._listener(stream, text)

    def told(self, reason: str) -> str:
        return shorten("".join([*self._parts, "\n" * bool(self._parts), reason]), RESULT_CHARS)


def _shown(bundle: Mapping[str, Any], show: Show, draft: int) -> None:
    """As far as it is harmless, under display ids of the draft's own."""
    data, metadata, transient = (bundle.get(name) for name in ("data", "metadata", "transient"))
    display = transient.get("display_id") if isinstance(transient, Mapping) else None
    named = {"display_id": f"draft-{draft:x}-{display}"[:MAX_NAME]} if isinstance(display, str) else {}
    show(
        safe_bundle(data if isinstance(data, Mapping) else {}),
        safe_metadata(metadata if isinstance(metadata, Mapping) else {}),
        named,
        bundle.get("update") is True and bool(named),
    )


def _names(value: Any) -> tuple[str, ...]:
    found = value if isinstance(value, list) else []
    return tuple(name for name in found if isinstance(name, str) and name.isidentifier() and len(name) < MAX_NAME)


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    return shorten(value, 4 * RESULT_CHARS) if isinstance(value, str) else ""


def _media(value: Any) -> tuple[dict[str, str], ...]:
    found: list[dict[str, str]] = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, Mapping) and item.get("mime") in PICTURES and isinstance(item.get("data"), str):
            with contextlib.suppress(binascii.Error, ValueError):
                base64.b64decode(item["data"], validate=True)
                found.append({"mime": str(item["mime"]), "data": item["data"]})
    return tuple(found[:MAX_IMAGES])
