"""Tests redaction: keys are removed and all other text stays; hostile text and hostile patterns cost little time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.sessions.export.import_export import import_session
from agent_kernel.sessions.redaction import redaction
from agent_kernel.sessions.redaction.redaction import MAX_CHARS, PATTERNS, WITHHELD, Pattern, Redactor
from agent_kernel.sessions.store.memory import MemoryStore

REDACTOR = Redactor()
# Parts are joined here, so that no file holds what looks like a key.
BODY = "abcdEFGH0123ijklMNOP4567qrstUVWX89yz"
SECRETS = {
    "openai_key": "sk-" + "proj-" + BODY,
    "anthropic_key": "sk-" + "ant-api03-" + BODY,
    "github_token": "ghp" + "_" + BODY,
    "huggingface_token": "hf" + "_" + BODY,
    "agent_kernel_token": "ak" + "_0123456789ab_" + "0123456789abcdef" * 4,
    "aws_access_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "google_key": "AIza" + BODY[:35],
    "slack_token": "xoxb" + "-1234567890-" + BODY,
    "jwt": "eyJ" + BODY + ".eyJ" + BODY + "." + BODY,
    "private_key": "-----BEGIN RSA " + "PRIVATE KEY-----\n" + f"{BODY}\n" * 20 + "-----END RSA PRIVATE KEY-----",
}
INSIDE = {
    "url_password": ("postgres://me:", "hunter2", "@host/db"),
    "bearer_token": ("Authorization: Bearer ", BODY, "\n"),
    "aws_secret_key": ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY", "\n"),
    "labelled_secret": ('{"api_key": "', "0123456789abcdef" * 2, '"}'),
    "slack_webhook": ("https://hooks.slack.com/services/", "T00000000/B00000000/" + "X" * 24, " "),
}

BEGINNINGS = ("token", "sk-", "ak_", "aws", "://", "a", "wo", " ", "eyJ", "-----BEGIN ", "passw", "x", "\n", "A0" * 10)


@pytest.mark.parametrize("label", SECRETS)
def test_a_key_of_a_known_shape_is_replaced_by_its_label(label: str) -> None:
    assert REDACTOR.text(f"use {SECRETS[label]} now") == f"use [REDACTED:{label}] now"


@pytest.mark.parametrize("label", INSIDE)
def test_of_what_names_a_secret_only_the_secret_goes(label: str) -> None:
    before, secret, after = INSIDE[label]
    assert REDACTOR.text(before + secret + after) == f"{before}[REDACTED:{label}]{after}"


@pytest.mark.parametrize(
    "text",
    [
        "commit 0123456789abcdef0123456789abcdef01234567",
        "sk-learn and task-management-and-more-words",
        "see https://example.org:8080/path?q=1 and user@example.org",
        "risk-" + BODY,
        "the bearer of bad news",
        "max_tokens = 4096",
        "a key: value pair, a token: none, password = getpass()",
    ],
)
def test_what_only_looks_a_little_like_one_stays(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_a_message_loses_keys_everywhere_and_keeps_the_rest() -> None:
    key, picture = SECRETS["openai_key"], Media.of("image/png", b"png")
    call = ToolCall("c1", "python", {"code": f"login('{key}')", "n": [1, {"deep": key}], key: True})
    said = REDACTOR.message(assistant(f"with {key}", [call], reasoning=f"they gave me {key}"))
    assert key not in str(said.to_json())
    assert said.calls[0].arguments["n"][0] == 1
    assert REDACTOR.message(user("look", [picture])) == user("look", [picture])
    result = REDACTOR.message(tool_result(call, f"printed {key}", "success"))
    assert (result.text, result.call_id, result.status) == ("printed [REDACTED:openai_key]", "c1", "success")


def test_a_value_is_a_secret_by_the_name_it_stands_under() -> None:
    assert REDACTOR.value({"token": "0123456789abcdef" * 2}) == {"token": "[REDACTED:labelled_secret]"}


def test_redaction_that_is_off_changes_nothing() -> None:
    said = user(SECRETS["openai_key"])
    assert Redactor.off().message(said) is said


def test_patterns_of_a_person_come_after_the_built_in_ones() -> None:
    own = Redactor(extra={"employee": r"\bE\d{6}\b", "room": r"room (?P<secret>\d+)"})
    assert own.text("E123456 sits in room 12") == "[REDACTED:employee] sits in room [REDACTED:room]"


@pytest.mark.parametrize("pattern", ["(", "a" * 5000, "x*", "(?P<secret>"])
def test_a_pattern_that_makes_no_sense_is_refused_by_its_label(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="'mine'"):
        Redactor(extra={"mine": pattern})


def test_a_pattern_that_takes_too_long_withholds_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "TIMEOUT_S", 0.02)
    assert Redactor((), extra={"slow": r"(?:a|aa)+(?:b|bb)+$"}).text("a" * 5000 + "c") == WITHHELD


HOSTILE = ["-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "sk-", "sk-ant-", "eyJaaaaaaaaa.", "://", "a://a:", "token="]
HOSTILE += ["key", "aws secret ", "bearer ", "gh", "AKIA", "password: '", "hooks.slack.com/services/", "\\", "=", "\n"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_costs_time_in_proportion_to_its_length(piece: str) -> None:
    def cost(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        started = time.process_time()
        REDACTOR.text(text)
        REDACTOR.held_from(text)
        return time.process_time() - started

    short = min(cost(3_000) for _ in range(3))
    assert min(cost(30_000) for _ in range(3)) < 40 * max(short, 0.0005)


@pytest.mark.parametrize("before", [MAX_CHARS - 60, MAX_CHARS - 10, MAX_CHARS, 2 * MAX_CHARS - 30])
def test_a_long_text_is_checked_in_pieces_and_a_key_across_two_is_found(before: int) -> None:
    key = "sk-" + "a1B2" * 12
    text = "x " * (before // 2) + f" {key} " + "y " * 1000

    assert REDACTOR.text(text) == text.replace(key, REDACTOR.text(key))
    assert key not in REDACTOR.text(text)


@given(st.text(max_size=200))
def test_any_text_can_be_cleaned_and_what_is_clean_stays_so(text: str) -> None:
    clean = REDACTOR.text(text)
    assert REDACTOR.text(clean) == clean


async def test_what_is_imported_is_clean_too() -> None:
    key = SECRETS["openai_key"]
    document = json.dumps({"messages": [{"role": "user", "content": key}, {"role": "assistant", "content": "ok"}]})
    store = MemoryStore()
    made = await import_session(store, "local", document.encode(), redactor=REDACTOR)
    assert (await store.latest(made.session.key))[0].message.text == "[REDACTED:openai_key]"
    kept = await import_session(store, "local", document.encode())
    assert (await store.latest(kept.session.key))[0].message.text == key
    await store.aclose()


@pytest.mark.parametrize("text", [*SECRETS.values(), *map("".join, INSIDE.values())])
def test_the_quick_look_overlooks_no_beginning(text: str) -> None:
    slow = Redactor([*PATTERNS])
    ends = range(1, min(len(text), 200) + 1)
    assert [REDACTOR.held_from(text[:end]) for end in ends] == [slow.held_from(text[:end]) for end in ends]


@given(st.lists(st.sampled_from(BEGINNINGS), max_size=9).map("".join))
def test_a_beginning_that_is_long_enough_to_be_held_back_is_never_overlooked(text: str) -> None:
    first = REDACTOR.held_from(text)
    assert REDACTOR.held_from(text, 4) == first or len(text) - first < 4


@given(st.lists(st.sampled_from([*BEGINNINGS, *SECRETS.values()]), max_size=9).map("".join))
def test_a_text_that_one_search_finds_clean_has_no_secret_and_nothing_to_hold_back(text: str) -> None:
    if REDACTOR.is_clean(text, 4):
        assert REDACTOR.text(text) == text
        assert len(text) - REDACTOR.held_from(text, 4) < 4


def test_no_text_is_found_clean_by_one_search_if_there_are_further_patterns() -> None:
    assert REDACTOR.is_clean("id123456", 4)
    assert not Redactor(extra={"badge": "id[0-9]{6}"}).is_clean("id123456", 4)
    assert not Redactor((*PATTERNS, Pattern("plate", "[A-Z]{2}-[0-9]{4}"))).is_clean("plain words", 4)


def test_a_pattern_without_hints_is_searched_in_every_text() -> None:
    redactor = Redactor((*PATTERNS, Pattern("plate", "[A-Z]{2}-[0-9]{4}")), {"badge": "id[0-9]{6}"})
    assert redactor.text("car AB-1234 of id123456") == "car [REDACTED:plate] of [REDACTED:badge]"
