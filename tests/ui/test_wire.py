"""The panel's types of the wire say what the server says: every event, and every field of it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from agent_kernel.core.events import EVENT_TYPES
from tests.test_layers import ROOT

EVENTS = (ROOT / "ui" / "src" / "wire" / "events.ts").read_text(encoding="utf-8")


def declared() -> dict[str, set[str]]:
    """type -> names of its fields, as the interface Bodies has them."""
    body = EVENTS[EVENTS.index("export interface Bodies {") :]
    body = body[: body.index("\n}")]
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n  (?=[\"a-z])", body)[1:]:
        kind, _, fields = re.sub(r"/\*.*?\*/", "", entry, flags=re.DOTALL).partition(": ")
        found[kind.strip('"')] = set(re.findall(r"[{;\n]\s*(\w+)\??:", fields))
    return found


def test_the_panel_knows_every_event_and_no_other() -> None:
    assert sorted(declared()) == sorted(EVENT_TYPES)


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_the_panel_knows_every_field_of_an_event(kind: str) -> None:
    fields = {field.name for field in dataclasses.fields(EVENT_TYPES[kind])}
    assert declared().get(kind) == fields
