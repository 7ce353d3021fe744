from __future__ import annotations

import json

import pytest

from jupyter_ext.api.http.sse import encode


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029", "\x0b", "\x1c", "\r\n", "\ud800", "é"])
def test_an_event_is_one_data_line_for_every_reader_of_lines(odd: str) -> None:
    body = encode({"text": f"a{odd}b"}, "text.delta", 7).decode()
    assert body.splitlines()[:2] == ["id: 7", "event: text.delta"]
    [data] = [line for line in body.splitlines() if line.startswith("data: ")]
    assert json.loads(data[6:]) == {"text": f"a{odd}b"}
    assert body.endswith("\n\n")
