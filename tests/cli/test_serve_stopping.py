"""Tests that ``agent-kernel serve`` stops at a signal without losing what was said."""

from __future__ import annotations

import os
import signal
import threading
import time

import openai
import pytest

from tests.cli.served_clients import GATED, SLOW, Serve, messages_of, openai_client
from tests.narrowing import not_none
from tests.served import Served


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
