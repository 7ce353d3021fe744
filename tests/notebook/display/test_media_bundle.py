from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent_kernel.notebook.display.media_bundle import TABLE, media_bundle

BODY: dict[str, Any] = {
    "columns": [{"name": "<b>m", "type": "object"}, {"name": "v", "type": "float64"}],
    "index": [0, 1],
    "rows": [["<script>x</script>", 1.5], ["b", None]],
    "shape": [500, 2],
}


def encode_body(body: Any) -> str:
    return base64.b64encode(json.dumps(body).encode()).decode()


def test_a_table_is_drawn_from_its_cells_with_nothing_of_them_as_markup() -> None:
    bundle = media_bundle(TABLE, encode_body(BODY), "table")
    assert "&lt;script&gt;x&lt;/script&gt;" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "500 rows x 2 columns, of which 2 x 2 are shown" in bundle["text/plain"]
    assert set(bundle) == {"text/html", "text/plain"}


def test_a_whole_table_without_labels_says_its_shape_only() -> None:
    bundle = media_bundle(TABLE, encode_body(BODY | {"index": [], "shape": [2, 2]}), "table")
    assert bundle["text/plain"].endswith("\n2 rows x 2 columns")


def test_a_chart_is_an_object_and_a_picture_stays_base64() -> None:
    mime = "application/vnd.plotly.v1+json"
    assert media_bundle(mime, encode_body({"data": []}), "chart") == {mime: {"data": []}, "text/plain": "[chart]"}
    assert media_bundle("image/png", "iVBO", "plot") == {"image/png": "iVBO", "text/plain": "[plot]"}


@pytest.mark.parametrize("body", [{}, [], {"columns": [{}], "index": [], "rows": [], "shape": []}, {**BODY, "rows": 3}])
def test_what_is_no_table_is_told_in_words(body: Any) -> None:
    assert media_bundle(TABLE, encode_body(body), "table") == {"text/plain": "[table]"}
