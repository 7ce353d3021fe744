"""Runs the model worker, a separate process that owns the model, so that nothing that the model's libraries do affects
the server.

``worker_process.py`` starts it with two pipe ends; the worker ends at the end of file on either of them. It receives
the frames load, stream, infill, cancel, stats and give_way, and sends the frames loading, ready, failed, chunks, beat
and stats.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import functools
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import AgentKernelError, EngineCrashed, EngineError
from agent_kernel.core.protocols import WaitChunk
from agent_kernel.engines.local.backend import LoadedModel, LoadOptions
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.decoding.fill_in_middle import fill
from agent_kernel.engines.local.decoding.request_queue import Admission
from agent_kernel.engines.local.infill import Gap
from agent_kernel.engines.local.media.prompt_media import ShownMedia
from agent_kernel.engines.local.tool_calling.tool_protocols import ToolProtocol, protocol_for
from agent_kernel.engines.local.worker.backends import backend_for
from agent_kernel.engines.local.worker.messages import chunk_to_json, request_from_json
from agent_kernel.engines.local.worker.pipe_framing import Frame, encode_frame, open_pipes, read_frames
from agent_kernel.engines.local.worker.worker_priority import WorkerPriority

BEAT_S = 1.0
COALESCE_S = 0.004
"""Seconds for which chunks are collected, so that one frame with the chunks of all requests wakes the server once. The
chunks of one step arrive within this time. A longer time would deliver the tokens of a fast model in bursts."""
NICE = 5
OOM_SCORE = 500
"""Linux's adjustment of the out-of-memory score, from -1000 to 1000. When memory runs out, the system kills the worker
before the server and the user's kernels."""
PR_SET_PDEATHSIG = 1
AT_ONCE = 16
"""Default number of requests that decode at the same time. With more, each answer would arrive more slowly than a
person reads, and two cores would not decode more tokens in all."""


class FrameOutbox:
    """Sends frames to the server. Chunks are collected for a short time and sent together."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._chunks: list[tuple[int, Frame]] = []

    def send(self, frame: Frame) -> None:
        self._flush()
        self._writer.write(encode_frame(frame))

    def chunk(self, request: int, body: Frame) -> None:
        if not self._chunks:
            asyncio.get_running_loop().call_later(COALESCE_S, self._flush)
        self._chunks.append((request, body))
        if "text" not in body:
            self._flush()

    def _flush(self) -> None:
        if self._chunks:
            self._writer.write(encode_frame({"type": "chunks", "chunks": self._chunks}))
            self._chunks = []


class ModelWorker:
    """Loads one model, and answers the messages that the server sends to this process."""

    def __init__(self, cache_dir: Path, outbox: FrameOutbox) -> None:
        self._cache_dir = cache_dir
        self._outbox = outbox
        self._decoder: Decoder | None = None
        self._completer: Completer | None = None
        self._protocol: ToolProtocol | None = None
        self._media = ShownMedia(sees=False)
        self._presence = WorkerPriority()
        self._requests: dict[int, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        beat = asyncio.create_task(self._beat())
        async for frame in read_frames(reader):
            await self._handle(frame)
        beat.cancel()

    async def _handle(self, frame: Frame) -> None:
        match frame["type"]:
            case "load":
                self._requests[0] = asyncio.create_task(self._load(frame))
            case "stream":
                self._begin(frame["id"], self._stream(frame["id"], frame["request"]))
            case "infill":
                self._begin(frame["id"], self._infill(frame["id"], Gap(**frame["gap"])))
            case "cancel":
                if frame["id"] in self._requests:
                    self._requests[frame["id"]].cancel()
            case "give_way":
                self._presence.give_way(frame["busy"])
            case "stats":
                self._statistics = asyncio.create_task(self._send_stats())

    def _begin(self, key: int, request: Coroutine[Any, Any, None]) -> None:
        task = self._requests[key] = asyncio.create_task(request)
        task.add_done_callback(lambda _: self._requests.pop(key, None))

    async def _send_stats(self) -> None:
        """Send the numbers of ``running`` requests in the batch and of ``queued`` requests, and the backend's figures
        about its cache."""
        stats: Frame = {"running": 0, "queued": 0}
        if self._decoder is not None and self._completer is not None:
            usage = dict(await self._completer.usage())
            queued = self._admission.waiting + usage.pop("waiting")
            stats = usage | {"running": self._decoder.running, "queued": queued}
        self._outbox.send({"type": "stats", "pid": os.getpid()} | stats)

    async def _load(self, frame: Frame) -> None:
        loop = asyncio.get_running_loop()

        def progress(stage: str, fraction: float | None) -> None:
            loop.call_soon_threadsafe(self._outbox.send, {"type": "loading", "stage": stage, "fraction": fraction})

        try:
            path, options = Path(frame["path"]), LoadOptions(**frame["options"])
            backend = backend_for(path, options, self._cache_dir)
            self._decoder = Decoder(backend, self._broken)
            loaded: LoadedModel = await self._decoder.call(lambda: backend.load(path, options, progress))
            self._protocol = protocol_for(frame["protocol"], loaded)
        except AgentKernelError as error:
            self._outbox.send({"type": "failed", "error": error.to_json()})
            return
        length = frame["context_length"] or loaded.context_length
        self._completer = Completer(self._decoder, backend, loaded, length)
        self._admission = Admission(min(options.at_once or AT_ONCE, loaded.at_once or AT_ONCE))
        self._media = ShownMedia(sees=loaded.sees)
        tokens = loaded.cache_tokens or loaded.block * loaded.blocks
        limits = {"cache_tokens": tokens, "cache_block": loaded.block, "requests_at_once": self._admission.capacity}
        details = {**loaded.details, **limits}
        self._outbox.send({"type": "ready", "details": details, "context_length": length, "sees": loaded.sees})

    async def _stream(self, key: int, body: dict[str, Any]) -> None:
        assert self._protocol is not None, "the server streams after ready"
        assert self._completer is not None
        with self._errors_of(key):
            prepared = await self._media.prepare(request_from_json(body))
            tell = functools.partial(self._send_position, key)
            completer = self._completer.for_request(prepared.request.session, tell, prepared.pictures)
            async with (
                self._admission.place(prepared.request.session, tell),
                aclosing(self._protocol.stream(prepared.request, completer)) as chunks,
            ):
                async for chunk in chunks:
                    self._outbox.chunk(key, chunk_to_json(chunk))

    async def _infill(self, key: int, gap: Gap) -> None:
        assert self._completer is not None, "the server sends infill after ready"
        with self._errors_of(key):
            async with aclosing(fill(gap, self._completer.for_request("", lambda _: None))) as fillings:
                async for filling in fillings:
                    self._outbox.chunk(key, {"infill": filling.text, "silence": filling.silence})
            self._outbox.chunk(key, {"end": True})

    @contextmanager
    def _errors_of(self, key: int) -> Iterator[None]:
        """Send an error of the request ``key`` to the server as the end of that request."""
        try:
            yield
        except AgentKernelError as error:
            self._outbox.chunk(key, {"error": error.to_json()})
        except Exception as error:  # noqa: BLE001  an error of one request must not end the others
            fault = EngineError(f"The model worker failed: {type(error).__name__}: {error}")
            self._outbox.chunk(key, {"error": fault.to_json()})

    def _send_position(self, key: int, position: int) -> None:
        self._outbox.chunk(key, chunk_to_json(WaitChunk("queued", position=position)))

    async def _beat(self) -> None:
        while True:
            decoder = self._decoder
            busy, running = (round(decoder.busy_s, 1), decoder.running) if decoder else (0.0, 0)
            self._outbox.send({"type": "beat", "busy_s": busy, "running": running})
            self._presence.hold()
            await asyncio.sleep(BEAT_S)

    def _broken(self, error: BaseException) -> None:
        fault = EngineCrashed(f"The model library failed: {type(error).__name__}: {error}", hint="Ask again.")
        self._outbox.send({"type": "failed", "error": fault.to_json()})


def lower_priority(parent: int) -> None:
    """Lower this process's priority below that of the user's own programs, and make it end when the process ``parent``
    ends.

    On Linux, the system then ends this process by a signal. This is needed if the server is killed while a step or a
    load holds Python's global interpreter lock, because the worker cannot notice the end of file then. On other
    systems, such a worker ends when the lock is free again.
    """
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


async def run(read_fd: int, write_fd: int, cache_dir: Path) -> None:
    reader, writer, _ = await open_pipes(read_fd, write_fd)
    await ModelWorker(cache_dir, FrameOutbox(writer)).serve(reader)
    # The decoder's thread may be inside the library; this process does not wait for it.
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agent_kernel.engines.local.worker.worker", description=__doc__)
    parser.add_argument("--read", type=int, required=True)
    parser.add_argument("--write", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--cache-dir", type=Path, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C in a terminal
    lower_priority(arguments.parent)
    asyncio.run(run(arguments.read, arguments.write, arguments.cache_dir))


if __name__ == "__main__":
    main()
