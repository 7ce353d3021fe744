"""Starts model servers of other projects as separate processes with a model on this machine."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server import free_port
from tests.test_layers import ROOT

START_S = 240.0
TINY_MODELS = ROOT / "tests" / "engines" / "local" / "tiny_models.py"


@dataclass(frozen=True, slots=True)
class ModelServer:
    url: str
    model: str


@contextmanager
def transformers_serve(python: str, directory: Path) -> Iterator[ModelServer]:
    """Run transformers' server with a Llama model of a few thousand weights. ``python`` has torch."""
    model = directory / "llama"
    made = subprocess.run([python, str(TINY_MODELS), "llama", str(model)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    port = free_port()
    command = [python, "-m", "transformers.cli.transformers", "serve", str(model), "--device", "cpu"]
    with _running([*command, "--host", "127.0.0.1", "--port", str(port)], port, "health", directory / "serve.log"):
        yield ModelServer(f"http://127.0.0.1:{port}/v1", str(model))


@contextmanager
def llama_server(python: str, model: str, directory: Path) -> Iterator[ModelServer]:
    """Run llama-cpp-python's server with the chat format that lets any model call tools. ``python`` has llama_cpp."""
    port = free_port()
    command = [python, "-m", "llama_cpp.server", "--model", model, "--n_ctx", "2048", "--n_threads", "2"]
    command += ["--chat_format", "chatml-function-calling", "--model_alias", "llama"]
    with _running([*command, "--host", "127.0.0.1", "--port", str(port)], port, "v1/models", directory / "llama.log"):
        yield ModelServer(f"http://127.0.0.1:{port}/v1", "llama")


@contextmanager
def _running(command: Sequence[str], port: int, ready: str, log: Path) -> Iterator[None]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        until = time.monotonic() + START_S
        while not _answers(f"http://127.0.0.1:{port}/{ready}"):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False
