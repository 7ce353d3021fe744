"""Converts content parts of OpenAI's format: data URLs become media, files become SubmittedFile. The functions have no
side effects; an invalid request raises ValueError with a message that does not quote the request."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from agent_kernel.core.errors import RequestTooLarge
from agent_kernel.core.messages import (
    MAX_ARGUMENT_DEPTH,
    Media,
    Message,
    Part,
    Text,
    ToolCall,
    is_too_deep,
    is_visible_media,
    parse_arguments,
)
from jupyter_ext.turns.dialect_request import SubmittedFile

MAX_MESSAGES = 4_000
MAX_PARTS = 200
"""Maximum number of parts in one message."""
MAX_CALLS = 128
"""Maximum number of tool calls in one message."""
MAX_TEXT = 8 << 20
"""Maximum characters of all messages, including the arguments of calls."""
MAX_MEDIA = 20 << 20
"""Maximum bytes of the media of all messages. Their base64 text then fits into the largest body."""
MAX_PICTURES = 100
MAX_LINKS = 16
"""Maximum number of images of one request that are fetched by URL."""
MAX_FILES = 64
"""Maximum number of files in one request."""
TOO_MUCH_MEDIA = f"a request can have at most {MAX_MEDIA >> 20} MiB of media and files; upload files before it"
CALL_ID = 512
NO_AUDIO = "the models of this server do not accept audio: send text"
ChatRole: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
Links: TypeAlias = Mapping[str, Media]
"""Fetched media by URL."""


def check_length(characters: int, field: str) -> None:
    """Raise RequestTooLarge if ``characters``, the number of characters in a request, exceeds MAX_TEXT. ``field`` is
    the name of the request field that the error names."""
    if characters > MAX_TEXT:
        too_long = f"{field}: a request can have at most {MAX_TEXT} characters together."
        raise RequestTooLarge(too_long, details={"param": field})


def is_link(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


def decode_data_url(url: str) -> tuple[str, bytes]:
    """Return (MIME type in lower case, bytes) of the data URL ``data:TYPE;base64,DATA``. The size is checked before
    decoding."""
    head, _, data = url.partition(",")
    kind, *options = head[len("data:") :].split(";") if head[:5].lower() == "data:" else ("",)
    if not options or options[-1].strip().lower() != "base64" or len(head) > 500:
        raise ValueError("a data URL must have the form data:TYPE;base64,DATA")
    return kind.strip().lower(), from_base64(data)


def from_base64(data: str, limit: int = MAX_MEDIA) -> bytes:
    if len(data) // 4 * 3 > limit + 3:
        raise ValueError(f"more than {limit >> 20} MiB of data")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the data is not valid base64") from None


def medium(url: str, links: Links | None = None) -> Media:
    """Return an image or a video: from its data URL, or from the fetched media."""
    if is_link(url):
        if links is None or url not in links:
            raise ValueError("the content of this url was not fetched; send the picture as a data URL")
        return links[url]
    mime, data = decode_data_url(url)
    return visible_media(mime, data)


def visible_media(mime: str, data: bytes) -> Media:
    if not is_visible_media(mime):
        raise ValueError("models do not accept this medium; send images (PNG, JPEG, GIF, WebP) or videos")
    if not data:
        raise ValueError("the medium is empty")
    return Media.of(mime, data)


def check_depth(value: Any) -> Any:
    """Return a value of a request, such as the arguments of a call, unchanged. Raises ValueError if it is nested too
    deeply."""
    if is_too_deep(value, MAX_ARGUMENT_DEPTH):
        raise ValueError(f"at most {MAX_ARGUMENT_DEPTH} levels of lists and objects are allowed")
    return value


def make_tool_call(id: str, name: str, arguments: str | dict[str, Any]) -> ToolCall:
    """Return the call of a function. The arguments are an object or, as in OpenAI's API, its JSON."""
    return ToolCall(id, name, parse_arguments(arguments or "{}") if isinstance(arguments, str) else arguments)


def check_calls(role: str, calls: Sequence[Any] | None, call_id: str | None) -> None:
    """Check the calls of a chat message, and the id of the call that it answers. Raises ValueError."""
    if calls and role != "assistant":
        raise ValueError(f"a {role} message cannot call tools")
    if role == "tool" and not call_id:
        raise ValueError("a tool message must have the tool_call_id that it answers")


def make_message(
    role: ChatRole, parts: Iterable[Part], calls: Iterable[ToolCall], call_id: str | None, name: str | None
) -> Message:
    """Return a message in OpenAI's chat format as a Message. Empty texts are left out; ``call_id`` and ``name`` count
    only for the result of a tool."""
    has_result = role == "tool"
    return Message(
        "system" if role == "developer" else role,
        tuple(part for part in parts if part != Text("")),
        tuple(calls),
        call_id=call_id if has_result else None,
        name=name if has_result else None,
        status="success" if has_result else None,
    )


def make_submitted_file(id: str | None, name: str | None, data: str | None) -> SubmittedFile:
    """Return a file, either by the id of an uploaded one, or by its name and data (base64, or a data URL)."""
    if id:
        if data:
            raise ValueError("a file has a file_id, or a filename and file_data, not both")
        return SubmittedFile(id=id)
    if not (name and data):
        raise ValueError("a file has a file_id, or a filename and file_data")
    mime, body = decode_data_url(data) if data[:5].lower() == "data:" else ("", from_base64(data))
    return SubmittedFile(name=name, mime=mime, data=body)


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The amounts in a request that have limits: the characters of its text, the number of its media, and the bytes of
    its media and files together (``size``)."""

    chars: int
    pictures: int
    size: int

    @classmethod
    def of(cls, messages: Sequence[Message], files: Sequence[SubmittedFile]) -> RequestSize:
        media = [medium for message in messages for medium in message.media if medium.data is not None]
        characters = sum(len(message.text) + len(message.reasoning) for message in messages)
        characters += sum(len(str(call.arguments)) for message in messages for call in message.calls)
        return cls(characters, len(media), sum(medium.size for medium in media) + sum(len(file.data) for file in files))


def within_limits(messages: Sequence[Message], files: Sequence[SubmittedFile], field: str = "messages") -> None:
    """Check the size of the messages and the files of a request. Raises RequestTooLarge for too much text, and
    ValueError if they exceed another limit. ``field`` is the field with the messages."""
    load = RequestSize.of(messages, files)
    check_length(load.chars, field)
    if load.pictures > MAX_PICTURES:
        raise ValueError(f"a request can have at most {MAX_PICTURES} pictures")
    if load.size > MAX_MEDIA:
        raise ValueError(TOO_MUCH_MEDIA)
    if len(files) > MAX_FILES:
        raise ValueError(f"a request can have at most {MAX_FILES} files")


NO_USER = (
    "the conversation ends with a message of the assistant, which this server does not continue: end it with a message "
    "of the user, for example one that asks to go on"
)
NO_RESULTS = "the conversation ends with calls of the assistant: add the result of each"


def name_results(messages: Sequence[Message], *, alone: bool, continues: bool = False) -> list[Message]:
    """Return the messages with the name of the called function added to each tool result.

    Each result must answer an earlier call, and each call of the last assistant message must have a result. ``alone``:
    results at the beginning are accepted without their calls. ``continues``: the last message is the beginning of the
    answer, a text of the assistant. Raises ValueError.
    """
    names: dict[str, str] = {}
    named_messages: list[Message] = []
    begins = alone
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        begins = begins and message.role in ("tool", "system")
        if message.role == "tool" and message.call_id not in names and not begins:
            raise ValueError("a tool result must have the id of a call in an earlier assistant message")
        function_name = names.get(message.call_id or "", message.name)
        named_messages.append(
            replace(message, name=function_name) if message.role == "tool" and function_name else message
        )
    _complete(messages)
    if messages and messages[-1].role == "assistant" and not (continues and not messages[-1].calls):
        raise ValueError(NO_USER if not messages[-1].calls else NO_RESULTS)
    return named_messages


def _complete(messages: Sequence[Message]) -> None:
    """Raise ValueError if the conversation ends with tool results and a call of the last assistant message has none."""
    behind = [message.call_id for message in _trailing_results(messages)]
    calls = messages[len(messages) - len(behind) - 1].calls if len(behind) < len(messages) else ()
    if messages and messages[-1].role == "tool" and (missing := [call.id for call in calls if call.id not in behind]):
        raise ValueError(f"{len(missing)} of the {len(calls)} calls of the last assistant message have no result")


def _trailing_results(messages: Sequence[Message]) -> Iterable[Message]:
    for message in reversed(messages):
        if message.role != "tool":
            return
        yield message
