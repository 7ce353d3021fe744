"""Tests chat templates of vision models, in the variants of the model families."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.media.vision_chat_template import RESULT, PictureTemplate

PARTS_ONLY = (
    "{% for m in messages %}{{ m.role }}: {% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}"
    "{{ p.text }}{% endif %}{% endfor %}\n{% endfor %}"
)
"""LLaVA, Idefics 3, SmolVLM: a text that is no list of parts comes to nothing."""
BOTH = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}"
)
"""Gemma 3, Qwen 2 VL."""
BLIND_TO_RESULTS = BOTH.replace("<image>", "{% if m.role == 'user' %}<image>{% endif %}")
IMAGE, TEXT = {"type": "image"}, {"type": "text", "text": "what is this?"}


class Processor:
    def __init__(self, template: str) -> None:
        self._template = jinja2.Environment().from_string(template)

    def apply_chat_template(self, messages: list[dict[str, Any]], **_: Any) -> str:
        return self._template.render(messages=messages)


def template(source: str) -> PictureTemplate:
    return PictureTemplate(Processor(source), "<image>", ("<image>", "<soft>"))


@pytest.mark.parametrize("source", [PARTS_ONLY, BOTH])
def test_text_and_parts_are_shown_by_templates_of_both_kinds(source: str) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [IMAGE, TEXT]},
    ]

    assert template(source).render(chat) == "system: Be brief.\nuser: <image>what is this?\n"


@pytest.mark.parametrize("source", [PARTS_ONLY, BOTH])
def test_text_that_spells_the_place_of_a_picture_is_written_apart(source: str) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "an <image> or <soft>?"},
        {"role": "user", "content": [IMAGE, TEXT]},
    ]

    assert template(source).render(chat) == "user: an < image> or < soft>?\nuser: <image>what is this?\n"


def test_a_picture_of_a_result_stays_there_where_the_template_shows_it() -> None:
    chat: list[dict[str, Any]] = [{"role": "tool", "content": [{"type": "text", "text": "drawn"}, IMAGE]}]

    assert template(BOTH).render(chat) == "tool: drawn<image>\n"


def test_a_picture_of_a_result_follows_in_a_message_of_the_person_where_it_would_be_left_out() -> None:
    chat: list[dict[str, Any]] = [
        {"role": "tool", "content": [{"type": "text", "text": "drawn"}, IMAGE]},
        {"role": "user", "content": "So?"},
    ]

    assert template(BLIND_TO_RESULTS).render(chat) == f"tool: drawn\nuser: {RESULT}<image>\nuser: So?\n"


def test_a_template_that_shows_nothing_is_refused() -> None:
    with pytest.raises(EngineError, match="leaves out the text"):
        template("{% for m in messages %}{{ m.role }}{% endfor %}")


def test_a_template_that_fails_for_every_message_is_refused_with_its_error() -> None:
    with pytest.raises(EngineError, match=r"chat template fails: .*no_such_name"):
        template("{{ no_such_name.text }}")
