"""Removes the parts of a session document of unknown origin that may not be imported, and keeps the conversation and
its media. The functions have no side effects.

No approval, permission, tool, setting or path is imported. A ``trusted`` document, such as the user's own backup, is
imported completely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_kernel.core.files import BODY_OMITTED, File
from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.core.session import Item, SessionKey, SessionUpdate, Turn, new_id
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sandbox.host import chart_validation
from agent_kernel.sessions import call_pairs, serialization

REASON = "The turn was running when its session was exported."
MAX_TITLE = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""MIME type of media that are a whole MIME bundle: several representations of one output, one of which may be a
chart."""
KINDS = ("application/vnd.plotly", "application/vnd.vega")
"""Prefixes of chart types, including types that cannot be checked."""
NOTE = "[A chart was left out: {why}.]"


def sanitize(
    transcript: Transcript, key: SessionKey, *, now: float, trusted: bool, origin: Mapping[str, object] | None = None
) -> Transcript:
    """Return the transcript with the session key ``key`` and without the parts that may not be imported. Its
    ``left_out`` counts the removed parts by kind. ``origin`` becomes the session's ``imported``; without an origin, a
    session that is not ``trusted`` gets an empty object, which marks it as imported. Raises InvalidRequest for values
    that a store cannot hold."""
    left_out = dict(transcript.left_out)
    kept = transcript if trusted else _sanitize_content(transcript, now, left_out)
    session = replace(kept.session, key=key, imported=origin or kept.session.imported)
    kept = _close_open_turn(replace(kept, session=session, turns=tuple(replace(turn, key=key) for turn in kept.turns)))
    kept = replace(
        kept,
        files=tuple(_mark_missing_file(file, kept.blobs, left_out, now) for file in kept.files),
        items=tuple(
            replace(item, message=_note_missing_media(item.message, kept.blobs, left_out)) for item in kept.items
        ),
        summaries=tuple(replace(summary, key=key) for summary in kept.summaries),
    )
    return replace(kept, session=replace(session, head=kept.session.head, tags=_validate(kept)), left_out=left_out)


def with_new_turn_ids(transcript: Transcript) -> Transcript:
    """Return the transcript with new turn ids, so that no turn of another session has the same id."""
    prefix = new_id("turn")
    names = {turn.id: f"{prefix}-{turn.ordinal}" for turn in transcript.turns}
    placed = {names[turn]: segment for turn, segment in transcript.tree.turns.items()}
    return replace(
        transcript,
        turns=tuple(replace(turn, id=names[turn.id]) for turn in transcript.turns),
        items=tuple(replace(item, turn=names[item.turn]) for item in transcript.items),
        tree=replace(transcript.tree, turns=placed),
    )


def _sanitize_content(transcript: Transcript, now: float, left_out: dict[str, int]) -> Transcript:
    """Remove messages that the model would read and the user would not see (system messages, hidden messages and
    summaries), and charts that are not safe to draw. Unknown times (0) and times in the future become now."""
    transcript = with_new_turn_ids(transcript)
    items = [_plain_item(item, now) for item in transcript.items if _is_importable(item.message, left_out)]
    records = sum(1 for turn in transcript.turns if turn.record or turn.usage)
    for kind, count in (("summaries", len(transcript.summaries)), ("records of turns", records)):
        if count:
            left_out[kind] = left_out.get(kind, 0) + count
    charts = ImportedCharts(transcript.blobs)
    items = [replace(item, message=charts.check(item.message)) for item in items]
    if charts.refused:
        left_out["charts that are not safe to draw"] = charts.refused
    session = transcript.session
    updated = min(session.updated, now) or now
    return replace(
        transcript,
        blobs=_select_used_blobs(charts.blobs, items, transcript.files),
        session=replace(
            session,
            title=_CONTROL.sub(" ", session.title)[:MAX_TITLE].encode("utf-8", "replace").decode(),
            created=min(session.created, updated) or now,
            updated=updated,
            revision=max(session.revision, 1),
            metadata={},
            context=None,
            imported={},
        ),
        turns=tuple(_bare_turn(turn, now) for turn in transcript.turns),
        items=tuple(items),
        branches=tuple(replace(branch, created=min(branch.created, now)) for branch in transcript.branches),
        summaries=(),
    )


def _select_used_blobs(blobs: Mapping[str, bytes], items: Sequence[Item], files: Sequence[File]) -> dict[str, bytes]:
    """Return the bytes, by hash, that the imported items and files refer to."""
    hashes = {medium.hash for item in items for medium in item.message.media} | {file.hash for file in files}
    return {digest: data for digest, data in blobs.items() if digest in hashes}


def _is_importable(message: Message, left_out: dict[str, int]) -> bool:
    """Return whether a message is imported; ``left_out`` counts those that are not. System messages are not imported,
    and hidden messages only if they are calls or results, so that no pair of call and result is split."""
    kind = "system messages" if message.role == "system" else "hidden messages"
    paired = message.role == "tool" or message.calls
    stays = message.role == "system" or (message.hidden and not paired)
    if stays:
        left_out[kind] = left_out.get(kind, 0) + 1
    return not stays


def _plain_item(item: Item, now: float) -> Item:
    message = replace(item.message, hidden=False, extra={})
    return replace(item, message=message, time=min(item.time, now) or now)


def _bare_turn(turn: Turn, now: float) -> Turn:
    opened = min(turn.opened, now) or now
    closed = None if turn.closed is None else min(turn.closed, now) or now
    return replace(turn, opened=opened, closed=closed, epoch="", where="", usage={}, record={})


def _close_open_turn(transcript: Transcript) -> Transcript:
    """Close a turn that was running when it was exported, with an interrupted result for each of its open calls."""
    if not transcript.turns or transcript.turns[-1].state != "open":
        return transcript
    turn = transcript.turns[-1]
    waiting: dict[str, str] = {}
    for item in transcript.items:
        if item.turn == turn.id:
            waiting = call_pairs.pending_calls(waiting, [item.message])
    head, time = transcript.session.head, transcript.session.updated
    results = [
        Item(seq, turn.id, answer, time)
        for seq, answer in enumerate(call_pairs.interrupted_results(waiting, REASON), start=head + 1)
    ]
    ended = replace(turn, state="interrupted", reason=REASON, closed=time)
    return replace(
        transcript,
        session=replace(transcript.session, head=head + len(results)),
        turns=(*transcript.turns[:-1], ended),
        items=(*transcript.items, *results),
    )


def _note_missing_media(message: Message, blobs: Mapping[str, bytes], left_out: dict[str, int]) -> Message:
    """Replace media whose bytes were not in the document by a note, and count them in ``left_out``."""
    if all(medium.hash in blobs for medium in message.media):
        return message

    def replace_missing(part: Part) -> Part:
        if not isinstance(part, Media) or part.hash in blobs:
            return part
        left_out["media without bytes"] = left_out.get("media without bytes", 0) + 1
        return Text(f"[{part.mime}, which was not included]")

    return replace(message, parts=tuple(replace_missing(part) for part in message.parts))


def _mark_missing_file(file: File, blobs: Mapping[str, bytes], left_out: dict[str, int], now: float) -> File:
    """Return the file; if its bytes were not in the document, with an error code and without a hash. The file itself
    stays, so that references to it can be explained."""
    file = replace(file, created=min(file.created, now) or now)
    if file.error or file.hash in blobs:
        return file
    left_out["files without bytes"] = left_out.get("files without bytes", 0) + 1
    message = f"its {file.size} bytes were too large for the document it came in"
    return replace(file, size=0, hash="", error=BODY_OMITTED, message=message)


def _validate(transcript: Transcript) -> tuple[str, ...]:
    """Return the session's tags in the form in which a store holds them. Raises InvalidRequest for values that a
    document can contain but a store cannot."""
    session = transcript.session
    described = serialization.validate_description(
        SessionUpdate(session.title, session.tags, session.metadata, session.context)
    )
    for turn in transcript.turns:
        serialization.validate_turn(turn)
    for item in transcript.items:
        serialization.text(item.message.call_id or "", "call id")
    return described.tags or ()


# Checks the charts of imported sessions by the rules for charts that leave the sandbox, since a notebook would draw
# them. The functions have no side effects.
#
# A chart may contain a URL that is requested when the chart is drawn. That request could send data of the page to
# another machine. A chart that fails the check is replaced by a text with the reason.


class ImportedCharts:
    """Checks the charts of one document. ``blobs`` are the bytes of its media by hash; ``check`` adds the checked
    versions of charts to them. ``refused`` counts the charts that were removed."""

    def __init__(self, blobs: Mapping[str, bytes]) -> None:
        self.blobs = dict(blobs)
        self.refused = 0
        self._known: dict[tuple[str, str], Part] = {}

    def check(self, message: Message) -> Message:
        """Return the message with only the charts that are safe to draw."""
        if not any(medium.mime == BUNDLE or is_chart(medium.mime) for medium in message.media):
            return message
        return replace(message, parts=tuple(self._part(part) for part in message.parts))

    def _part(self, part: Part) -> Part:
        """Return one part of a message, with its charts checked. A part without bytes stays, because no notebook can
        draw it."""
        if not isinstance(part, Media) or part.hash not in self.blobs:
            return part
        if part.mime != BUNDLE and not is_chart(part.mime):
            return part
        place = part.mime, part.hash
        if place not in self._known:
            self._known[place] = self._check_chart(part, self.blobs[part.hash])
        return self._known[place]

    def _check_chart(self, medium: Media, data: bytes) -> Part:
        try:
            safe = self._bundle(data) if medium.mime == BUNDLE else _chart(medium.mime, data)
        except chart_validation.NotShown as why:
            self.refused += 1
            return Text(NOTE.format(why=why))
        checked = Media.of(medium.mime, safe)
        self.blobs[checked.hash] = safe
        return Media(checked.mime, checked.hash, checked.size)

    def _bundle(self, data: bytes) -> bytes:
        """Return the MIME bundle ``data`` without refused charts; its plain text gets a note for each of them. Raises
        NotShown for data that is not JSON, since a browser might still interpret such data."""
        try:
            body = json.loads(data, parse_constant=lambda name: None)
        except (ValueError, RecursionError) as error:
            raise chart_validation.NotShown("it is not JSON") from error
        if not isinstance(body, dict) or not any(map(is_chart, body)):
            return data
        plain = [_text_of(body["text/plain"])] if "text/plain" in body else []
        for mime in [mime for mime in body if is_chart(mime)]:
            try:
                chart = _chart(mime, _text_of(body[mime]).encode("utf-8", "surrogatepass"))
                body[mime] = json.loads(chart)
            except chart_validation.NotShown as why:
                del body[mime]
                plain.append(NOTE.format(why=why))
                self.refused += 1
        return json.dumps(body | ({"text/plain": "\n".join(plain)} if plain else {})).encode()


def is_chart(mime: str) -> bool:
    return mime.strip().lower().startswith(KINDS)


def _chart(mime: str, data: bytes) -> bytes:
    if mime not in chart_validation.CHARTS:
        raise chart_validation.NotShown("charts of this type cannot be checked")
    return chart_validation.validate_chart(mime, data)


def _text_of(value: Any) -> str:
    """Return a value of a MIME bundle as the page would read it: a string, or the lines of a list joined; any other
    value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value)
