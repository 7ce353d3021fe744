"""Tests API tokens: they are hashed, scoped, expire, and stop working at once when revoked."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.api_tokens import DAY_S, SCOPES, ApiTokenStore, looks_like_token
from agent_kernel.core.errors import InvalidRequest, NotFound, StoreFull, TokenInvalid


@pytest.fixture
def tokens(tmp_path: Path) -> ApiTokenStore:
    return ApiTokenStore(tmp_path / "data" / "tokens")


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "data" / "tokens").iterdir())


def change_document(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_a_token_is_known_by_its_text_which_is_kept_nowhere(tokens: ApiTokenStore, tmp_path: Path) -> None:
    token, text = tokens.new(["turns"], days=3, name="app", user="ada")
    assert looks_like_token(text)
    held = tokens.holder(text)
    assert held == token
    assert (held.name, held.scopes, held.user) == ("app", frozenset({"turns"}), "ada")
    assert held.expires == pytest.approx(time.time() + 3 * DAY_S, abs=60)
    (path,) = files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    secret = text.rpartition("_")[2]
    assert secret not in path.read_text()
    assert len(bytes.fromhex(secret)) == 32


def test_every_token_is_another(tokens: ApiTokenStore) -> None:
    made = [tokens.new(["turns"])[1] for _ in range(20)]
    assert len({text.split("_")[1] for text in made}) == len({text.split("_")[2] for text in made}) == 20
    assert len(tokens.list_tokens()) == 20


@pytest.mark.parametrize(
    "wrong",
    [
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text.upper().replace("AK_", "ak_"),
        lambda text: "ak_" + "0" * 12 + text[15:],
        lambda text: "ak_../../../x_" + text[-64:],
        lambda text: "",
    ],
)
def test_what_is_not_exactly_the_token_opens_nothing(tokens: ApiTokenStore, wrong: Any) -> None:
    _, text = tokens.new(["all"])
    with pytest.raises(TokenInvalid) as caught:
        tokens.holder(wrong(text))
    assert text[-20:] not in str(caught.value)


def test_the_secret_of_one_token_does_not_open_another(tokens: ApiTokenStore) -> None:
    (_, first), (_, second) = tokens.new(["turns"]), tokens.new(["all"])
    with pytest.raises(TokenInvalid):
        tokens.holder(second[:16] + first[16:])


def test_a_revoked_token_counts_no_longer_for_whoever_looks(tokens: ApiTokenStore, tmp_path: Path) -> None:
    token, text = tokens.new(["turns"])
    other = ApiTokenStore(tmp_path / "data" / "tokens")
    assert other.holder(text) == token
    tokens.revoke(token.id)
    assert not other.is_valid(token)
    with pytest.raises(TokenInvalid):
        other.holder(text)
    with pytest.raises(NotFound):
        tokens.revoke(token.id)
    with pytest.raises(NotFound):
        tokens.revoke("../trusted")


def test_a_token_ends_on_its_day(tokens: ApiTokenStore, tmp_path: Path) -> None:
    token, text = tokens.new(["turns"])
    change_document(files(tmp_path)[0], expires=time.time() - 1)
    with pytest.raises(TokenInvalid, match="expired on"):
        tokens.holder(text)
    assert [listed.is_expired for listed in tokens.list_tokens()] == [True]
    with pytest.raises(
        TokenInvalid, match="unknown or was revoked"
    ):  # only who has the secret hears that there was one
        tokens.holder(text[:-8] + "00000000")
    tokens.revoke(token.id)


def test_the_day_of_its_last_use_is_noted_once_a_day(tokens: ApiTokenStore, tmp_path: Path) -> None:
    _, text = tokens.new(["turns"])
    assert [token.used for token in tokens.list_tokens()] == [0]
    tokens.holder(text)
    (path,) = files(tmp_path)
    first = path.stat().st_mtime_ns
    assert tokens.list_tokens()[0].used == pytest.approx(time.time(), abs=60)
    tokens.holder(text)
    assert path.stat().st_mtime_ns == first
    os.utime(path, (0, time.time() - 3 * DAY_S))
    tokens.holder(text)
    assert tokens.list_tokens()[0].used == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sha256": ""}', '{"sha256": 1, "scopes": 1}'])
def test_a_broken_file_opens_nothing_and_hinders_no_other(tokens: ApiTokenStore, tmp_path: Path, content: str) -> None:
    token, text = tokens.new(["all"])
    _, whole = tokens.new(["turns"])
    (tmp_path / "data" / "tokens" / f"{token.id}.json").write_text(content)
    with pytest.raises(TokenInvalid):
        tokens.holder(text)
    assert tokens.holder(whole).scopes
    assert len(tokens.list_tokens()) == 1
    tokens.revoke(token.id)


def test_a_scope_that_this_version_does_not_know_opens_nothing(tokens: ApiTokenStore, tmp_path: Path) -> None:
    _, text = tokens.new(["turns"])
    change_document(files(tmp_path)[0], scopes=["later"])
    assert tokens.holder(text).scopes == frozenset()
    assert not tokens.holder(text).has_any_scope(SCOPES)


def test_on_a_full_disk_none_is_made_the_others_stay_and_can_be_revoked(
    tokens: ApiTokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, text = tokens.new(["turns"])

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreFull):
            tokens.new(["turns"])
        assert [path.name for path in files(tmp_path)] == [f"{token.id}.json"]
        assert tokens.holder(text) == token
        tokens.revoke(token.id)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "wish",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"days": 0},
        {"days": -1},
        {"days": 100_000},
        {"name": "../x"},
        {"name": "a b"},
        {"name": "x" * 65},
        {"user": "a\nb"},
        {"user": "ada/tokens/app"},
        {"user": "x" * 600},
    ],
)
def test_what_makes_no_token_is_refused_before_anything_is_kept(tokens: ApiTokenStore, wish: dict[str, Any]) -> None:
    scopes = wish.pop("scopes", ["turns"])
    with pytest.raises(InvalidRequest):
        tokens.new(scopes, **wish)
    assert tokens.list_tokens() == []


def test_without_the_scope_sessions_a_token_lives_in_a_namespace_of_its_own(tokens: ApiTokenStore) -> None:
    turns, _ = tokens.new(["turns", "files"], name="app")
    follower, _ = tokens.new(["turns"], name="app")
    nameless, _ = tokens.new(["turns"])
    reader, _ = tokens.new(["sessions"], name="app")
    everything, _ = tokens.new(["all"], user="ada")
    assert turns.namespace("local") == follower.namespace("local") == "local/tokens/app"
    assert nameless.namespace("local") == f"local/tokens/{nameless.id}"
    assert reader.namespace("local") == "local"
    assert everything.namespace("local") == "ada"
    assert tokens.new(["turns"], name="app", user="ada")[0].namespace("local") == "ada/tokens/app"
