"""What of a session from elsewhere may come into a store: what was said, and media. Pure.

Nothing that a person or a program acted on comes along: no approval, permission, tool, setting or path. ``trusted`` is
for a document of one's own, a backup: everything comes, as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_kernel.core.files import BODY_OMITTED, File
from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.core.session import Item, SessionKey, SessionUpdate, Turn, new_id
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.export.imported_charts import ImportedCharts

REASON = "It was running when it was exported."
MAX_TITLE = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def admitted(
    transcript: Transcript, key: SessionKey, *, now: float, trusted: bool, origin: Mapping[str, object] | None = None
) -> Transcript:
    """The session as ``key``; what may not come is counted in ``left_out``. ``origin`` becomes the session's
    ``imported``; a session that is not ``trusted`` has that mark in any case. Raises InvalidRequest for what a store
    can not hold."""
    left_out = dict(transcript.left_out)
    come = transcript if trusted else _said(transcript, now, left_out)
    session = replace(come.session, key=key, imported=origin or come.session.imported)
    come = _closed(replace(come, session=session, turns=tuple(replace(turn, key=key) for turn in come.turns)))
    come = replace(
        come,
        files=tuple(_file(file, come.blobs, left_out, now) for file in come.files),
        items=tuple(replace(item, message=_with_known(item.message, come.blobs, left_out)) for item in come.items),
        summaries=tuple(replace(summary, key=key) for summary in come.summaries),
    )
    return replace(come, session=replace(session, head=come.session.head, tags=_checked(come)), left_out=left_out)


def renamed(transcript: Transcript) -> Transcript:
    """Its turns with ids of their own: one id must not lead to the turns of two sessions."""
    prefix = new_id("turn")
    names = {turn.id: f"{prefix}-{turn.ordinal}" for turn in transcript.turns}
    placed = {names[turn]: segment for turn, segment in transcript.tree.turns.items()}
    return replace(
        transcript,
        turns=tuple(replace(turn, id=names[turn.id]) for turn in transcript.turns),
        items=tuple(replace(item, turn=names[item.turn]) for item in transcript.items),
        tree=replace(transcript.tree, turns=placed),
    )


def _said(transcript: Transcript, now: float, left_out: dict[str, int]) -> Transcript:
    """Times that are not known (0) or to come are now. What the model would read and a person not see stays out:
    system messages, hidden ones, summaries. So does a chart that is not safe to draw."""
    transcript = renamed(transcript)
    items = [_plain(item, now) for item in transcript.items if _may_come(item.message, left_out)]
    for what, count in (("summaries", len(transcript.summaries)), ("records of turns", _records(transcript))):
        if count:
            left_out[what] = left_out.get(what, 0) + count
    charts = ImportedCharts(transcript.blobs)
    items = [replace(item, message=charts.check(item.message)) for item in items]
    if charts.refused:
        left_out["charts that are not safe to draw"] = charts.refused
    session = transcript.session
    updated = min(session.updated, now) or now
    return replace(
        transcript,
        blobs=_named(charts.blobs, items, transcript.files),
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
        turns=tuple(_bare(turn, now) for turn in transcript.turns),
        items=tuple(items),
        branches=tuple(replace(branch, created=min(branch.created, now)) for branch in transcript.branches),
        summaries=(),
    )


def _named(blobs: Mapping[str, bytes], items: Sequence[Item], files: Sequence[File]) -> dict[str, bytes]:
    """The bytes of media and files that come."""
    hashes = {medium.hash for item in items for medium in item.message.media} | {file.hash for file in files}
    return {digest: data for digest, data in blobs.items() if digest in hashes}


def _may_come(message: Message, left_out: dict[str, int]) -> bool:
    """Calls and results come whether they say they are hidden or not: a pair is never split. What another program
    said in its own shape, and people are not shown, does not."""
    kind = "system messages" if message.role == "system" else "hidden messages"
    paired = message.role == "tool" or message.calls
    stays = message.role == "system" or (message.hidden and not paired)
    if stays:
        left_out[kind] = left_out.get(kind, 0) + 1
    return not stays


def _plain(item: Item, now: float) -> Item:
    message = replace(item.message, hidden=False, extra={})
    return replace(item, message=message, time=min(item.time, now) or now)


def _bare(turn: Turn, now: float) -> Turn:
    opened = min(turn.opened, now) or now
    closed = None if turn.closed is None else min(turn.closed, now) or now
    return replace(turn, opened=opened, closed=closed, epoch="", where="", usage={}, record={})


def _records(transcript: Transcript) -> int:
    return sum(1 for turn in transcript.turns if turn.record or turn.usage)


def _closed(transcript: Transcript) -> Transcript:
    """A turn that was running has ended; its calls get their answers."""
    if not transcript.turns or transcript.turns[-1].state != "open":
        return transcript
    turn = transcript.turns[-1]
    waiting: dict[str, str] = {}
    for item in transcript.items:
        if item.turn == turn.id:
            waiting = call_pairs.unanswered(waiting, [item.message])
    head, time = transcript.session.head, transcript.session.updated
    given = [
        Item(seq, turn.id, answer, time)
        for seq, answer in enumerate(call_pairs.answers(waiting, REASON), start=head + 1)
    ]
    ended = replace(turn, state="interrupted", reason=REASON, closed=time)
    return replace(
        transcript,
        session=replace(transcript.session, head=head + len(given)),
        turns=(*transcript.turns[:-1], ended),
        items=(*transcript.items, *given),
    )


def _with_known(message: Message, blobs: Mapping[str, bytes], left_out: dict[str, int]) -> Message:
    """A note where the bytes of a medium did not come along."""
    if all(medium.hash in blobs for medium in message.media):
        return message

    def known(part: Part) -> Part:
        if not isinstance(part, Media) or part.hash in blobs:
            return part
        left_out["media without bytes"] = left_out.get("media without bytes", 0) + 1
        return Text(f"[{part.mime} that did not come along]")

    return replace(message, parts=tuple(known(part) for part in message.parts))


def _file(file: File, blobs: Mapping[str, bytes], left_out: dict[str, int], now: float) -> File:
    """One whose bytes did not come along stays named, so that nobody looks for it in vain."""
    file = replace(file, created=min(file.created, now) or now)
    if file.error or file.hash in blobs:
        return file
    left_out["files without bytes"] = left_out.get("files without bytes", 0) + 1
    message = f"its {file.size} bytes were too large for the document it came in"
    return replace(file, size=0, hash="", error=BODY_OMITTED, message=message)


def _checked(transcript: Transcript) -> tuple[str, ...]:
    """The tags as a store keeps them. Raises InvalidRequest for what a document can say and a store can not keep."""
    session = transcript.session
    described = serialization.described(SessionUpdate(session.title, session.tags, session.metadata, session.context))
    for turn in transcript.turns:
        serialization.checked(turn)
    for item in transcript.items:
        serialization.text(item.message.call_id or "", "call id")
    return described.tags or ()
