"""Shared parts of tests: small real GGUF files, wheels that contain them, a hub on loopback, catalogs, and a download
in its own process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gguf
import numpy as np

REVISION = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).parents[3]
CHUNK = 64 << 10


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_gguf(
    path: Path, kind: str = "Q8_0", rows: int = 64, columns: int = 256, seed: int = 7, *, architecture: str = "llama"
) -> dict[str, np.ndarray]:
    """Write a GGUF file as a converter does, with one large tensor of ``kind``. Return the weights before
    quantization.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Test model")
    writer.add_context_length(2048)
    writer.add_file_type(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ü", "<|im_end|>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    random = np.random.default_rng(seed)
    weights = {
        "blk.0.attn_q.weight": random.standard_normal((rows, columns)).astype(np.float32),
        "output_norm.weight": random.standard_normal(columns).astype(np.float32),
    }
    number = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("output_norm.weight", weights["output_norm.weight"])
    matrix = gguf.quants.quantize(weights["blk.0.attn_q.weight"], number)
    writer.add_tensor("blk.0.attn_q.weight", matrix, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def write_wheel(folder: Path, package: str, member: str, data: bytes) -> Path:
    """Write a wheel that pip accepts and that exits with an error if it is imported."""
    module = package.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('a model package was imported')\n")
        archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@dataclass
class Hub:
    """A hub that redirects to a storage server on another port; both are real servers. Tests set attributes to make it
    fail.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    drop_after: list[int] = field(default_factory=list)
    """Bytes after which each of the next answers breaks off."""
    hang_after: int = 0
    """Bytes after which an answer stands still, 0 = never."""
    status: int = 0
    busy: int = 0
    """How many of the next requests are answered 503."""
    ranges: bool = True
    announce: str | None = ""
    """The hash to announce; empty: the true one; None: none."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(server, Range, Authorization) of every request."""
    url: str = ""
    storage: str = ""
    listings: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Repository: (status, X-Error-Code) with which it is refused."""

    def publish(self, repo: str, files: Mapping[str, bytes], revision: str = REVISION, **facts: Any) -> None:
        """Add a repository with one revision. Large and binary files are in the storage server, as on the real hub."""
        siblings: list[dict[str, Any]] = []
        for path, data in files.items():
            self.files[f"/{repo}/resolve/{revision}/{path}"] = data
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            told: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git}
            if not path.endswith((".json", ".txt", ".md", ".py")):
                told["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
            siblings.append(told)
        told = {"id": repo, "sha": revision, "siblings": siblings, "tags": ["license:apache-2.0"]} | facts
        for path in (f"/api/models/{repo}", f"/api/models/{repo}/revision/{revision}"):
            self.listings[path] = told

    @property
    def ranges_asked(self) -> list[str]:
        return [asked for server, asked, _ in self.asked if server == "storage"]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors: the tests kill clients on purpose."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    servers = [Server(("127.0.0.1", 0), _handler(hub, name)) for name in ("hub", "storage")]
    hub.url, hub.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(hub: Hub, server: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            asked = (server, self.headers.get("Range", ""), self.headers.get("Authorization", ""))
            hub.asked.append(asked)
            self.path = self.path.partition("?")[0]
            try:
                self.listing() if self.path.startswith("/api/") else self.redirect() if server == "hub" else self.file(
                    asked[1]
                )
            except ConnectionError:
                self.close_connection = True

        def listing(self) -> None:
            repo = "/".join(self.path.split("/")[3:5])
            found = hub.listings.get(self.path)
            known = any(path.startswith(f"/api/models/{repo}") for path in hub.listings)
            missing = (404, "RevisionNotFound" if known else "RepoNotFound")
            status, code = hub.refusals.get(repo) or ((200, "") if found else missing)
            body = json.dumps(found if status == 200 else {"error": code}).encode()
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def redirect(self) -> None:
            data = hub.files.get(self.path)
            status = hub.status or (503 if hub.busy else 302 if data is not None else 404)
            hub.busy = max(0, hub.busy - 1)
            self.send_response(status)
            if status == 302 and data is not None:
                self.send_header("Location", hub.storage + self.path)
                if hub.announce is not None:
                    self.send_header("X-Linked-ETag", f'"{hub.announce or sha256(data)}"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def file(self, asked: str) -> None:
            data = hub.files[self.path]
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and hub.ranges else 0
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = start + hub.drop_after.pop(0) if hub.drop_after else len(data)
            for at in range(start, min(end, len(data)), CHUNK):
                self.wfile.write(data[at : min(at + CHUNK, end)])
                while hub.hang_after and at >= hub.hang_after:
                    time.sleep(0.02)
            if end < len(data):
                self.close_connection = True

    return Handler


def write_safetensors(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None, kind: str = "BF16") -> bytes:
    """Write a file of zeros in the format of safetensors and return its bytes."""
    sizes = {"BF16": 2, "F16": 2, "F32": 4}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in (shapes or {"model.embed_tokens.weight": (64, 32), "lm_head.weight": (64, 32)}).items():
        size = int(np.prod(shape)) * sizes[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(end)
    path.write_bytes(data)
    return data


def model_files(folder: Path, **config: Any) -> dict[str, bytes]:
    """Write the files of ``save_pretrained`` to ``folder``. Return their names and contents."""
    folder.mkdir(exist_ok=True)
    told = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048} | config
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    write_safetensors(folder / "model.safetensors")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def hub_source(data: bytes, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "hub",
        "repo": "org/model-GGUF",
        "file": "model-q8_0.gguf",
        "revision": REVISION,
        "size": len(data),
        "sha256": sha256(data),
        "publisher": "The makers",
        "vouched": True,
        "why": "Test.",
    } | changes


HUB_PATH = f"/org/model-GGUF/resolve/{REVISION}/model-q8_0.gguf"


def wheels_source(folder: Path, data: bytes, count: int = 1, **changes: Any) -> dict[str, Any]:
    """Write ``count`` wheels that contain a part of ``data`` each. Return the catalog source that lists them."""
    folder.mkdir(exist_ok=True)
    step = -(-len(data) // count)
    parts = []
    for number in range(count):
        member = f"test_model_part{number}/data/part{number}.bin"
        wheel = write_wheel(folder, f"test-model-part{number}", member, data[number * step : (number + 1) * step])
        facts = {"size": wheel.stat().st_size, "sha256": sha256(wheel.read_bytes())}
        parts.append({"package": f"test-model-part{number}", "version": "1.0", "member": member} | facts)
    return {
        "kind": "wheels",
        "size": len(data),
        "sha256": sha256(data),
        "publisher": "somebody",
        "vouched": False,
        "why": "Nobody knows them.",
        "parts": parts,
    } | changes


def write_catalog(path: Path, sources: list[dict[str, Any]], installed: int = 1000, **changes: Any) -> Path:
    """Write a catalog with the one entry ``small``."""
    small = {
        "title": "Small-1M-Instruct",
        "description": "For tests.",
        "licence": "Apache-2.0",
        "licence_from": "The makers",
        "protocol": "fence",
        "context_length": 4096,
        "installed": installed,
        "sources": sources,
    } | changes
    lines = ["[small]", *(f"{key} = {_toml(value)}" for key, value in small.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def environment(hub: Hub | None = None, wheels: Path | None = None) -> dict[str, str]:
    """Return this process's environment without access to the network: only the test's hub and package index can be
    reached.
    """
    foreign = ("PIP_", "HF_", "AGENT_KERNEL_", "HTTP", "http", "ALL_PROXY", "all_proxy")
    env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    if wheels:
        env["PIP_FIND_LINKS"] = str(wheels)
    env["HF_ENDPOINT"] = hub.url if hub else "http://127.0.0.1:9"
    return env


DRIVER = """
import json, os, sys, time
from pathlib import Path
from agent_kernel.engines.local.catalog.catalog import read_catalog
from agent_kernel.engines.local.catalog.pull import PullJob
from agent_kernel.core.errors import AgentKernelError
catalog, cache, stop_at, go, limit = sys.argv[1:6]
if limit != "0":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    for progress in PullJob(read_catalog(Path(catalog))["small"], Path(cache), lambda entry, source: True):
        print(json.dumps(progress.to_json()), flush=True)
        while progress.stage == stop_at and progress.done and not Path(go).exists():
            time.sleep(0.02)
except AgentKernelError as error:
    print(json.dumps({"error": error.to_json()}), flush=True)
"""


class PullProcess:
    """A download in another process. With ``stop_at`` it pauses in that stage until the file ``go`` exists."""

    def __init__(
        self,
        catalog: Path,
        cache: Path,
        env: Mapping[str, str],
        *,
        stop_at: str = "",
        go: str = "/none",
        limit: int = 0,
    ) -> None:
        arguments = [str(catalog), str(cache), stop_at, go, str(limit)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
        )

    def until(self, stage: str) -> dict[str, Any]:
        """Return the first progress line of a stage that reports progress, or of the stage ``wait``."""
        assert self.process.stdout
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told.get("stage") == stage and (told["done"] or stage == "wait"):
                return told
        raise AssertionError(f"the pull ended before {stage}")

    def kill(self) -> None:
        self.process.kill()
        self.finish()

    def finish(self) -> list[dict[str, Any]]:
        output, _ = self.process.communicate(timeout=120)
        return [json.loads(line) for line in output.splitlines()]
