"""Tests which features an engine has by sending it a few short requests. The engine's name has no effect on the
result."""

from __future__ import annotations

import json
import random
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Media, ToolCall, assistant, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineRequest,
    OutputFormat,
    Sampling,
    TextChunk,
    ToolSpec,
    WaitChunk,
)

State: TypeAlias = Literal["ok", "lacks", "unsure"]
NEEDED = frozenset({"answers", "streaming", "tools"})
"""Features without which a model cannot serve an agent."""
ADD = ToolSpec(
    "add",
    "Adds two whole numbers. The only way to add.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    kind="probe",
)
COUNT = "Count from 1 to 20, with commas between."
SUM = "What is 1234 + 8765? Use the tool."
STRIPES = "Name the colours of the three stripes of this picture, from left to right. Only the colours."
COLOURS = {
    "black": b"\0\0\0",
    "blue": b"\0\0\xff",
    "green": b"\0\xa0\0",
    "red": b"\xff\0\0",
    "white": b"\xff\xff\xff",
    "yellow": b"\xff\xff\0",
}
"""The colours of the test picture, as RGB bytes. The picture shows three different ones of the six in a random order,
which a model that cannot see guesses once in 120 times; a single colour would be guessed often."""
PLANET = OutputFormat(
    "json_schema",
    {
        "type": "object",
        "properties": {"zq_planet": {"type": "string", "maxLength": 20}},
        "required": ["zq_planet"],
        "additionalProperties": False,
    },
    name="planet",
)
"""An output format with a key that no model writes by chance, so that an answer with the key shows that the server
enforced the format."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of testing one ``feature``. ``unsure`` means that the server accepted the request, but the model did
    not use the feature in the way that the request demanded."""

    feature: str
    state: State
    detail: str = ""


@dataclass(slots=True)
class ProbeReply:
    """The reply to one request. ``error`` is the reason if the request failed, otherwise empty."""

    chunks: list[Chunk] = field(default_factory=list)
    error: str = ""

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextChunk))

    @property
    def calls(self) -> list[ToolCall]:
        return [chunk.call for chunk in self.chunks if isinstance(chunk, CallChunk)]

    @property
    def pieces(self) -> int:
        return sum(not isinstance(chunk, EndChunk | WaitChunk) for chunk in self.chunks)


class Probe:
    """Sends test requests to ``engine``, and pictures to ``vision_engine``, which is the same engine with vision
    enabled. The answers are decoded greedily and have at most 128 tokens."""

    def __init__(self, engine: Engine, vision_engine: Engine | None = None) -> None:
        self._engine = engine
        self._vision_engine = vision_engine or engine

    async def findings(self) -> list[Finding]:
        """Send the requests and return one finding per feature. If the first request fails, send no others and return
        only its finding."""
        counted = await self._ask(COUNT)
        if counted.error:
            return [Finding("answers", "lacks", counted.error)]
        entries = [
            Finding("answers", "ok", f"{self._engine.info().model}: {_short(counted.text)}"),
            _streaming(counted),
            _usage(counted),
            await self._tools(),
            await self._tool_choice(),
            await self._response_format(),
            await self._images(),
            await self._continuation(),
        ]
        not_sent = self._engine.info().details.get("not_sent")
        return [*entries, *([Finding("fields", "lacks", f"refused: {', '.join(not_sent)}")] if not_sent else [])]

    async def _tools(self) -> Finding:
        """Test tool calls. If the model answers in text although it was given a tool, send a second request that
        requires this tool by name."""
        reply = await self._ask(SUM, tools=(ADD,))
        if reply.calls:
            return Finding("tools", "ok", _describe_call(reply.calls[0]))
        forced_reply = ProbeReply() if reply.error else await self._ask(SUM, tools=(ADD,), tool_choice=ADD.name)
        if forced_reply.calls:
            return Finding(
                "tools",
                "unsure",
                (f"{_describe_call(forced_reply.calls[0])}, but only when tool_choice names the tool"),
            )
        why = f"the model answered in text: {_short(reply.text)}. Check that the server parses this model's calls"
        return Finding("tools", "lacks", reply.error or why)

    async def _tool_choice(self) -> Finding:
        reply = await self._ask("Say hello.", tools=(ADD,), tool_choice="required")
        return _finding(
            "tool_choice",
            reply,
            works=bool(reply.calls),
            otherwise="the server ignored tool_choice required: the model made no call",
        )

    async def _response_format(self) -> Finding:
        reply = await self._ask("Name a planet.", output=PLANET)
        try:
            works = set(json.loads(reply.text)) == {"zq_planet"}
        except (ValueError, TypeError):
            works = False
        return _finding(
            "response_format",
            reply,
            works=works,
            otherwise=f"the server ignored the requested format; the answer is: {_short(reply.text)}",
        )

    async def _images(self) -> Finding:
        if not self._vision_engine.info().vision:
            return Finding("images", "lacks", "this model accepts only text")
        colours = random.sample(sorted(COLOURS), 3)
        reply = await self._ask(STRIPES, media=[stripes(*(COLOURS[colour] for colour in colours))])
        if reply.error:
            return Finding("images", "lacks", reply.error)
        seen = [word for word in re.findall(r"[a-z]+", reply.text.lower()) if word in COLOURS][:3] == colours
        detail = f"stripes in {', '.join(colours)} are: {_short(reply.text)}"
        off = "" if self._engine.info().vision or not seen else "; set vision of this engine to true"
        return Finding("images", "ok" if seen else "unsure", detail + off)

    async def _continuation(self) -> Finding:
        """Test whether the server continues an answer, so that one whose stream breaks off can go on."""
        reply = await self._ask(COUNT, continues="1, 2, 3, 4, 5, 6, 7,")
        works = reply.text.lstrip().startswith("8")
        off = "" if self._engine.info().continues or not works else "; set continues of this engine to true"
        finding = _finding("continuation", reply, works=works, otherwise=f"the answer goes on: {_short(reply.text)}")
        return replace(finding, detail=finding.detail + off)

    async def _ask(
        self,
        prompt: str,
        media: Sequence[Media] = (),
        *,
        continues: str = "",
        tools: tuple[ToolSpec, ...] = (),
        tool_choice: str = "auto",
        output: OutputFormat | None = None,
    ) -> ProbeReply:
        sampling = Sampling(temperature=0, max_tokens=128)
        messages = (user(prompt, media), *([assistant(continues)] if continues else []))
        request = EngineRequest(
            messages,
            tools,
            sampling,
            session="probe",
            tool_choice=tool_choice,
            output=output,
            continues=bool(continues),
        )
        reply, engine = ProbeReply(), self._vision_engine if media else self._engine
        try:
            async with aclosing(engine.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.chunks.append(chunk)
        except AgentKernelError as error:
            reply.error = str(error)
        return reply


def missing(findings: Sequence[Finding]) -> list[str]:
    """Return the names of those features in NEEDED that the engine lacks according to ``findings``."""
    return [finding.feature for finding in findings if finding.feature in NEEDED and finding.state == "lacks"]


def _finding(feature: str, reply: ProbeReply, *, works: bool, otherwise: str) -> Finding:
    return Finding(feature, "ok") if works else Finding(feature, "lacks", reply.error or otherwise)


def _streaming(reply: ProbeReply) -> Finding:
    if reply.pieces > 1:
        return Finding("streaming", "ok", f"{reply.pieces} pieces")
    return Finding("streaming", "lacks", "the answer arrived in one piece")


def _usage(reply: ProbeReply) -> Finding:
    end = reply.chunks[-1]
    assert isinstance(end, EndChunk)
    usage = end.usage
    if usage.estimated:
        return Finding("usage", "lacks", "the server does not count tokens; agent-kernel estimates them")
    reused = f", {usage.reused_tokens} reused" if usage.reused_tokens else ""
    return Finding("usage", "ok", f"{usage.prompt_tokens} tokens read{reused}, {usage.completion_tokens} written")


def _describe_call(call: ToolCall) -> str:
    right = (call.name, call.arguments) == (ADD.name, {"a": 1234, "b": 8765})
    return f"{call.name}({json.dumps(dict(call.arguments))})" + ("" if right else ", which is wrong")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:60] + " ...")


def stripes(*colours: bytes, width: int = 48) -> Media:
    """Return a PNG of vertical stripes, each ``width`` pixels wide. It is encoded here, since the base installation has
    no image library."""
    row = b"\0" + b"".join(colour * width for colour in colours)
    side = width * len(colours)
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(row * side)), _chunk(b"IEND", b""))
    return Media.of("image/png", b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
