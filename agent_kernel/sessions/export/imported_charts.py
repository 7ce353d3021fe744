"""Checks charts in imported sessions like charts that leave the sandbox, since a notebook would draw them. The
functions have no side effects.

A chart may contain an address that is requested when it is drawn, and with it data of the author or of the user's page
leaves the machine. A chart that does not pass is replaced by a text with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.sandbox.host import chart_validation

BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""A MIME bundle stored as one medium; one of its types may be a chart."""
KINDS = ("application/vnd.plotly", "application/vnd.vega")
"""Prefixes of chart types, including types that cannot be checked."""
NOTE = "[A chart was left out: {why}.]"


class ImportedCharts:
    """Checks the charts of one document. ``blobs`` are its media by hash and finally also the media that passed;
    ``refused`` counts the charts that did not pass."""

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
        """Check one part of a message. A medium without bytes stays, because no notebook can draw it."""
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
        """Return the bundle without refused charts; its text says what is missing. Raises NotShown for data that is
        unreadable here but that a browser might read."""
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
    """Return a value of a bundle as a page reads it: a text, its lines, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value)
