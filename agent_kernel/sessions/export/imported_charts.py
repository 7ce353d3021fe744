"""Charts in a session from elsewhere: checked as charts that leave the sandbox, since a notebook would draw them. Pure.

A chart may name an address, and whoever draws it asks that address: what the document's author put into the chart, or
what the person's page adds, leaves the machine. A chart that does not pass becomes a text that says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.messages import Media, Message, Part, Text
from agent_kernel.sandbox.host import chart_validation

BUNDLE = "application/vnd.agent-kernel.bundle+json"
"""A MIME bundle as one medium (``notebook/shown_media.py``); one of its types may be a chart."""
KINDS = ("application/vnd.plotly", "application/vnd.vega")
"""How the types of charts begin, of those that can be checked and of others."""
NOTE = "[A chart was left out: {why}.]"


class ImportedCharts:
    """The check for one document. ``blobs`` are the bytes of its media by hash, and in the end those of the media that
    passed as well; ``refused`` counts charts that did not pass."""

    def __init__(self, blobs: Mapping[str, bytes]) -> None:
        self.blobs = dict(blobs)
        self.refused = 0
        self._known: dict[tuple[str, str], Part] = {}

    def check(self, message: Message) -> Message:
        """The message with charts that are safe to draw."""
        if not any(medium.mime == BUNDLE or is_chart(medium.mime) for medium in message.media):
            return message
        return replace(message, parts=tuple(self._part(part) for part in message.parts))

    def _part(self, part: Part) -> Part:
        """A medium without bytes stays: it is nothing that anybody could draw."""
        if not isinstance(part, Media) or part.hash not in self.blobs:
            return part
        if part.mime != BUNDLE and not is_chart(part.mime):
            return part
        place = part.mime, part.hash
        if place not in self._known:
            self._known[place] = self._checked(part, self.blobs[part.hash])
        return self._known[place]

    def _checked(self, medium: Media, data: bytes) -> Part:
        try:
            safe = self._bundle(data) if medium.mime == BUNDLE else _chart(medium.mime, data)
        except chart_validation.NotShown as why:
            self.refused += 1
            return Text(NOTE.format(why=why))
        made = Media.of(medium.mime, safe)
        self.blobs[made.hash] = safe
        return Media(made.mime, made.hash, made.size)

    def _bundle(self, data: bytes) -> bytes:
        """The bundle without the charts that do not pass; its text says what is missing. Raises NotShown for what can
        not be read here, which a browser might read."""
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
        raise chart_validation.NotShown("charts of its type can not be checked")
    return chart_validation.checked(mime, data)


def _text_of(value: Any) -> str:
    """A value of a bundle as a page reads it: a text, the lines of one, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return json.dumps(value)
