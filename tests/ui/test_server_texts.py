"""The panel recognises sentences of the server by their text. The server writes each one that the panel translates, or
has it from the panel: the reason for which a message was taken back."""

from __future__ import annotations

import ast
import errno
import os
import re

import pytest

from agent_kernel.notebook.magic.fix_explain_improve import EXPLAIN, EXPLAIN_FAILED, FIX, IMPROVE, MAKES
from agent_kernel.sandbox.host.policy import LAYERS, SandboxPolicy
from agent_kernel.sandbox.host.pool import RESTARTED
from agent_kernel.tools.code.python import NO_DRAFT
from agent_kernel.tools.code.rebuild_variables import ELSEWHERE
from agent_kernel.tools.notebook.notebook_tools import NO_PAGE
from agent_kernel.tools.web.web_tools import MISSING
from agent_kernel.turn.post_turn_tasks import FAILED, SUMMARISED
from jupyter_ext.api.native.binding import CLEARED
from jupyter_ext.notebooks.sidecar_import import FoundSidecar, sidecar_note
from jupyter_ext.notebooks.sidecar_writer import NOT_SAVED
from jupyter_ext.turns.stored_events import GONE
from tests.test_layers import ROOT

PANEL = ROOT / "ui/src/turn/serverTexts.ts"
SENTENCE = re.compile(r'case "([^"]+ [^"]+)":')
REASONS = ROOT / "ui/src/conversation/outgoingMessages.ts"
REASON = re.compile(r'^const TAKEN_BACK = "(.+)";$', re.MULTILINE)


def test_each_sentence_of_the_server_that_the_panel_translates_is_one_that_the_server_writes() -> None:
    sentences = set(SENTENCE.findall(PANEL.read_text("utf-8")))
    assert len(sentences) >= 10
    sources = [
        path.read_text("utf-8") for part in ("agent_kernel", "jupyter_ext") for path in (ROOT / part).rglob("*.py")
    ]
    holding = [source for source in sources if any(sentence in source for sentence in sentences)]
    written = {
        node.value
        for source in holding
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    written |= {os.strerror(number) for number in errno.errorcode}
    written |= set(REASON.findall(REASONS.read_text("utf-8")))
    assert sentences - written == set()


TEMPLATE = re.compile(r"/(\^.+\$)/,")
WRITTEN = (
    SUMMARISED.format(reason="too long"),
    FAILED.format(times=3),
    NO_DRAFT.format(reason="drafts need Linux"),
    MISSING.format(names="a and b"),
    NO_PAGE.format(reason="closed"),
    RESTARTED.format(why="it was reset"),
    NOT_SAVED.format(name="a.ipynb", reason="File name too long"),
    SandboxPolicy().less({LAYERS[0]: {"active": False, "detail": "no kernel support"}}),
    sidecar_note(FoundSidecar("unreadable"), "a.agent.json"),
    CLEARED.format(cells=2),
    ELSEWHERE,
)
"""Sentences with values, as the server writes them."""


@pytest.mark.parametrize("sentence", WRITTEN)
def test_the_panel_recognises_a_sentence_with_values(sentence: str) -> None:
    templates = TEMPLATE.findall(PANEL.read_text("utf-8"))
    assert len(templates) >= 12
    assert [bool(re.match(template, sentence)) for template in templates].count(True) == 1


def test_each_prompt_about_a_cell_is_one_that_the_panel_shows_as_a_sentence_for_people() -> None:
    shown = (ROOT / "ui/tests/turn/askedText.test.ts").read_text("utf-8")
    error = "NameError: x"
    prompts = [template.format(number=2, error=error) for template in (FIX, EXPLAIN, EXPLAIN_FAILED, IMPROVE)]
    assert [prompt for prompt in [*prompts, MAKES.format(names="total")] if prompt not in shown] == []


def test_the_panel_recognises_what_a_server_says_about_live_events_that_it_does_not_have() -> None:
    assert f'"{GONE}"' in (ROOT / "ui/src/turn/turn.ts").read_text("utf-8")
