"""The panel recognises sentences of the server by their text; the server writes each one that the panel translates."""

from __future__ import annotations

import ast
import re

from agent_kernel.notebook.magic.fix_explain_improve import EXPLAIN, EXPLAIN_FAILED, FIX, IMPROVE, MAKES
from tests.test_layers import ROOT

PANEL = ROOT / "ui/src/turn/serverTexts.ts"
SENTENCE = re.compile(r'case "([^"]+ [^"]+)":')


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
    assert sentences - written == set()


def test_each_prompt_about_a_cell_is_one_that_the_panel_shows_as_a_sentence_for_people() -> None:
    shown = (ROOT / "ui/tests/turn/askedText.test.ts").read_text("utf-8")
    error = "NameError: x"
    prompts = [template.format(number=2, error=error) for template in (FIX, EXPLAIN, EXPLAIN_FAILED, IMPROVE)]
    assert [prompt for prompt in [*prompts, MAKES.format(names="total")] if prompt not in shown] == []
