"""Serializes messages and records as the JSON text that all stores use. The bytes of media are stored separately, by
hash. The functions have no side effects.

Decoding normalizes: empty text parts are removed, adjacent texts are joined, tuples become lists, media have no data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, get_args

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, Message, Role, Text, is_too_deep
from agent_kernel.core.session import MAX_DESCRIPTION, MAX_TAGS, Branch, Session, SessionUpdate, Summary, Turn, check_id

MAX_DEPTH = 200
"""Maximum nesting of lists and objects in one JSON value. Python's own JSON parser fails at about 1000 levels."""
MAX_PATH = 4096
MAX_TAG = 100
MAX_EXTRA = 16 * 2**20
"""Maximum characters of the JSON in ``Message.extra``, which holds messages in another program's format."""
MAX_REMEMBERED = 2000
"""Maximum characters of a message whose decoded form is cached. A process caches the last 2000 such messages."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
"""Created once, because creating it takes a third of the time of a call of json.dumps with these options."""
_ROLES = frozenset(get_args(Role))


def encode(message: Message) -> str:
    """Serialize a message. Raises InvalidRequest for values that JSON cannot represent, including NaN and infinity."""
    if message.role not in _ROLES:
        raise InvalidRequest(f"{message.role!r} is not a message role.", hint=f"Roles: {', '.join(sorted(_ROLES))}.")
    body = message.to_json()
    if len(body) == 2 and isinstance(content := body["content"], str):
        # Nearly every message is a role and one text. The encoder takes three times as long for the object as for the
        # text alone.
        text = f'{{"role":"{message.role}","content":{_ENCODER.encode(content)}}}'
        return text if _is_utf8(text) else dumps(body)
    plain = not (message.calls or message.extra)  # a message without calls and extra fields has no deep nesting
    text = dumps(body) if plain else encode_value(body)
    if message.extra and len(text) > MAX_EXTRA:
        raise InvalidRequest(
            f"A message with fields of another program can have at most {MAX_EXTRA} characters, not {len(text)}."
        )
    return text


def decode(body: str) -> Message:
    # Every turn reads the newest messages of its session again, and decoding takes longer than reading. Messages with
    # values that a caller could change are not shared.
    if len(body) > MAX_REMEMBERED or '"tool_calls":' in body or '"extra":' in body:
        return Message.from_json(json.loads(body))
    return _decode_plain(body)


@lru_cache(maxsize=2000)
def _decode_plain(body: str) -> Message:
    return Message.from_json(json.loads(body))


def as_stored(message: Message, body: str) -> Message:
    """Return the message in the form that ``decode`` returns. ``body`` is the result of ``encode``."""
    if message.calls or message.extra:
        return decode(body)
    if len(message.parts) == 1 and isinstance(only := message.parts[0], Text) and only.text:
        return message
    if message.media:
        return decode(body)
    text = message.text
    return replace(message, parts=(Text(text),) if text else ())


def encode_value(value: Any) -> str:
    """Serialize a JSON value. Letters such as é stay readable, so that they can be searched; if UTF-8 cannot encode the
    text, it is escaped. Raises InvalidRequest for a value that JSON cannot represent or that has more than MAX_DEPTH
    levels."""
    if is_too_deep(value, MAX_DEPTH):
        raise InvalidRequest(f"JSON values of more than {MAX_DEPTH} levels cannot be stored.")
    return dumps(value)


def dumps(value: Any) -> str:
    """Serialize a value as ``encode_value`` does, without checking how deep it nests. Raises InvalidRequest for a value
    that JSON cannot represent."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"This cannot be stored as JSON: {error}.") from error
    return text if _is_utf8(text) else json.dumps(value, separators=(",", ":"))


def fields_to_json(value: Session | Turn | Branch | Summary, *left_out: str) -> dict[str, Any]:
    """Return the fields of a value in their order as JSON, without those named ``left_out``."""
    body = {item.name: getattr(value, item.name) for item in fields(value) if item.name not in left_out}
    return {name: _to_container(field) for name, field in body.items()}


def _to_container(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def collect_media(messages: Iterable[Message], is_stored: Callable[[str], bool]) -> dict[str, Media]:
    """Return the media of the messages by hash.

    ``is_stored`` says whether the session already contains the bytes of a hash. Raises InvalidRequest if bytes do not
    match their hash or size, or if media come without bytes and the session does not contain them. Otherwise a client
    that knows a hash could read media of another session.
    """
    media: dict[str, Media] = {}
    for medium in (medium for message in messages for medium in message.media):
        if medium.data is not None:
            if len(medium.data) != medium.size or hashlib.sha256(medium.data).hexdigest() != medium.hash:
                raise InvalidRequest("The bytes of a media file do not match its hash and size.")
            media[medium.hash] = medium
        elif medium.hash not in media and not is_stored(medium.hash):
            raise InvalidRequest(
                f"The bytes of the media file {medium.hash} are not in this session: append them with the message."
            )
    return media


def validate_turn(turn: Turn) -> Turn:
    """Check the texts of a new turn, and return it as a store would read it again after storing it: in the state
    ``open``, with ``usage`` and ``record`` as decoded JSON. Raises InvalidRequest for an invalid id, for text that
    UTF-8 cannot encode, and for values that JSON cannot represent."""
    check_id(turn.id, "turn id")
    for name in ("reason", "cell", "epoch", "where", "model"):
        text(getattr(turn, name), name)
    usage, record = (json.loads(encode_value(dict(facts))) if facts else {} for facts in (turn.usage, turn.record))
    return replace(turn, state="open", reason="", closed=None, usage=usage, record=record)


def validate_description(change: SessionUpdate) -> SessionUpdate:
    """Return the change in the form in which a store applies it, for example without duplicate tags. Raises
    InvalidRequest for text that UTF-8 cannot encode, for too large metadata or context, and for invalid tags."""
    if change.title is not None:
        text(change.title, "title")
    for name, value in (("metadata", change.metadata), ("context", change.context)):
        size = 0 if value is None else len(encode_value(value).encode())
        if size > MAX_DESCRIPTION:
            raise InvalidRequest(
                f"The {name} of a session can have {MAX_DESCRIPTION} bytes of JSON at most, not {size}."
            )
    if change.tags is None:
        return change
    tags = tuple(dict.fromkeys(text(tag.strip(), "tag") for tag in change.tags))
    if len(tags) > MAX_TAGS or any(not 1 <= len(tag) <= MAX_TAG or not tag.isprintable() for tag in tags):
        raise InvalidRequest(f"A session can have at most {MAX_TAGS} tags of 1 to {MAX_TAG} printable characters.")
    return replace(change, tags=tags)


def text(value: str, name: str) -> str:
    """Return ``value`` if UTF-8 can encode it; otherwise raise InvalidRequest, in which ``name`` names the value."""
    if not _is_utf8(value):
        raise InvalidRequest(f"This {name} is not valid Unicode.")
    return value


def path(value: str, name: str = "path") -> str:
    """Return ``value``, a contents root or a path below it. Raises InvalidRequest unless it has 1 to MAX_PATH
    characters and no NUL; ``name`` names it in the message."""
    if not 1 <= len(value) <= MAX_PATH or "\0" in value:
        raise InvalidRequest(f"A {name} must have 1 to {MAX_PATH} characters, none of them NUL.")
    return text(value, name)


def validate_limit(limit: int | None, name: str = "limit") -> int | None:
    """Return ``limit``: None means all, 0 means none. Raises InvalidRequest if it is negative; ``name`` names it in the
    message."""
    if limit is not None and limit < 0:
        raise InvalidRequest(f"The {name} must be 0 or more.")
    return limit


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
