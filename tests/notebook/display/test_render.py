"""Tests what a cell displays of a tool call."""

from __future__ import annotations

from agent_kernel.notebook.display.render import Card


def test_a_card_whose_output_has_half_of_a_surrogate_pair_can_be_sent() -> None:
    card = Card("c", "python", "live", "print(name)")
    card.add("caf\udce9.csv \ud800 größe")
    assert card.output == "caf?.csv ? größe"
