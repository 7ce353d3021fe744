"""Defines the sandbox environment in which the calls of a turn run. It determines what their code may access, and which
files the code should produce."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_kernel.core.events import CallOutput, Notice, StateLost
from agent_kernel.core.files import ProducedFile, RequestedFile
from agent_kernel.core.messages import figures_note, shorten
from agent_kernel.core.protocols import RunResult, ToolContext, Variable, Work
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.code.workdir_changes import WorkdirSnapshot, describe_requested_files

STREAM_CHARS = 2_400
"""Number of characters that the model reads of each of stdout, stderr, value and error. A text can be longer if others
are shorter."""
TEXT_CHARS = 5_600
LAST_WORDS = 32
"""Maximum number of last lines of stderr that are reported if the sandbox process ended."""
READ_ONLY = "[Errno 30]"
KEEP_S = 5.0
"""Seconds that may be spent on copying the files of a run that has used up its time."""
TURNS = 256
"""Maximum number of turns whose allowed paths are remembered."""
REACH = {"none": "no network", "loopback": "no network but its own", "full": "network through a proxy"}
"""Texts that state the network access in a tool description, by the value of the setting ``sandbox_network``."""
OPEN = "the network of this machine"
"""Text that states the network access in a tool description when the sandbox is off."""
PICTURES = ("image/", "application/vnd.plotly", "application/vnd.vegalite")


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run and the files that it left. ``notes`` are texts that the model reads after the code's own
    output. ``keep_s`` is the number of seconds that copying the files may take."""

    result: RunResult
    files: tuple[ProducedFile, ...] = ()
    notes: tuple[str, ...] = ()
    keep_s: float = KEEP_S


class PathsAllowedForTurn:
    """The paths that the user allowed for one turn. All sandbox tools of the turn share this object, because a
    session's process is restarted whenever its visible paths change."""

    def __init__(self) -> None:
        self._turns: dict[str, list[tuple[Path, bool]]] = {}

    def add(self, turn: str, path: Path, *, write: bool) -> None:
        self._turns.setdefault(turn, []).append((path, write))
        while len(self._turns) > TURNS:
            del self._turns[next(iter(self._turns))]

    def of(self, turn: str, *, write: bool) -> list[Path]:
        return [path for path, writes in self._turns.get(turn, ()) if writes == write]


@dataclass(slots=True)
class SandboxEnvironment:
    """The sandbox environment of one turn. A server keeps an environment that belongs to no turn; ``for_turn`` makes
    the environment of each turn from it.

    ``read`` contains the paths that code may read in addition to its work directory. ``wanted`` contains the output
    files that the request names; with ``surface``, other new files are stored too. ``given`` contains copies of
    variables that are set before the first Python code of the turn. ``known_lost`` is the loss of variables that was
    already reported in this turn. ``once`` contains the paths that the user allowed for single turns. All turns of a
    server share ``once`` and ``network``.
    """

    sandbox: Sandbox
    read: tuple[Path, ...] = ()
    wanted: tuple[RequestedFile, ...] = ()
    surface: bool = True
    given: tuple[Variable, ...] = ()
    known_lost: str = ""
    once: PathsAllowedForTurn = field(default_factory=PathsAllowedForTurn)
    network: str = "none"
    _less: str = ""

    async def run(self, work: Work, context: ToolContext, declared: Sequence[RequestedFile] = ()) -> RunOutcome:
        """Run ``work``, send its output as events, and return the outcome. Raises SandboxUnavailable,
        InvalidRequest."""

        def announce(stream: str, text: str) -> None:
            context.emit(CallOutput(context.call.id, text, stream))

        read, write = await context.paths.find_allowed() if context.paths else ((), ())
        started = time.monotonic()
        snapshot = await WorkdirSnapshot.take(self.sandbox.workdir(context.key), self.wanted, unasked=self.surface)
        result = await self.sandbox.run(
            context.key,
            work,
            on_output=announce,
            read=(*self.read, *read, *self.once.of(context.turn, write=False)),
            write=(*write, *self.once.of(context.turn, write=True)),
        )
        self._tell(result, context)
        surfaced = await snapshot.find_outputs(declared)
        notes = [surfaced.note, await self._ask_for_path(result, context)]
        keep_s = max(KEEP_S, work.timeout_s - (time.monotonic() - started))
        return RunOutcome(result, surfaced.files, tuple(filter(None, notes)), keep_s)

    def for_turn(
        self, occasion: ToolSourceContext, *, given: tuple[Variable, ...] = (), lost: str = ""
    ) -> SandboxEnvironment:
        """Return the environment for the calls of one turn, with the variables that the turn provides (``given``) and
        the loss of variables that it has already reported (``lost``)."""
        read = (occasion.notebook_dir,) if occasion.notebook_dir else ()
        return replace(self, read=read, wanted=occasion.request.outputs, given=given, known_lost=lost)

    @property
    def fetches(self) -> bool:
        """Whether code can read text of unknown origin over the network."""
        return self.network not in ("none", "loopback")

    def description(self, of: str) -> str:
        """Return the tool description ``of`` with two additions: which network access the code has, and which files the
        request asks for."""
        return of.replace(REACH["none"], REACH.get(self.network, self.network)) + describe_requested_files(self.wanted)

    def take_given(self) -> tuple[Variable, ...]:
        variables, self.given = self.given, ()
        return variables

    def _tell(self, result: RunResult, context: ToolContext) -> None:
        if result.lost and result.lost != self.known_lost:
            self.known_lost = result.lost
            context.emit(StateLost(result.lost))
        if result.less and result.less != self._less:
            self._less = result.less
            context.emit(Notice("warning", result.less))

    async def _ask_for_path(self, result: RunResult, context: ToolContext) -> str:
        """Ask the user to allow a path that the code could not open. Return a note for the model."""
        if not result.denied or context.paths is None:
            return ""
        write = READ_ONLY in (result.error or "")
        allowed = await context.paths.ask(Path(result.denied), write=write)
        if allowed is None:
            return ""
        self.once.add(context.turn, allowed, write=write)
        return f"({allowed} may be {'written' if write else 'read'} from now on: run the code again.)"


def format_result(result: RunResult, notes: Sequence[str] = ()) -> str:
    """Return the text of a result for the model: output, value, figures, ``notes`` and, as the last line, the error.
    The text is never empty."""
    stderr = result.stderr.rstrip()
    if result.error and "lost its process" in result.error:
        stderr = "\n".join(stderr.splitlines()[-LAST_WORDS:])
    *texts, error = _fit([result.stdout.rstrip(), stderr, result.value or "", result.error or ""])
    pictures = sum(medium.mime.startswith(PICTURES) for medium in result.media)
    parts = [
        result.lost and f"({result.lost})",
        *texts,
        figures_note(pictures),
        *notes,
        error,
    ]
    return "\n".join(part for part in parts if part) or "(no output)"


def _fit(texts: Sequence[str]) -> list[str]:
    """Shorten the texts so that together they fit into TEXT_CHARS characters. Each keeps at least its first
    STREAM_CHARS characters, and long texts use the room that short texts leave."""
    spare = max(0, TEXT_CHARS - sum(min(len(text), STREAM_CHARS) for text in texts))
    fitted = []
    for text in texts:
        room = STREAM_CHARS + (spare if len(text) > STREAM_CHARS else 0)
        spare -= max(0, min(len(text), room) - STREAM_CHARS)
        fitted.append(shorten(text, room))
    return fitted
