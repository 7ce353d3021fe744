"""Runs agent cells without a model, in the two modes of ``AGENT_KERNEL_MODE``: ``replay`` shows answers from
NAME.agent.json, ``off`` shows none.

For graders and CI: only the file is needed, no server. The file is not trusted: text is shown like any answer, only
media of types that cannot run code are shown, and no code in the file runs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agent_kernel.core.events import AnswerChecked
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, Message, corrected_call
from agent_kernel.core.wire.sidecar_rows import expand_rows
from agent_kernel.notebook.display.media_bundle import BUNDLE, TABLE
from agent_kernel.notebook.display.render import STATES, Card, TurnSummary, format_arguments, line_bundle, moment
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.one_line_errors import AgentError

MODE = "AGENT_KERNEL_MODE"
MISSING = "AGENT_KERNEL_REPLAY_MISSING"
FILE = "AGENT_KERNEL_SIDECAR"
OFF = f"Agent cells are off ({MODE}=off): no model was asked."
STORED = "Stored answer of {when} ({mode}=replay): no model was asked."
NOTEBOOKS = ("JPY_SESSION_NAME", "PAPERMILL_INPUT_PATH")
"""Environment variables that name the notebook of a kernel."""
SUFFIX = ".agent.json"
MAX_BYTES = 128 * 2**20
MAX_MEDIUM = 64 * 2**20
PNG = "image/png"
END = 2**62
BRACES = re.compile(r"\{\s*([^\W\d]\w*)\s*\}")
HASH = re.compile(r"[0-9a-f]{64}")


class StoredAnswers:
    """Shows stored answers. Counts how often each prompt has occurred since the kernel started: if the front end sends
    no cell ids, the first cell with a prompt gets the first answer to this prompt, the second cell with the prompt gets
    the second answer, and so on."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._occurrences: Counter[str] = Counter()
        self._cache: dict[Path, tuple[tuple[int, int], SidecarDocument]] = {}

    @property
    def is_on(self) -> bool:
        """Whether cells show stored answers and ask no model. Raises AgentError if AGENT_KERNEL_MODE has an unknown
        value."""
        mode = os.environ.get(MODE, "")
        if mode not in ("", "replay", "off"):
            raise AgentError(f"{MODE} must be replay or off, not {mode[:40]!r}.")
        return bool(mode)

    def show(self, prompt: str, cell: str, screen: Screen) -> str | None:
        """Show the stored answer of a cell and return its text.

        If there is no answer, raises AgentError, or returns None if AGENT_KERNEL_REPLAY_MISSING is "tell". Also returns
        None in the mode ``off``."""
        if os.environ.get(MODE) == "off":
            self._tell(OFF)
            return None
        try:
            document, turn = self._find_answer(prompt, cell)
        except AgentError as missing:
            if os.environ.get(MISSING, "fail") != "tell":
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
        if configured := os.environ.get(FILE):
            return [Path(configured).expanduser()]
        names = [
            str(self._shell.user_ns.get("__vsc_ipynb_file__", "")),
            *(os.environ.get(name, "") for name in NOTEBOOKS),
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


# Reads a sidecar, NAME.agent.json, in a kernel: the answered turns, beginning with those of the current branch.
#
# Standard library only. The file is not trusted: a wrong structure raises a one-line error. The store's reader
# (``sessions/transcript_reader.py``) checks more, but is too heavy for the user's kernel.


class SidecarTurn(NamedTuple):
    """One answered turn. ``code`` maps the ids of calls to their code. ``numbers`` has one entry for each number in the
    answer, with the output line that it comes from."""

    turn: str
    cell: str
    where: str
    model: str
    closed: float
    prompt: str
    messages: tuple[Message, ...]
    code: Mapping[str, str]
    numbers: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SidecarDocument:
    """The content of a sidecar file. ``turns`` are its turns in the order in which they were asked; turns that are not
    on the current branch come last. ``inline`` maps hashes to the base64 of media that are stored in the document
    itself."""

    path: Path
    session: str
    turns: tuple[SidecarTurn, ...]
    inline: Mapping[str, str] = field(repr=False)

    def find(self, prompt: str, cell: str, occurrence: int) -> SidecarTurn | None:
        """Return the newest answer to ``prompt`` that was given in the cell with the id ``cell``. If there is none,
        return the answer number ``occurrence`` to this prompt in any cell, or the last answer if there are fewer.
        Returns None if the prompt has no answer."""
        same = [turn for turn in self.turns if normalize_prompt(turn.prompt) == normalize_prompt(prompt)]
        of_cell = [turn for turn in same if turn.cell == cell]
        if of_cell:
            return of_cell[-1]
        return same[min(occurrence, len(same)) - 1] if same else None

    def medium(self, digest: str) -> bytes | None:
        """Return the media file with this hash, from the document or from the file named after the hash in the folder
        beside the document; None if neither has it."""
        if HASH.fullmatch(digest) is None:
            return None
        if digest in self.inline:
            try:
                return base64.b64decode(self.inline[digest], validate=True)
            except (binascii.Error, ValueError):
                return None
        beside = self.path.with_name(self.path.name.removesuffix(".json")) / digest
        if beside.parent.is_symlink() or beside.is_symlink() or not beside.is_file():
            return None
        return beside.read_bytes() if beside.stat().st_size <= MAX_MEDIUM else None


def normalize_prompt(prompt: str) -> str:
    """Return a prompt in the form in which prompts are compared. Runs of spaces become one space. Braces around
    variables are removed, because stored prompts do not have them."""
    return " ".join(BRACES.sub(r"\1", prompt).split())


def read_document(path: Path) -> SidecarDocument:
    """Read the file. Raises AgentError if it is not a conversation document."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentError(f"{path.name} is too large: it can have at most {MAX_BYTES >> 20} MB.")
        return _document(path, json.loads(path.read_bytes()))
    except OSError as error:
        raise AgentError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        raise AgentError(f"{path.name} is not a conversation that this version can read.") from None


def _document(path: Path, body: Mapping[str, Any]) -> SidecarDocument:
    own = body["agent_kernel"]
    if own["format"] >= 3:
        own = expand_rows(own)
    messages = [Message.from_json(_plain(message)) for message in body["messages"]]
    of_turn: dict[str, list[Message]] = {}
    for item, message in zip(own["items"], messages, strict=True):
        of_turn.setdefault(str(item["turn"]), []).append(message)
    until = _visible_segments(own)
    turns = [turn for turn in own["turns"] if turn["state"] == "committed"]
    shown = [turn for turn in turns if turn["since"] < until.get(turn["segment"], -1)]
    ordered = [*shown, *(turn for turn in turns if turn not in shown)]
    stored = tuple(_stored_turn(turn_row, of_turn.get(str(turn_row["id"]), [])) for turn_row in ordered)
    return SidecarDocument(path, str(own["session"]["id"]), stored, dict(_inline(body, own, messages)))


def _plain(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Restore the content type of media. Documents name the type ``image``, so that programs that do not know our type
    ``media`` can read them."""
    content = body.get("content")
    if not isinstance(content, list):
        return body
    return {**body, "content": [{**part, "type": "media"} if "hash" in part else part for part in content]}


def _visible_segments(own: Mapping[str, Any]) -> dict[int, int]:
    """Map the id of each segment that the current branch contains to the number of its last item that belongs to the
    branch."""
    parents = {int(segment["id"]): (int(segment["parent"]), int(segment["since"])) for segment in own["segments"]}
    ends = {branch["name"]: int(branch["segment"]) for branch in own["branches"]}
    at, until = ends.get(own["session"]["branch"], 0), END
    way = {at: until}
    while at and len(way) <= len(parents) + 1:
        at, since = parents[at]
        until = min(until, since)
        way[at] = until
    return way


def _stored_turn(turn: Mapping[str, Any], messages: list[Message]) -> SidecarTurn:
    prompt = next((message.text for message in messages if message.role == "user" and not message.hidden), "")
    code = {call.id: _code(call.arguments) for message in messages for call in message.calls}
    answer = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
    return SidecarTurn(
        str(turn["id"]),
        str(turn["cell"]),
        str(turn["where"]),
        str(turn["model"]),
        float(turn["closed"] or 0),
        prompt,
        tuple(message for message in messages if message.role != "system" and not message.hidden),
        code,
        tuple(_numbers(turn["record"].get("numbers"), answer)),
    )


def _code(arguments: Mapping[str, Any]) -> str:
    code = arguments.get("code")
    return code if isinstance(code, str) else format_arguments(arguments)


def _numbers(value: Any, answer: str) -> Iterator[Mapping[str, Any]]:
    for entry in value if isinstance(value, list) else ():
        match entry:
            case [int(start), int(end), str(status), *_] if 0 <= start < end <= len(answer):
                yield {"text": answer[start:end], "status": status}


def _inline(body: Mapping[str, Any], own: Mapping[str, Any], messages: list[Message]) -> Iterator[tuple[str, str]]:
    """Yield (hash, base64) of the media files that are in the document itself. PNG images have no hash there; they are
    in a list of their own, in the order in which messages refer to them."""
    for digest, blob in own["blobs"].items():
        if isinstance(blob.get("data"), str):
            yield str(digest), blob["data"]
    png_hashes = [medium.hash for message in messages for medium in message.media if medium.mime == PNG]
    for digest, image in zip(png_hashes, body.get("images") or (), strict=False):
        if isinstance(image, str):
            yield digest, image
