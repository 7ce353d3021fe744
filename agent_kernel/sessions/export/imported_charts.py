"""Checks the charts of imported sessions by the rules for charts that leave the sandbox, since a notebook would draw
them. The functions have no side effects.

A chart may contain a URL that is requested when the chart is drawn. That request could send data of the page to another
machine. A chart that fails the check is replaced by a text with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.sandbox.host import chart_validation

BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""MIME type of media that are a whole MIME bundle: several representations of one output, one of which may be a
chart."""
KINDS = ("application/vnd.plotly", "application/vnd.vega")
"""Prefixes of chart types, including types that cannot be checked."""
NOTE = "[A chart was left out: {why}.]"


class ImportedCharts:
    """Checks the charts of one document. ``blobs`` are the bytes of its media by hash; ``check`` adds the checked
    versions of charts to them. ``refused`` counts the charts that were removed."""

    def __init__(self, blobs: Mapping[str, bytes]) -> None:
        self.blobs = dict(blobs)
        self.refused = 0
        self._known: dict[tuple[str, str], Part] = {}

    def check(self, message: Message) -> Message:
        """Return the message with only the charts that are safe to draw."""
        if not any(medium.mime == BUNDLE or is_chart(medium.mime) for medium in message.media):
            return message
        return replace(message, parts=tuple(self._part(part) for part in message.parts))

    def _part(self, part: Part) -> Part:
        """Return one part of a message, with its charts checked. A part without bytes stays, because no notebook can
        draw it."""
        if not isinstance(part, Media) or part.hash not in self.blobs:
            return part
        if part.mime != BUNDLE and not is_chart(part.mime):
            return part
        place = part.mime, part.hash
        if place not in self._known:
            self._known[place] = self._check_chart(part, self.blobs[part.hash])
        return self._known[place]

    def _check_chart(self, medium: Media, data: bytes) -> Part:
        try:
            safe = self._bundle(data) if medium.mime == BUNDLE else _chart(medium.mime, data)
        except chart_validation.NotShown as why:
            self.refused += 1
            return Text(NOTE.format(why=why))
        checked = Media.of(medium.mime, safe)
        self.blobs[checked.hash] = safe
        return Media(checked.mime, checked.hash, checked.size)

    def _bundle(self, data: bytes) -> bytes:
        """Return the MIME bundle ``data`` without refused charts; its plain text gets a note for each of them. Raises
        NotShown for data that is not JSON, since a browser might still read it."""
        try:
            body = json.loads(data, parse_constant=lambda name: None)
        except (ValueError, RecursionError) as error:
            raise chart_validation.NotShown("it is not JSON") from error
        if not isinstance(body, dict) or not any(map(is_chart, body)):
            return data
        plain = [_text_of(body["text/plain"])] if "text/plain" in body else []
        for mime in [mime for mime in body if is_chart(mime)]:
            try:
                chart = _chart(mime, _text_of(body[mime]).encode("utf-8", "surrogatepass"))
                body[mime] = json.loads(chart)
            except chart_validation.NotShown as why:
                del body[mime]
                plain.append(NOTE.format(why=why))
                self.refused += 1
        return json.dumps(body | ({"text/plain": "\n".join(plain)} if plain else {})).encode()


def is_chart(mime: str) -> bool:
    return mime.strip().lower().startswith(KINDS)


def _chart(mime: str, data: bytes) -> bytes:
    if mime not in chart_validation.CHARTS:
        raise chart_validation.NotShown("charts of this type cannot be checked")
    return chart_validation.validate_chart(mime, data)


def _text_of(value: Any) -> str:
    """Return a value of a MIME bundle as the page would read it: a string, or the lines of a list joined; any other
    value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value)
