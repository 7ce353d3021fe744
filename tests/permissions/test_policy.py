from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.settings import Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions import DEFAULTS, AdminPolicy, Policy, admin_policy, strictest
from agent_kernel.permissions.admin_policy import policy_paths
from agent_kernel.permissions.gate import STRICTNESS
from agent_kernel.turn.server_runtime import Runtime

SEARCH = ToolSpec("mcp_docs_search", "", {}, kind="mcp", source="mcp")


def write_policy(directory: Path, text: str) -> AdminPolicy:
    path = directory / "policy.toml"
    path.write_text(text)
    return AdminPolicy.read([path])


@pytest.mark.parametrize(("server", "request_"), [*itertools.product(STRICTNESS, STRICTNESS)])
@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_strictest_of_default_server_and_request_holds(kind: str, server: str, request_: str) -> None:
    ruling = Policy(server).ruling(ToolSpec("t", "", {}, kind=kind), request_)  # type: ignore[arg-type]  # of STRICTNESS
    assert ruling.permission == strictest(DEFAULTS[kind], server, request_)  # type: ignore[arg-type]
    assert not ruling.firm


def test_the_setting_policy_makes_a_kind_or_a_name_freer_or_stricter() -> None:
    own = Policy(own={"mcp": "deny", "mcp_docs_search": "auto", "shell": "ask"})
    assert own.ruling(SEARCH).permission == "auto"
    assert own.ruling(SEARCH).because == "the setting policy for mcp_docs_search"
    assert own.ruling(ToolSpec("mcp_other", "", {}, kind="mcp")).permission == "deny"
    assert own.ruling(ToolSpec("shell", "", {}, kind="shell")).permission == "ask"
    assert own.ruling(ToolSpec("x", "", {}, kind="web")).because == "the defaults"


def test_the_name_that_a_client_gives_its_tool_makes_nothing_freer() -> None:
    own = Policy(own={"weather": "auto", "mine": "deny"})
    assert own.ruling(ToolSpec("weather", "", {}, kind="mcp", source="mcp")).permission == "auto"
    assert own.ruling(ToolSpec("weather", "", {}, kind="dispatch", source="external")).permission == "ask"
    assert own.ruling(ToolSpec("mine", "", {}, kind="dispatch", source="external")).permission == "deny"


def test_a_tool_that_is_called_as_a_kind_is_not_that_kind() -> None:
    own = Policy(own={"sessions.read": "auto", "shell": "auto"})
    assert own.ruling(ToolSpec("shell", "", {}, kind="mcp", source="mcp")).permission == "ask"


@pytest.mark.parametrize("said", STRICTNESS)
@pytest.mark.parametrize("kind", ["shell", "python.live", "rocket.launch"])
def test_nothing_weakens_the_administrator(tmp_path: Path, kind: str, said: str) -> None:
    floor = write_policy(tmp_path, f'[policy]\n"{kind}" = "{said}"\n')
    for server, request_, own in itertools.product(STRICTNESS, STRICTNESS, STRICTNESS):
        policy = Policy(server, {kind: own, "t": own}, floor)
        ruling = policy.ruling(ToolSpec("t", "", {}, kind=kind), request_)
        assert STRICTNESS.index(ruling.permission) >= STRICTNESS.index(said)
        assert ruling.firm is (said == "ask")


def test_an_administrator_speaks_of_kinds_of_names_and_of_everything(tmp_path: Path) -> None:
    said = write_policy(tmp_path, 'permission = "ask"\n[policy]\npython.live = "deny"\nmcp_docs_search = "deny"\n')
    policy = Policy(admin=said)
    assert policy.ruling(ToolSpec("python", "", {}, kind="python.live")).permission == "deny"
    assert policy.ruling(SEARCH).permission == "deny"
    other = policy.ruling(ToolSpec("shell", "", {}, kind="shell"))
    assert (other.permission, other.because, other.firm) == ("ask", f"the administrator ({tmp_path}/policy.toml)", True)


@pytest.mark.parametrize(
    "text",
    [
        "permission = 'perhaps'",
        "permission = 3",
        "policy = 'deny'",
        "[policy]\nshell = 'no'",
        "[policy]\nshell = ['deny']",
        "[polcy]\nshell = 'deny'",
        "not toml",
        "x" * (2 << 20),
        "[policy]\n" + "a." * 3000 + "b = 'deny'",
    ],
)
def test_a_policy_that_can_not_be_understood_stops_the_server(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"policy\.toml cannot be used"):
        write_policy(tmp_path, text)


def test_a_policy_that_can_not_be_read_stops_the_server(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").mkdir()
    with pytest.raises(InvalidRequest, match="cannot be used"):
        AdminPolicy.read([tmp_path / "policy.toml"])


def test_where_nobody_wrote_a_policy_nobody_speaks(tmp_path: Path) -> None:
    assert AdminPolicy.read([tmp_path / "none.toml", tmp_path / "none" / "policy.toml"]).files == ()


def test_several_files_add_up(tmp_path: Path) -> None:
    for name, text in (("a", '[policy]\nweb = "ask"\n'), ("b", '[policy]\nweb = "deny"\nmcp = "deny"\n')):
        (tmp_path / name).write_text(text)
    said = AdminPolicy.read([tmp_path / "b", tmp_path / "a"])
    policy = Policy(admin=said)
    rulings = {kind: policy.ruling(ToolSpec("t", "", {}, kind=kind)) for kind in ("web", "mcp", "shell")}
    assert {kind: ruling.permission for kind, ruling in rulings.items()} == {
        "web": "deny",
        "mcp": "deny",
        "shell": "auto",
    }


def test_no_variable_moves_the_places_of_the_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    before = policy_paths()
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_CONFIG_DIR", "XDG_CONFIG_DIRS", "AGENT_KERNEL_POLICY", "HOME"):
        monkeypatch.setenv(name, "/tmp")
    assert policy_paths() == before == tuple(map(Path, before))
    assert Path("/etc/agent-kernel/policy.toml") in before


def test_a_file_that_this_user_could_write_holds_but_does_not_bind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) == tmp_path)
    (file,) = write_policy(tmp_path, 'permission = "deny"').files
    assert (file.permission, file.binding) == ("deny", False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (file,) = write_policy(tmp_path, 'permission = "deny"').files
    assert file.binding
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    (file,) = write_policy(tmp_path, 'permission = "deny"').files
    assert file.binding, "root can write everything; nobody else wrote it for root"


async def test_a_server_has_the_administrators_policy_whatever_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.toml"
    monkeypatch.setattr(admin_policy, "policy_paths", lambda: (path,))
    settings = Settings(
        engine="openai_api", model="http://127.0.0.1:9/v1", store="memory", data_dir=tmp_path, policy={"shell": "auto"}
    )
    path.write_text('[policy]\nshell = "deny"\n')
    runtime = Runtime.build(settings)
    gate = runtime.gate(TurnRequest("x", permission="auto", answers=frozenset("*")))
    assert gate.ruling(ToolSpec("shell", "", {}, kind="shell")).permission == "deny"
    await runtime.aclose()
    path.write_text("permission = 'perhaps'")
    with pytest.raises(InvalidRequest, match="cannot be used"):
        Runtime.build(settings)


def test_the_table_has_every_kind_and_every_name_that_is_spoken_of(tmp_path: Path) -> None:
    said = write_policy(tmp_path, '[policy]\nweb_search = "deny"\n')
    table = dict(Policy(own={"mcp_docs_search": "auto"}, admin=said).table())
    assert set(DEFAULTS) | {"web_search", "mcp_docs_search"} == set(table)
    assert (table["web_search"].permission, table["mcp_docs_search"].permission) == ("deny", "auto")
