"""Tests ``agent-kernel token`` as users and scripts call it."""

from __future__ import annotations

import pytest

from agent_kernel.core.api_tokens import ApiTokenStore
from tests.cli.conftest import Command


def test_a_token_is_made_listed_and_revoked(command: Command) -> None:
    made = command(
        "token", "new", "--scope", "turns", "--scope", "files", "--days", "7", "--name", "app", "--json"
    ).json
    tokens = ApiTokenStore(command.data / "tokens")
    assert tokens.holder(made["token"]).scopes == {"turns", "files"}
    (row,) = command("token", "list", "--json").json
    assert row == {**{name: value for name, value in made.items() if name != "token"}, "used": row["used"]}
    assert (row["state"], row["used"] > 0) == ("valid", True)
    table = command("token", "list").out
    assert made["id"] in table
    assert "files, turns" in table
    assert made["token"][-20:] not in table
    assert command("token", "revoke", made["id"]).out == f"{made['id']} (app) was revoked.\n"
    assert command("token", "list", "--json").json == []
    again = command("token", "revoke", made["id"])
    assert (again.status, again.err.count("\n")) == (1, 1)


def test_alone_on_stdout_the_token_goes_into_a_variable(command: Command) -> None:
    made = command("token", "new")
    assert ApiTokenStore(command.data / "tokens").holder(made.out.strip()).scopes == {"turns"}
    assert "is valid until" in made.err


def test_an_empty_user_of_an_unset_variable_makes_no_token_of_the_servers_own_user(command: Command) -> None:
    refused = command("token", "new", "--user", "")
    assert (refused.status, refused.out) == (1, "")
    assert "The name of the user is empty. Omit --user" in refused.err
    assert command("token", "list", "--json").json == []


def test_what_makes_no_sense_is_told_in_one_line(command: Command) -> None:
    assert command("token", "new", "--days", "0").status == 1
    assert command("token", "new", "--user", "a\nb").status == 1
    with pytest.raises(SystemExit) as ended:
        command("token", "new", "--scope", "root")
    assert ended.value.code == 2
    assert command("token", "list", "--json").json == []
