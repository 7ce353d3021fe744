"""Parses the front matter of a SKILL.md: YAML between two lines of ``---``, with a name and a description."""

from __future__ import annotations

from collections.abc import Iterable

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.skills.skill import MAIN

HEAD_BYTES = 16 << 10
NAME_CHARS = 100
DESCRIPTION_CHARS = 2_000
DEPTH = 8


def head_of(data: bytes) -> tuple[str, str]:
    """Return (name, description) from the front matter in ``data``, the content of a SKILL.md. Raises InvalidRequest,
    which states what is missing."""
    import yaml

    lines = data[: HEAD_BYTES + 8].decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in (line.rstrip() for line in lines[1:]):
        raise InvalidRequest(
            f"{MAIN} must begin with a line '---', a name, a description and a line '---', in at most "
            f"{HEAD_BYTES >> 10} KiB."
        )
    end = next(number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    text = "\n".join(lines[1:end])
    try:
        _check_plain(yaml.parse(text, Loader=yaml.SafeLoader))
        body = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The front matter of {MAIN} is not YAML ({type(error).__name__}).") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"The front matter of {MAIN} must have a name and a description.")
    name, description = (_line(body.get(field), field) for field in ("name", "description"))
    if len(name) > NAME_CHARS or len(description) > DESCRIPTION_CHARS:
        raise InvalidRequest(
            f"A skill's name can have at most {NAME_CHARS} characters, its description {DESCRIPTION_CHARS}."
        )
    return name, description


def _check_plain(events: Iterable[object]) -> None:
    """Raise InvalidRequest for YAML that could exhaust memory or time.

    A few lines of aliases can stand for gigabytes, and nested brackets take quadratic time. The events are read one by
    one, so that the check stops at the first event that exceeds a limit.
    """
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if kind == "AliasEvent" or depth > DEPTH:
            raise InvalidRequest(
                f"The front matter of {MAIN} has aliases or nests too deeply. Write only plain keys and texts."
            )


def _line(value: object, field: str) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text or not text.isprintable():
        raise InvalidRequest(f"The front matter of {MAIN} has no {field}.")
    return text
