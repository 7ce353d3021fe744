from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_kernel.cli import main
from agent_kernel.cli.base import jupyter_configuration
from agent_kernel.permissions import admin_policy


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the administrator's policy file in this test."""
    path = tmp_path / "policy.toml"
    monkeypatch.setattr(admin_policy, "policy_paths", lambda: (path,))
    monkeypatch.setenv("AGENT_KERNEL_DATA_DIR", str(tmp_path / "data"))
    return path


def print_config(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_every_setting_is_shown_with_where_it_comes_from(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_PERMISSION", "ask")
    shown = json.loads(print_config(capsys, "config", "show", "--json"))
    assert shown["settings"]["permission"] == {"value": "ask", "from": "AGENT_KERNEL_PERMISSION"}
    assert shown["settings"]["max_tool_rounds"] == {"value": 16, "from": "default"}
    assert shown["permissions"]["shell"] == {"permission": "ask", "because": "the setting permission", "firm": False}
    assert "permission            ask" in print_config(capsys, "config", "show")


def test_what_the_administrator_says_is_shown_and_wins(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text('[policy]\nshell = "ask"\nweb = "deny"\n')
    monkeypatch.setenv("AGENT_KERNEL_POLICY", '{"web": "auto", "shell": "auto"}')
    text = print_config(capsys, "config", "show")
    assert f"shell                 ask   the administrator for shell ({policy}), each time" in text
    assert f"web                   deny  the administrator for web ({policy})" in text
    assert f"administrator: {policy}, " in text
    shown = json.loads(print_config(capsys, "config", "show", "--json"))
    assert [file["path"] for file in shown["administrator"]] == [str(policy)]


def test_a_policy_that_can_not_be_used_is_an_error_in_one_line(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text("permission = 'perhaps'")
    assert main(["config", "show"]) == 1
    assert "a permission must be auto, ask or deny, not 'perhaps'" in capsys.readouterr().err


def test_no_secret_is_shown_that_stands_where_its_name_belongs(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_ENGINES", '{"work": {"url": "https://a.example/v1", "api_key": "hunter2"}}')
    for words in (("config", "show"), ("config", "show", "--json")):
        text = print_config(capsys, *words)
        assert "work" in text
        assert "hunter2" not in text


def test_the_table_of_the_guide_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "settings.md"
    assert guide.read_text("utf-8").endswith("\n\n" + print_config(capsys, "config", "describe"))


def test_of_a_stores_url_only_the_scheme_is_shown(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_KERNEL_STORE", "postgresql://ann:secret@host/chats")
    for words in (("config", "show"), ("config", "show", "--json")):
        shown = print_config(capsys, *words)
        assert "postgresql:" in shown
        assert "secret" not in shown


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's configuration of Jupyter in this test."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "jupyter"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jupyter" / "jupyter_server_config.d").mkdir(parents=True)
    return tmp_path / "jupyter"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jupyter_server_config.py", "c = get_config()\nc.AgentKernel.model = 'qwen3-4b'\n"),
        ("jupyter_lab_config.json", '{"AgentKernel": {"model": "qwen3-4b"}}'),
        ("jupyter_server_config.d/ours.json", '{"AgentKernel": {"model": "qwen3-4b"}}'),
        ("../jupyter_server_config.py", "c.AgentKernel.model = 'qwen3-4b'\n"),
    ],
)
@pytest.mark.parametrize(
    "words", [("config", "show"), ("config", "show", "--json"), ("doctor", "--json"), ("mcp", "list")]
)
@pytest.mark.usefixtures("policy")
def test_a_file_of_jupyter_with_settings_is_named_because_no_command_reads_it(
    jupyter: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: tuple[str, ...]
) -> None:
    (jupyter / name).write_text(text)
    main(words)
    shown = capsys.readouterr()
    assert f"{(jupyter / name).resolve()} are for the Jupyter server. This command does not use them" in shown.err
    assert "for the Jupyter server" not in shown.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jupyter_server_config.py", "# c.AgentKernel.model = ''\nc.ServerApp.port = 9999  # not AgentKernel\n"),
        ("jupyter_server_config.json", '{"ServerApp": {"jpserver_extensions": {"jupyter_ext": true}}}'),
        ("jupyter_server_config.json", '{"AgentKernel": {'),
        ("jupyter_server_config.json", '["AgentKernel"]'),
        ("jupyter_server_config.d/notes.txt", "AgentKernel"),
    ],
)
def test_a_file_of_jupyter_without_settings_is_not_named(jupyter: Path, name: str, text: str) -> None:
    (jupyter / name).write_text(text)
    assert jupyter not in [parent for file in jupyter_configuration.find_files() for parent in file.parents]


def test_a_command_that_is_given_its_configuration_names_no_file(
    policy: Path, jupyter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (jupyter / "jupyter_server_config.py").write_text("c.AgentKernel.mcp_config = 'elsewhere.json'\n")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    assert main(["mcp", "list", "--config", str(tmp_path / "mcp.json")]) == 0
    assert "for the Jupyter server" not in capsys.readouterr().err


@pytest.fixture
def no_place_chosen(jupyter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable sets where the data is."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    for name in ("AGENT_KERNEL_DATA_DIR", "AGENT_KERNEL_STORE"):
        monkeypatch.delenv(name, raising=False)


PLACES = "c.AgentKernel.data_dir = '/srv/agent'\nc.AgentKernel.store = 'files'\n"


@pytest.mark.parametrize("words", [("where",), ("where", "--json"), ("sessions",), ("sessions", "stats", "--json")])
@pytest.mark.usefixtures("no_place_chosen")
def test_a_command_about_stored_data_names_the_file_of_jupyter_that_sets_another_place(
    jupyter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    file = jupyter / "jupyter_server_config.py"
    for _ in range(2):  # there is a store at the second time
        file.write_text(PLACES)
        assert main(words) == 0
        shown = capsys.readouterr()
        said = [line for line in shown.err.splitlines() if str(file) in line]
        assert len(said) == 1
        for part in ("data_dir, store", str(tmp_path / "home"), "AGENT_KERNEL_DATA_DIR", "AGENT_KERNEL_STORE"):
            assert part in said[0]
        assert str(file) not in shown.out
        file.write_text("c.AgentKernel.model = 'qwen3-4b'  # data_dir and store are not set\n")
        main(("sessions", "stats"))
        assert str(file) not in capsys.readouterr().err


@pytest.mark.usefixtures("no_place_chosen")
def test_a_command_whose_place_is_chosen_names_no_file(
    jupyter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (jupyter / "jupyter_server_config.json").write_text('{"AgentKernel": {"data_dir": "/srv/agent"}}')
    assert main(("sessions", "list")) == 0
    assert "jupyter_server_config.json" in capsys.readouterr().err
    assert main(("sessions", "list", "--data-dir", str(tmp_path / "mine"))) == 0
    monkeypatch.setenv("AGENT_KERNEL_DATA_DIR", str(tmp_path / "data"))
    assert main(("where",)) == 0
    assert "jupyter_server_config.json" not in capsys.readouterr().err


@pytest.mark.usefixtures("no_place_chosen")
def test_a_command_that_opens_the_store_twice_names_the_file_once(
    jupyter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (jupyter / "jupyter_server_config.py").write_text(PLACES)
    assert main(("sessions", "delete", "nope")) == 1
    assert main(("sessions", "delete", "nope", "--yes")) == 0
    assert capsys.readouterr().err.count("jupyter_server_config.py") == 2
