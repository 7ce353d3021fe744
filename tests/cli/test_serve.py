"""Tests ``agent-kernel serve``: the clients of OpenAI and Anthropic use the process, and it reports wrong settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from agent_kernel.core.process_directory import YOUNG_S
from agent_kernel.core.settings import SHARED_SERVER_LIMITS
from tests.cli.served_clients import SCRIPT, Serve, messages_of, openai_client
from tests.served import Served, ended
from tests.server import AgentServer, followed, start_turn, text_of

CLOSED = (
    *("api", "api/contents", "api/kernels", "api/kernelspecs", "api/sessions", "api/terminals", "api/status"),
    *("api/shutdown", "api/config/notebook", "api/me", "api/spec.yaml", "files/script.json", "view/script.json"),
    *("nbconvert/html/a.ipynb", "lab", "tree", "terminals/1", "api/events/subscribe", "v1/no/such/thing", "v2/models"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), SCRIPT) as one:
        yield one.start()


def anthropic_client(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key=served.token, max_retries=0)


# ------------------------------------------------------------------------------------------------ what is on, and off


def test_openais_client_asks_streams_and_lists_below_v1(served: Served) -> None:
    with openai_client(served) as client:
        whole = client.chat.completions.create(model="default", messages=messages_of("hi"))
        assert whole.choices[0].message.content == "Hello."
        chunks = client.chat.completions.create(model="agent/default", messages=messages_of("hi"), stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello."
        assert {"default", "agent/default", "scripted"} <= {model.id for model in client.models.list()}


def test_anthropics_client_asks_and_streams_below_the_root(served: Served) -> None:
    with anthropic_client(served) as client:
        whole = client.messages.create(model="default", max_tokens=100, messages=messages_of("hi"))
        assert [block.text for block in whole.content if block.type == "text"] == ["Hello."]
        with client.messages.stream(model="default", max_tokens=100, messages=messages_of("hi")) as stream:
            assert "".join(stream.text_stream) == "Hello."


@pytest.mark.parametrize("path", CLOSED)
def test_of_jupyter_nothing_else_is_reached_with_the_token(served: Served, path: str) -> None:
    with served.client() as client, served.nobody() as nobody:
        for verb in ("GET", "POST"):
            answer = client.request(verb, f"/{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), (verb, answer.text)
            assert nobody.request(verb, f"/{path}").status_code == 401


def test_the_same_routes_are_there_by_both_names_with_the_same_lock(served: Served) -> None:
    with served.client() as client, served.nobody() as nobody:
        for path in ("models", "health", "metrics", "sessions", "openapi.json"):
            assert client.get(f"/v1/{path}").status_code == client.get(f"/agent/v1/{path}").status_code == 200
            assert nobody.get(f"/v1/{path}").status_code == nobody.get(f"/agent/v1/{path}").status_code
            assert nobody.get(f"/v1/{path}").status_code == 401
        for path in ("metrics", "openapi.json"):
            assert client.get(f"/{path}").status_code == 200
            assert nobody.get(f"/{path}").status_code == 401


def test_a_probe_needs_no_token_and_learns_nothing(served: Served) -> None:
    with served.nobody() as nobody:
        assert nobody.get("/health").json() == {"status": "ok"}
        assert nobody.head("/health").status_code == 200


# ------------------------------------------------------------------------------------------------ start and stop


def test_a_port_that_is_taken_is_told_in_one_line(serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = serve("--port", str(port))
        status, out = ended(served.begin())
    assert (status, out) == (1, "")
    (line,) = served.log.read_text().splitlines()
    assert str(port) in line
    assert "--port" in line


def test_a_setting_that_makes_no_sense_ends_it_with_a_word(serve: Serve) -> None:
    served = serve(env={"AGENT_KERNEL_LIMITS": "perhaps"})
    status, out = ended(served.begin())
    assert (status, out) == (1, "")
    assert "perhaps" in served.log.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--data-dir", "/dev/null/here"), "/dev/null/here"),
        (("--host", "203.0.113.5"), "203.0.113.5"),
        (("--certfile", "/none.pem"), "/none.pem"),
        (("--root", "/none"), "/none"),
        (("--token-file", "/none"), "/none"),
    ],
)
def test_what_it_can_not_have_is_told_in_one_line(serve: Serve, options: tuple[str, ...], word: str) -> None:
    served = serve(*options)
    assert ended(served.begin()) == (1, "")
    (line,) = served.log.read_text().splitlines()
    assert word in line


@pytest.mark.parametrize("options", [("--port", "80000"), ("--drain", "-1"), ("--log-level", "loud")])
def test_a_wrong_option_is_wrong_usage(serve: Serve, options: tuple[str, ...]) -> None:
    assert ended(serve(*options).begin()) == (2, "")


def test_a_model_that_is_not_here_is_told_at_the_start(serve: Serve) -> None:
    served = serve("--engine", "local", "--model", "tiny", "--cache-dir", "empty").start()
    assert "agent-kernel model pull tiny" in served.log.read_text()
    with openai_client(served) as client:
        assert {model.id for model in client.models.list()} == {"default", "tiny", "agent/default", "agent/tiny"}


def test_without_a_home_that_can_be_written_it_serves_and_says_what_is_lost(serve: Serve) -> None:
    served = serve(env={"HOME": "/proc", "AGENT_KERNEL_DATA_DIR": "", "XDG_DATA_HOME": "", "JUPYTER_CONFIG_DIR": ""})
    served.start()
    sessions = Path(served.started["sessions"])
    with served.client() as client, openai_client(served) as openais:
        assert openais.models.list().data
        assert client.post("/v1/sessions", json={}).status_code == 201
    assert served.stop() == 0
    assert "kept only until this server ends" in served.log.read_text()
    assert not sessions.exists()


# ------------------------------------------------------------------------------------------------ elsewhere


def test_where_others_reach_it_each_user_has_limits_and_else_where_they_are_wished_for(serve: Serve) -> None:
    alone = serve(name="alone").start()
    assert {alone.started["limits"][name] for name in SHARED_SERVER_LIMITS} == {0}
    env = {"AGENT_KERNEL_USER_REQUESTS_PER_MINUTE": "2"}
    shared = serve("--host", "0.0.0.0", name="shared", env=env).start()
    limits = shared.started["limits"]
    assert (limits["user_requests_per_minute"], limits["turns_at_once"]) == (2, SHARED_SERVER_LIMITS["turns_at_once"])
    assert "unencrypted" in shared.log.read_text()
    with openai_client(shared) as client:
        for _ in range(2):
            client.chat.completions.create(model="default", messages=messages_of("hi"))
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="default", messages=messages_of("hi"))
    open_to_all = serve("--host", "0.0.0.0", "--no-shared", name="open").start()
    assert {open_to_all.started["limits"][name] for name in SHARED_SERVER_LIMITS} == {0}


def test_another_name_of_the_machine_is_answered_once_it_is_allowed(serve: Serve) -> None:
    served = serve("--allow-host", "models.example.com").start()
    with served.client() as client:
        assert client.get("/v1/models", headers={"Host": "models.example.com"}).status_code == 200
        assert client.get("/v1/models", headers={"Host": "evil.example.com"}).status_code == 403


def test_below_a_path_all_routes_move(serve: Serve) -> None:
    served = serve("--base-url", "/team/a/").start()
    assert served.url.endswith("/team/a")
    with openai_client(served) as client:
        assert client.models.retrieve("agent/default").id == "agent/default"
    with served.nobody() as nobody:
        assert nobody.get(f"{served.url}/health").json() == {"status": "ok"}
        assert nobody.get(served.url.removesuffix("/team/a") + "/v1/models").status_code in (401, 403, 404)


async def test_a_persons_own_server_uses_it_as_its_engine_and_keeps_the_conversation_and_the_tools(
    serve: Serve, tmp_path: Path
) -> None:
    call = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
    hub = serve(script=[{"text": "", "calls": [call]}, {"text": "It is 42.", "loop": True}], name="hub").start()
    made = subprocess.run(
        [sys.executable, "-m", "agent_kernel", "token", "new", "--user", "anna"],
        env={**os.environ, "AGENT_KERNEL_DATA_DIR": str(hub.directory / "data")},
        capture_output=True,
        text=True,
        check=True,
    )
    engines = {"hub": {"url": f"{hub.url}/v1", "model": "default", "api_key_env": "HUB_TOKEN"}}
    own = AgentServer(
        tmp_path / "own", [], {"engine": "hub", "engines": engines}, env={"HUB_TOKEN": made.stdout.strip()}
    )
    own.directory.mkdir()
    with own:
        await own.start()
        async with own.client() as client:
            events = await followed(client, (await start_turn(client, "six times seven"))["turn"])
    assert text_of(events) == "It is 42."
    (result,) = [event["data"]["text"] for event in events if event["type"] == "call.finished"]
    assert "42" in result
    with hub.client(made.stdout.strip()) as client:
        assert client.get("/v1/chat/completions").status_code == 405
    with hub.client() as client:
        figures = client.get("/metrics").text
    assert 'agent_kernel_turns_total{route="chat/completions",state="committed"} 2.0' in figures
    assert "agent_kernel_stored_sessions 0.0" in figures


def can_be_first() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_be_first(), reason="no namespace of processes can be made here")
def test_as_the_first_process_of_a_container_it_answers_and_stops(serve: Serve) -> None:
    served = serve().start(command=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    with openai_client(served) as client:
        assert client.chat.completions.create(model="default", messages=messages_of("hi")).choices
    assert served.process is not None
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    assert served.process.wait(30) == 0


@pytest.mark.parametrize("model", ["nosuch", "./nosuch.gguf"])
def test_it_does_not_start_with_a_model_that_does_not_exist(serve: Serve, model: str) -> None:
    served = serve("--engine", "local", "--model", model)
    assert ended(served.begin()) == (1, "")
    (line,) = served.log.read_text().splitlines()
    assert "There is no model" in line
    assert model in line


def test_the_temporary_directory_of_a_killed_server_is_removed_by_the_next_one(serve: Serve, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    living, killed = serve(name="living", env=env).start(), serve(name="killed", env=env).start()
    both = set(temporary.iterdir())
    assert len(both) == 2
    killed.stop(signal.SIGKILL)
    before = time.time() - 2 * YOUNG_S
    for directory in both:
        os.utime(directory, (before, before))
    third = serve(name="third", env=env).start()
    left = both & set(temporary.iterdir())
    assert len(left) == 1
    assert living.stop() == third.stop() == 0
    assert not left & set(temporary.iterdir()), "the directory of the living server stayed until it stopped"
    assert not list(temporary.iterdir())
