"""Tests words, texts and snippets, without a store."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.messages import Media, Message, Text, assistant, system, user
from agent_kernel.core.session import SNIPPET_CHARS, SessionQuery
from agent_kernel.sessions.search.text_matching import (
    MAX_WORDS,
    cut_snippet,
    fold_text,
    message_text,
    search_words,
    weigh_messages,
)

TEXTS = st.text(st.characters() | st.sampled_from("aAßẞſİıﬁÉé\u0301 \n\0\ud800石"), max_size=400)


def test_words_are_different_and_folded() -> None:
    assert search_words(SessionQuery("Quartz  QUARTZ\tbéryl\nBÉRYL")) == ("quartz", "béryl")


def test_so_many_words_count() -> None:
    assert search_words(SessionQuery(" ".join(f"w{number}" for number in range(100)))) == tuple(
        f"w{n}" for n in range(MAX_WORDS)
    )


@pytest.mark.parametrize(
    ("message", "searched"),
    [
        (user("hello"), "hello"),
        (assistant("hello", reasoning="thought"), "hello"),
        (Message("user", (Text("see "), Media.of("image/png", b"x"), Text("this"))), "see this"),
        (user("note", hidden=True), ""),
        (system("rules"), ""),
        (Message("tool", (Text("result"),), call_id="c"), ""),
    ],
)
def test_what_of_a_message_is_searched(message: Message, searched: str) -> None:
    assert message_text(message) == searched


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_a_text_in_its_comparable_form_can_be_kept_and_compared_again(text: str) -> None:
    folded = fold_text(text)
    folded.encode()
    assert "\0" not in folded
    assert fold_text(text.upper().lower()) == fold_text(text.upper().lower().casefold())


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.text(max_size=5), TEXTS)
def test_a_snippet_shows_the_word_wherever_it_is(before: str, word: str, after: str) -> None:
    wanted = search_words(SessionQuery(f"topaz{word}"))[:1]
    text = f"{before} Topaz{word} {after}"
    shown = cut_snippet(text, wanted)
    assert len(shown) <= SNIPPET_CHARS
    assert "\n" not in shown
    if wanted[0] in fold_text(" ".join(text.split())) and wanted[0].isprintable():
        assert "topaz" in fold_text(shown)


def test_a_snippet_of_a_long_text_says_what_it_leaves_out() -> None:
    shown = cut_snippet("x " * 300 + "topaz" + " y" * 300, ["topaz"])
    assert shown[0] == shown[-1] == "…"
    assert len(shown) == SNIPPET_CHARS
    assert shown.index("topaz") == SNIPPET_CHARS // 4
    assert cut_snippet("topaz" + " y" * 300, ["topaz"]).startswith("topaz")
    assert cut_snippet("x " * 300 + "topaz", ["topaz"]).endswith("topaz")


def test_a_snippet_does_nothing_to_a_terminal() -> None:
    assert cut_snippet("\x1b[2Jtopaz\x07\x9b31m", ["topaz"]) == "[2Jtopaz 31m"


def test_a_message_counts_one_and_less_than_one_more() -> None:
    counted = weigh_messages({"common": {1, 2, 3, 4}, "rare": {4, 5}})
    assert 1 < counted[1] == counted[2] < counted[5] < counted[4] < 2
    assert weigh_messages({"absent": set()}) == {}
    assert len(set(weigh_messages({"common": {1, 2}, "absent": set()}).values())) == 1
