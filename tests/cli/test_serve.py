"""Tests ``agent-kernel serve``: the official clients of OpenAI and Anthropic use the process, and it stops without
losing data.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from agent_kernel.core.settings import SHARED_SERVER_LIMITS
from agent_kernel.core.storage_locations import YOUNG_S
from tests.narrowing import not_none
from tests.served import Served, ended
from tests.server import PLAIN, AgentServer, Json, followed, start_turn, text_of

SLOW = {"text": "word " * 400, "deltas": 400, "delay": 0.05, "when": "slow", "loop": True}
GATED = {"text": "ready " * 20, "deltas": 20, "when": "gated", "gate": "go"}
SCRIPT: list[Json] = [SLOW, GATED, {"text": "Hello.", "loop": True}]
CLOSED = (
    *("api", "api/contents", "api/kernels", "api/kernelspecs", "api/sessions", "api/terminals", "api/status"),
    *("api/shutdown", "api/config/notebook", "api/me", "api/spec.yaml", "files/script.json", "view/script.json"),
    *("nbconvert/html/a.ipynb", "lab", "tree", "terminals/1", "api/events/subscribe", "v1/no/such/thing", "v2/models"),
)
Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A function ``serve(*options, name=..., **fields of Served)`` that returns a server which is not yet started."""
    made: list[Served] = []

    def make(*options: str, name: str = "served", **fields: Any) -> Served:
        one = Served(tmp_path / name, fields.pop("script", SCRIPT), options, **fields)
        made.append(one)
        return one

    yield make
    for one in made:
        one.sweep()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), SCRIPT) as one:
        yield one.start()


def openai_client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.token, max_retries=0)


def anthropic_client(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key=served.token, max_retries=0)


def messages_of(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


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


# ------------------------------------------------------------------------------------------------ the token


def test_a_token_is_made_once_kept_for_its_owner_and_told_nowhere(serve: Serve) -> None:
    first = serve("--log-level", "debug").start()
    token, file = first.token, Path(first.started["token_file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with first.client() as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/v1/models", params={"token": token}).status_code == 200
        client.post("/v1/chat/completions", json={"model": "none", "messages": messages_of("x")})
    assert token.encode() not in Path(f"/proc/{not_none(first.process).pid}/cmdline").read_bytes()
    assert first.stop() == 0
    assert token.encode() not in first.everything()
    again = serve("--data-dir", "data", env={"AGENT_KERNEL_DATA_DIR": "other"}).start()
    assert again.token == token
    assert (again.started["token_file"], again.started["sessions"]) == (str(file), str(file.parent))
    assert again.stop() == 0


def test_a_token_in_an_address_opens_nothing_and_is_in_no_log(serve: Serve) -> None:
    served = serve().start()
    with served.nobody() as client:
        for path in ("", "login", "logout", "static/favicon.ico", "webapp/a/b.js", "v1/turns", "nothing"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                reply = client.request(method, f"{path}?token={served.token}")
                assert served.token not in reply.text + str(reply.headers)
                assert reply.status_code in (401, 403, 404, 405) or "v1" not in path
    served.stop()
    assert "POST" in served.log.read_text()
    assert served.token not in served.log.read_text()


@pytest.mark.parametrize("variable", ["JUPYTER_TOKEN", "AGENT_KERNEL_TOKEN"])
def test_a_token_that_is_given_is_used_and_not_kept(serve: Serve, variable: str) -> None:
    given = "a-token-of-the-operator"
    served = serve(env={variable: given, "AGENT_KERNEL_DATA_DIR": "data/below"}).start()
    assert served.started["token_file"] is None
    assert served.started["sessions"] == str(served.directory / "data" / "below")
    assert variable in served.started["token_from"]
    with served.client(given) as client, served.client("another") as stranger:
        assert client.get("/v1/models").status_code == 200
        assert stranger.get("/v1/models").status_code == 401
    assert served.stop() == 0
    assert given.encode() not in served.everything()


def test_in_a_kernel_its_credential_is_no_token(serve: Serve) -> None:
    served = serve(env={"AGENT_KERNEL_TOKEN": "the-kernels-own", "AGENT_KERNEL_ID": "k"}).start()
    assert served.token != "the-kernels-own"


def test_a_token_that_others_can_read_is_refused(serve: Serve) -> None:
    served = serve()
    file = served.directory / "data" / "serve-token"
    file.parent.mkdir(parents=True)
    file.write_text("known-to-all\n")
    file.chmod(0o644)
    status, out = ended(served.begin())
    assert (status, out) == (1, "")
    assert "Other users may read the token" in served.log.read_text()
    assert "known-to-all" not in served.log.read_text()


# ------------------------------------------------------------------------------------------------ the page


def test_in_a_terminal_it_prints_a_link_that_logs_in_one_browser(serve: Serve) -> None:
    served = serve()
    terminal, inside = os.openpty()
    try:
        served.begin(stdout=inside, as_json=False)
        os.close(inside)  # so that reading ends if the server does
        url = not_none(re.search(r"in a browser (\S+)", read_terminal(terminal, "stop  ")))
        assert (served.directory / "data" / "serve-token").read_text().strip() not in url[1]
        origin = url[1].partition("?")[0]
        with httpx.Client(base_url=origin, **PLAIN) as browser, httpx.Client(base_url=origin, **PLAIN) as late:
            first = browser.get(url[1])
            assert (first.status_code, first.headers["Location"]) == (302, "/")
            assert {"HttpOnly", "SameSite=Lax"} <= set(first.headers["Set-Cookie"].split("; "))
            assert browser.get("agent/v1/health").status_code == 200
            assert "Set-Cookie" not in late.get(url[1]).headers
            assert late.get("agent/v1/health").status_code == 401
    finally:
        os.close(terminal)


def test_a_login_outlives_a_restart_and_the_page_is_below_the_path_of_the_server(serve: Serve) -> None:
    served = serve("--base-url", "/team/a/").start()
    assert served.started["page_url"] == f"{served.url}/"
    with httpx.Client(**PLAIN) as browser:
        assert browser.get(served.url).headers["Location"] == "/team/a/"
        page = browser.get(f"{served.url}/")
        assert re.findall(r'(?:href|src)="(?!webapp/)', page.text) == []
        proof = {"X-XSRFToken": browser.cookies["_xsrf"]}
        done = browser.post(f"{served.url}/login", data={"password": served.token}, headers=proof)
        assert "Path=/team/a/" in done.headers["Set-Cookie"].split("; ")
        port = served.url.rpartition(":")[2].partition("/")[0]
        assert served.stop() == 0
        served.options = ("--base-url", "/team/a/", "--port", port)
        served.start()
        assert browser.get(f"{served.url}/agent/v1/sessions").status_code == 200


def read_terminal(terminal: int, until: str) -> str:
    """Return what a terminal printed, once ``until`` is part of it."""
    text = ""
    while until not in text:
        text += os.read(terminal, 4096).decode()
    return text


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(serve: Serve, number: signal.Signals) -> None:
    served = serve().start()
    assert served.stop(number) == 0
    assert "Traceback" not in served.log.read_text()


class Reader(threading.Thread):
    """A thread that streams a turn of the session ``name`` and records what arrived and how it ended."""

    def __init__(self, served: Served, name: str, prompt: str) -> None:
        super().__init__(daemon=True)
        self._client, self._name, self._prompt = openai_client(served), name, prompt
        self.text = ""
        self.finish: str | None = None
        self.problem: Exception | None = None
        self.begun = threading.Event()

    def run(self) -> None:
        try:
            stream = self._client.chat.completions.create(
                model="default", messages=messages_of(self._prompt), stream=True, extra_body={"session_id": self._name}
            )
            for chunk in stream:
                for choice in chunk.choices:
                    self.text += choice.delta.content or ""
                    self.finish = choice.finish_reason or self.finish
                if self.text:
                    self.begun.set()
        except Exception as error:  # noqa: BLE001  looked at by the test
            self.problem = error
        finally:
            self._client.close()
            self.begun.set()


def reading(served: Served, prompt: str, count: int) -> list[Reader]:
    readers = [Reader(served, f"{prompt} {number}", prompt) for number in range(count)]
    for reader in readers:
        reader.start()
    for reader in readers:
        assert reader.begun.wait(60)
    return readers


def read_answers(served: Served, session: str) -> str:
    """Return the answers that are stored in the session."""
    with served.client() as client:
        items = client.get(f"/v1/sessions/{session}/items").raise_for_status().json()["items"]
    messages = [item["message"] for item in items]
    return "".join(message["content"] for message in messages if message["role"] == "assistant")


def test_what_was_said_before_a_stop_is_saved_and_every_stream_ends(serve: Serve) -> None:
    served = serve("--drain", "0").start()
    readers = reading(served, "slow", 8)
    assert served.stop() == 0
    for reader in readers:
        reader.join(30)
        assert reader.text
        assert type(reader.problem) is openai.APIError, reader.problem  # told in the stream, not a broken connection
    assert "Traceback" not in served.log.read_text()
    served.start()
    for number, reader in enumerate(readers):
        kept = read_answers(served, f"slow {number}")
        assert kept.startswith(reader.text.rstrip())
        assert len(kept) < len(str(SLOW["text"]))


def test_turns_may_end_meanwhile_and_no_other_begins(serve: Serve) -> None:
    served = serve("--drain", "30").start()
    with served.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        (reader,) = reading(served, "gated", 1)
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        served.until_logged("1 turn is running")
        probe = client.get("/health")
        refused = client.post("/v1/chat/completions", json={"model": "default", "messages": messages_of("hi")})
    (served.directory / "go").touch()
    assert (probe.status_code, probe.json()) == (503, {"status": "stopping"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_stopping")
    assert served.process.wait(60) == 0
    reader.join(30)
    assert (reader.text, reader.finish) == (GATED["text"], "stop")


def test_a_second_signal_does_not_wait_for_turns_and_saves_them_all_the_same(serve: Serve) -> None:
    served = serve("--drain", "60").start()
    (reader,) = reading(served, "slow", 1)
    not_none(served.process).send_signal(signal.SIGINT)
    served.until_logged("1 turn is running")
    assert served.stop(signal.SIGINT) == 0
    reader.join(30)
    served.start()
    assert read_answers(served, "slow 0").startswith(reader.text.rstrip())


def test_a_third_signal_waits_for_nothing(serve: Serve) -> None:
    served = serve("--drain", "60").start()
    reading(served, "slow", 1)
    process = not_none(served.process)
    os.kill(process.pid, signal.SIGSTOP)  # so that all three are there when it looks
    for _ in range(3):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGCONT)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert process.returncode in (0, 130)


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
