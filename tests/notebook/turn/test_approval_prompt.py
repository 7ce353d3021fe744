from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent_kernel.core.events import ApprovalRequired
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.turn.approval_prompt import ApprovalPrompt
from agent_kernel.notebook.turn.session_permissions import Consent

LIVE = ApprovalRequired("a", "c", "python", "python.live", "live", "1", {"code": "1"}, remember=("session", "never"))
SEARCH = ApprovalRequired("a", "c", "web_search", "web", "server", "q", {"query": "q"}, remember=("session", "never"))
PATH = ApprovalRequired(
    *("a", "c", "path", "path", "sandbox", "read /data/a.csv"),
    {"path": "/data/a.csv", "access": "read"},
    remember=("session", "folder", "never"),
)


class Typist(Person):
    """A user who types these answers and does not answer further questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Sequence[str], *, there: bool = True) -> None:
        super().__init__(None)
        self.there = there
        self.front_end = True
        self.asked: list[str] = []
        left = list(answers)

        def type_it(question: str) -> str:
            self.asked.append(question)
            return left.pop(0)

        monkeypatch.setattr(builtins, "input", type_it)

    @property
    def is_there(self) -> bool:
        return self.there

    @property
    def has_front_end(self) -> bool:
        return self.front_end


class Asked:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.consent = Consent()
        self.shown: list[str] = []

    def __call__(self, asked: ApprovalRequired, *answers: str, there: bool = True, session: str = "s") -> str:
        self.person = Typist(self._monkeypatch, answers, there=there)
        return ApprovalPrompt(self.person, self.consent, session).decision(asked, self.shown.append)[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize(("typed", "decision"), [("y", "approve"), ("n", "deny"), ("no", "deny"), ("YES", "approve")])
def test_a_person_is_asked_each_time_while_they_answer_for_one_call(asked: Asked, typed: str, decision: str) -> None:
    for _ in range(2):
        assert asked(LIVE, typed) == decision
        assert asked.person.asked == ["Run this in your kernel? [y]es / [n]o / [s]ession / never: "]


def test_code_can_be_edited_in_the_panel_where_there_is_one(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    editable = replace(LIVE, editable="code")
    assert asked(editable, "e") == "edit"
    assert asked.person.asked == ["Run this in your kernel? [y]es / [n]o / [e]dit in the panel / [s]ession / never: "]
    assert asked(LIVE, "e", "n") == "deny"
    terminal = Typist(monkeypatch, ["y"])
    terminal.front_end = False
    assert ApprovalPrompt(terminal, asked.consent, "s").decision(editable, asked.shown.append)[0] == "approve"
    assert "edit" not in terminal.asked[0]


def test_yes_for_the_session_holds_for_that_tool_in_that_session(asked: Asked) -> None:
    assert asked(SEARCH, "s") == "approve"
    assert asked(SEARCH) == "approve"
    assert asked(replace(SEARCH, name="fetch_page"), "n") == "deny"
    assert asked(SEARCH, "n", session="other") == "deny"
    assert asked(LIVE, "n") == "deny"


def test_never_is_a_no_that_is_not_asked_again(asked: Asked) -> None:
    assert asked(SEARCH, "never") == "deny"
    assert asked(SEARCH) == "deny"
    assert asked(LIVE, "y") == "approve"


def test_what_was_allowed_is_asked_again_after_words_of_strangers(asked: Asked) -> None:
    asked.consent.allow("s")
    assert asked(LIVE) == "approve"
    again = replace(LIVE, again="fetch_page brought text", remember=("never",))
    assert asked(again, "s", "s", "s") == "deny", "there is no such answer to it"
    assert asked.person.asked == ["Run this in your kernel? [y]es / [n]o / never: "] * 3
    assert asked.shown[-1] == "waiting for your answer, again: fetch_page brought text"
    assert asked(again, there=False) == "deny"


def test_a_folder_may_be_opened_and_nothing_beside_it(asked: Asked) -> None:
    assert asked(PATH, "f") == "approve"
    assert asked.person.asked == [
        "Let the agent do this? [y]es / [n]o / [s]ession / [f]older for this session / never: "
    ]

    def at(path: str, access: str = "read") -> ApprovalRequired:
        return replace(PATH, arguments={"path": path, "access": access})

    assert asked(at("/data/b/c.csv")) == "approve"
    assert asked(at("/database/a.csv"), "n") == "deny"
    assert asked(at("/data/a.csv", "write"), "n") == "deny"


def test_in_a_turn_that_asks_for_everything_no_yes_of_before_counts_and_every_no_does(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.consent.allow("s")
    asked.consent.refuse("s", "web")
    person = Typist(monkeypatch, ["n"])
    asking = ApprovalPrompt(person, asked.consent, "s", remembered=False)
    assert [asking.decision(question, asked.shown.append)[0] for question in (LIVE, SEARCH)] == ["deny", "deny"]
    assert len(person.asked) == 1


def test_what_is_decided_already_needs_nobody(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Typist(monkeypatch, [], there=False)
    asking = ApprovalPrompt(person, asked.consent, "s", frozenset({"notebook.edit"}))
    edit = replace(SEARCH, name="edit_cell", kind="notebook.edit")
    assert asking.find_decision(edit) == ("approve", "the person asked for it in this cell")
    assert asking.find_decision(replace(edit, again="words of strangers")) is None
    assert asking.find_decision(SEARCH) is None
    asked.consent.allow("s", "web")
    assert (asking.find_decision(SEARCH) or ("",))[0] == "approve"
    asked.consent.refuse("s", "web", "web_search")
    assert (asking.find_decision(SEARCH) or ("",))[0] == "deny"
    assert person.asked == []


def test_what_was_refused_can_be_allowed_again_and_the_other_way_round() -> None:
    consent = Consent()
    consent.allow("s", "web", "web_search")
    consent.refuse("s", "web")
    assert (consent.allows("s", "web", "web_search"), consent.list_refused("s")) == (False, {"web"})
    consent.allow("s", "web")
    assert (consent.refuses("s", "web", "web_search"), consent.list_refused("s")) == (False, set())
    consent.refuse("s", "web", "fetch_page")
    assert consent.rows("s") == [("web", "fetch_page", "refused")]
    consent.withdraw("s")
    assert consent.refuses("s", "web", "fetch_page"), "a no stays"
