"""Tests what a cell displays of a tool call."""

from __future__ import annotations

from typing import Any

from agent_kernel.notebook.display.render import Card
from agent_kernel.notebook.display.screen import CellScreen


def test_a_card_whose_output_has_half_of_a_surrogate_pair_can_be_sent() -> None:
    card = Card("c", "python", "live", "print(name)")
    card.add("caf\udce9.csv \ud800 größe")
    assert card.output == "caf?.csv ? größe"


def test_a_correction_is_shown_in_place_of_the_failed_call_which_is_folded_in_it() -> None:
    published: list[tuple[str, bool]] = []

    class Publisher:
        def publish(self, data: Any, metadata: Any, *, transient: Any, update: bool) -> None:
            published.append((transient["display_id"], update))

    screen = CellScreen(Publisher())
    failed = Card("c", "python", "draft", "t['a']", output="Traceback\nKeyError: 'a'")
    failed.close("failed", 0.1)
    screen.card(failed)
    card = Card("c-fix", "python", "draft", "t['A']", corrects=failed)
    card.close("done", 0.2)
    screen.card(card)
    assert [update for _, update in published] == [False, True]
    assert len({display for display, _ in published}) == 1
    shown = card.bundle()
    assert "done, 0.20 s · corrected" in shown["text/plain"]
    assert "Corrected without the model after KeyError: 'a'" in shown["text/plain"]
    assert shown["text/html"].index("<details") < shown["text/html"].index("t[&#x27;a&#x27;]")
    assert "failed" not in shown["text/plain"]
