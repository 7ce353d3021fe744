"""Drafts: runs the model's code in a copy of the kernel. The copy sees every variable of the kernel; its changes do not
reach the kernel.

The same copy is used while the kernel is unchanged, so calls see the results of earlier calls and turns. A failed call
leaves no trace in it. The copy ends when any other code runs in the kernel, when a turn starts and there is a file that
is newer than the copy, or after IDLE_S seconds without a call.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agent_kernel.core.messages import shorten
from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.programs.syntax_tree import names_in
from agent_kernel.core.wire.agent_cells import is_agent_code
from agent_kernel.notebook.display.safe_output import PICTURES, safe_bundle, safe_metadata
from agent_kernel.notebook.draft import fork_safety
from agent_kernel.notebook.draft.draft_process import DraftEnded, DraftProcess
from agent_kernel.notebook.draft.jail import has_newer_files, readable_notebook_paths
from agent_kernel.notebook.draft.printed_output import PrintedOutput
from agent_kernel.notebook.kernel.capture import Listener, Show
from agent_kernel.notebook.kernel.cell_identity import metadata_of_code
from agent_kernel.notebook.kernel.changed_names import NameChanges
from agent_kernel.notebook.kernel.content_digest import variable_digest
from agent_kernel.notebook.kernel.live_execution import MAX_IMAGES, RESULT_CHARS, ExecutionOutcome, interruptible
from agent_kernel.notebook.kernel.python_syntax import loop_names, to_plain_python
from agent_kernel.notebook.kernel.variable_fingerprints import NOTHING, WeakMark
from agent_kernel.notebook.kernel.variable_summary import DATA_TITLES
from agent_kernel.notebook.kernel.variable_transfer import decode_draft_value
from agent_kernel.sandbox.worker.missing_imports import missing_imports

IDLE_S = 1800.0
TRIAL_S = 10.0
"""Time limit in seconds of one program that is tried."""
TRIALS_S = 30.0
"""Time limit in seconds of all programs of one call of ``try_programs`` together. A program that ignores the interrupt
at the end of this time is killed within GRACE_S and END_S seconds more."""
DESCRIBE_S = 5.0
"""Time limit in seconds for a description of the variables in the copy."""
STATUSES = ("success", "error", "timeout", "interrupted")
MAX_NAME = 200
NO_OUTPUT = "(no output)"
UNDONE = "Nothing that this code did is kept: every variable is as it was before it."
LOST = "Every variable that earlier code made in the draft is gone: this code failed, and the draft ended with it."
NOT_HERE = (
    "(A draft writes nowhere but in its temporary directory, reads no hidden files, and has no network, no input, no "
    "widgets. This code has to run in the person's kernel: only they can allow it.)"
)


@dataclass(frozen=True, slots=True)
class DraftedCall:
    """A call that completed in a draft. ``names`` are all names in its code. ``read`` has a mark of each variable of
    the kernel that the code names; the mark shows later whether the variable has changed."""

    turn: str
    code: str
    changes: NameChanges
    names: frozenset[str] = frozenset()
    read: Mapping[str, WeakMark] = field(default_factory=dict)

    def find_changed_variables(self, namespace: Mapping[str, object]) -> list[str]:
        """Return the variables that the call read and that have changed since."""
        return [name for name, mark in self.read.items() if not mark.fits(namespace.get(name, NOTHING))]


class ProgramReview(NamedTuple):
    """The conditions for code of a turn to run in the draft. ``refuse`` returns why code must not run, or "". A tried
    program must print the same and leave equal variables as the program ``reference`` (empty: none)."""

    refuse: Callable[[str], str] = lambda code: ""
    reference: str = ""


NO_REVIEW = ProgramReview()


class Drafts:
    """Manages the draft of one kernel, a copy of it in which the model's code runs. ``done`` lists the calls of the
    current copy, or of the last copy, in order. It does not contain failed calls: their code is never offered to the
    user or combined with other code."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._process: DraftProcess | None = None
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None
        self._made: set[str] = set()
        self._readable: frozenset[str] = frozenset()
        self._unfit = ""
        self._proved = False
        self._own_cell = True
        self._review = NO_REVIEW
        self.done: list[DraftedCall] = []
        shell.events.register("pre_run_cell", self._cell_runs)
        atexit.register(self.drop)

    def unfit(self) -> str:
        """Return why this kernel cannot be copied now, as the end of a sentence; "" if a draft could be created. End a
        copy that cannot read a new file, as ``begin`` does."""
        if self._misses_files():
            self.drop()
        if reason := self._unfit or ("" if self._process else fork_safety.unsafe()):
            return reason
        if not self._proved:
            try:
                self._ensure_process()
            except DraftEnded as error:
                if error.timeout:  # other programs may have kept the machine busy, so the next turn tries again
                    return str(error)
                self._unfit = str(error)
        return self._unfit

    def begin(self) -> None:
        """Prepare for a turn that starts. End the copy if the running cell has code of the user before the turn, which
        may have changed variables, or if it cannot read a file because the file is newer than the copy."""
        if not self._own_cell or self._misses_files():
            self.drop()

    @contextlib.contextmanager
    def reviewing(self, review: ProgramReview) -> Iterator[None]:
        """Apply ``review`` to the code that runs inside the ``with`` block."""
        before, self._review = self._review, review
        try:
            yield
        finally:
            self._review = before

    def prepare_code(self, code: str) -> str:
        """Return the code that will run: ``code``, preceded by the imports that it needs but lacks."""
        namespace = dict.fromkeys(self._made) | self._shell.user_ns
        return "\n".join([*missing_imports(to_plain_python(self._shell, code), namespace), code])

    def run(
        self, turn: str, code: str, listener: Listener, show: Show, *, returns_value: bool = False
    ) -> ExecutionOutcome:
        """Run code in the current draft; if there is none, fork one. An error of the code is part of the result. An
        interrupt by the user ends the call. With ``returns_value``, the result of a successful call contains a copy
        of the value of the program's last expression."""
        if refused := self._review.refuse(code):
            return ExecutionOutcome("error", refused, refused, (), False)
        output = PrintedOutput(listener)
        with self._lock, interruptible() as interrupt:
            try:
                answer = self._ensure_process().run(
                    code,
                    output.add,
                    lambda bundle: _show_safely(bundle, show, id(self)),
                    stopped=interrupt.is_set,
                    returns_value=returns_value,
                )
            except KeyboardInterrupt:
                self._forget_ended()
                return ExecutionOutcome("interrupted", output.text_with("KeyboardInterrupt"), "", (), True)
            except DraftEnded as error:
                return self._describe_end(error, output, interrupt.is_set())
            self._forget_ended()
            self._restart_idle_timer()
        return self._record(turn, code, answer, output)

    def try_programs(self, programs: Iterable[str], names: Sequence[str]) -> list[ProgramOutcome]:
        """Run each program on the present state of the copy and undo its effects. Returns the outcomes in order. An
        outcome describes the variables that the program changed, and those in ``names`` that it created.

        There are fewer outcomes than programs if TRIALS_S seconds have passed or the copy ends. A program that the
        ProgramReview refuses has an error as its outcome. Nothing is displayed. Raises KeyboardInterrupt."""
        reference = self._review.reference
        programs = [reference, *programs] if reference else list(programs)
        outcomes: list[ProgramOutcome] = []
        deadline = time.monotonic() + TRIALS_S
        with self._lock, interruptible() as interrupt:
            for program in programs:
                prepared = self.prepare_code(program)
                if program != reference and (refused := self._review.refuse(prepared)):
                    outcomes.append(ProgramOutcome("error", refused))
                    continue
                remaining = min(TRIAL_S, deadline - time.monotonic())
                if remaining <= 0:
                    break
                try:
                    answer = self._try(prepared, remaining, interrupt, {"names": list(names)})
                except DraftEnded as error:
                    self._forget_ended()
                    outcomes.append(ProgramOutcome("error", str(error)))
                    if not error.restored:
                        break
                except KeyboardInterrupt:
                    self._forget_ended()
                    raise
                else:
                    outcomes.append(_program_outcome(answer))
                    if answer.get("lost") is True:
                        self._forget_ended()
                        break
            self._restart_idle_timer()
        return [self._compare(outcomes[0], outcome) for outcome in outcomes[1:]] if reference else outcomes

    def describe_data(self, prompt: str, options: Mapping[str, Any]) -> str:
        """Return the text of ``variable_summary.describe_data`` for the variables in the copy; the copy itself computes
        it. Returns "" if no call has changed the copy, or if the copy does not answer. Raises KeyboardInterrupt."""
        if self._process is None or not self.done or not self._lock.acquire(blocking=False):
            return ""
        try:
            with interruptible() as interrupt:
                answer = self._try("", DESCRIBE_S, interrupt, {"describe": {"prompt": prompt, **options}})
        except DraftEnded:
            return ""
        finally:
            self._forget_ended()
            self._lock.release()
        text = "" if answer.get("lost") is True else _text(answer, "text")
        return text if text.partition("\n")[0] in DATA_TITLES else ""

    def has_equal_outcome(self, reference: str, program: str) -> bool:
        """Return whether both programs print the same and leave equal variables from the same state of a new draft."""
        self.drop()
        with self.reviewing(ProgramReview(reference=reference)):
            outcomes = self.try_programs([program], ())
        return [outcome.status for outcome in outcomes] == ["success"]

    def find_calls(self, names: Iterable[str]) -> list[DraftedCall]:
        """Return the calls that created or changed the variables ``names``, and all calls that these calls depend on,
        in the order they ran."""
        needed, calls = set(names), list[DraftedCall]()
        for call in reversed(self.done):
            if needed & set(call.changes.names):
                calls.append(call)
                needed |= call.names
        return calls[::-1]

    def names(self, code: str) -> frozenset[str]:
        """Return all names in the code."""
        return frozenset(names_in(to_plain_python(self._shell, code)))

    def forget_calls(self, calls: Sequence[DraftedCall]) -> None:
        """Remove calls that have been run in the kernel."""
        self.done = [call for call in self.done if not any(call is forgotten for forgotten in calls)]

    def drop(self) -> None:
        """End the copy. Its completed calls can still be applied to the kernel."""
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def close(self) -> None:
        self._shell.events.unregister("pre_run_cell", self._cell_runs)
        atexit.unregister(self.drop)
        self.drop()

    def _ensure_process(self) -> DraftProcess:
        if self._process is None:
            self._readable = readable_notebook_paths()
            self._process = DraftProcess.start(self._shell)
            self._proved = True
            self._made.clear()
            self.done.clear()
        return self._process

    def _misses_files(self) -> bool:
        return self._process is not None and has_newer_files(self._readable)

    def _try(self, code: str, timeout_s: float, interrupt: threading.Event, trial: Mapping[str, Any]) -> dict[str, Any]:
        """Run code as a trial (see ``DraftProcess.run``) and ignore its displayed output."""
        process, ignore = self._ensure_process(), lambda *_: None
        return process.run(code, ignore, ignore, timeout_s, stopped=interrupt.is_set, trial=trial)

    def _forget(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            process.end()

    def _forget_ended(self) -> None:
        if self._process is not None and self._process.pid == 0:
            self._forget()

    def _compare(self, expected: ProgramOutcome, outcome: ProgramOutcome) -> ProgramOutcome:
        """Compare the outcome of a program with ``expected``, the outcome of the reference program. Return ``outcome``
        if they are equal, otherwise a copy of it with the status "error". Loop variables of the reference program are
        not compared. If only one of the two programs changed a variable, its new value is compared with the value in
        the kernel, which neither of them has changed."""
        names = {*expected.variables, *outcome.variables} - loop_names(self._review.reference)
        present = {name: variable_digest(self._shell.user_ns.get(name)) for name in names}
        before, after = (
            {name: trial.variables.get(name, present[name]) for name in names} for trial in (expected, outcome)
        )
        same = (
            expected.status == outcome.status == "success"
            and (outcome.text, outcome.figures) == (expected.text, expected.figures)
            and before == after
            and all(before.values())  # a variable without a digest cannot be compared
        )
        return outcome if same else replace(outcome, status="error")

    def _restart_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = threading.Timer(IDLE_S, self.drop)
        self._idle.daemon = True
        self._idle.start()

    def _describe_end(self, error: DraftEnded, output: PrintedOutput, interrupted: bool) -> ExecutionOutcome:
        self._forget_ended()
        if error.hung:
            self._unfit = "a draft of this kernel hung"
        status = "interrupted" if interrupted else "timeout" if error.timeout else "error"
        lost = f"The draft is gone, with the variables it made: {error}. The person's kernel is as it was."
        reason = f"The code was ended: {error}. {UNDONE}" if error.restored else lost
        return ExecutionOutcome(status, output.text_with(reason), reason, (), interrupted)

    def _record(self, turn: str, code: str, answer: Mapping[str, Any], output: PrintedOutput) -> ExecutionOutcome:
        status = answer.get("status") if answer.get("status") in STATUSES else "error"
        attempted = NameChanges(*(_names(answer.get(kind)) for kind in ("new", "changed", "deleted")))
        changes = attempted if status == "success" else NameChanges()
        names = self.names(code)
        namespace: Mapping[str, object] = self._shell.user_ns
        read = {name: WeakMark(namespace[name]) for name in names - self._made if name in namespace}
        if status == "success":
            self.done.append(DraftedCall(turn, code, changes, names, read))
        self._made |= set(changes.names)
        needs_kernel = answer.get("refused") is True
        beside, python_text = _text(answer, "beside").rstrip(), _text(answer, "text")
        if beside and python_text == NO_OUTPUT:
            python_text = ""
        undone = LOST if answer.get("lost") is True else UNDONE if attempted and not changes else ""
        # The error must be the last line, because a retry reads it there.
        parts = (undone, beside, NOT_HERE * needs_kernel, python_text)
        text = "\n".join(part for part in parts if part)
        media = _media(answer.get("media"))
        value = decode_draft_value(answer.get("value")) if status == "success" else None
        return ExecutionOutcome(
            str(status), text, _text(answer, "traceback"), media, False, value=value, needs_kernel=needs_kernel
        )

    def _cell_runs(self, info: Any) -> None:
        """Drop the copy when the user's code runs, because that code may change the state of the kernel."""
        source = str(info.raw_cell or "")
        # Code of a turn runs without history. It may be the same text as the prompt of the turn.
        metadata = metadata_of_code(self._shell, source) if info.store_history else {}
        self._own_cell = is_agent_code(source, metadata)
        if not self._own_cell:
            self.drop()


def _show_safely(bundle: Mapping[str, Any], show: Show, draft: int) -> None:
    """Display the harmless parts of a bundle. Display ids get the number ``draft`` as a part, so that they are unique
    to the draft."""
    data, metadata, transient = (bundle.get(name) for name in ("data", "metadata", "transient"))
    display = transient.get("display_id") if isinstance(transient, Mapping) else None
    display_id = {"display_id": f"draft-{draft:x}-{display}"[:MAX_NAME]} if isinstance(display, str) else {}
    show(
        safe_bundle(data if isinstance(data, Mapping) else {}),
        safe_metadata(metadata if isinstance(metadata, Mapping) else {}),
        display_id,
        bundle.get("update") is True and bool(display_id),
    )


def _program_outcome(answer: Mapping[str, Any]) -> ProgramOutcome:
    text, figures = shorten(_text(answer, "text"), RESULT_CHARS), len(_media(answer.get("media")))
    body = {"status": answer.get("status"), "text": text, "figures": figures, "variables": answer.get("contents")}
    return ProgramOutcome.from_json(body)


def _names(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else []
    return tuple(name for name in names if isinstance(name, str) and name.isidentifier() and len(name) < MAX_NAME)


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    return shorten(value, 4 * RESULT_CHARS) if isinstance(value, str) else ""


def _media(value: Any) -> tuple[dict[str, str], ...]:
    media: list[dict[str, str]] = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, Mapping) and item.get("mime") in PICTURES and isinstance(item.get("data"), str):
            with contextlib.suppress(binascii.Error, ValueError):
                base64.b64decode(item["data"], validate=True)
                media.append({"mime": str(item["mime"]), "data": item["data"]})
    return tuple(media[:MAX_IMAGES])
