"""Tests an agent cell in a file: converted, printed, and read without this package."""

from __future__ import annotations

from typing import Any

import nbformat
from nbconvert import HTMLExporter

from tests.notebook.notebook import Notebook

SCRIPT = [
    {
        "when": "everything",
        "reasoning": "Let me see.",
        "calls": [{"name": "python", "arguments": {"code": "plt.plot([1])"}}],
    },
    {
        "when": "everything",
        "text": "A **bold** word, <script>alert(1)</script> and\n\n```html\n<script>alert(2)</script>\n```\n",
    },
]


async def test_each_output_is_rendered_once_and_nothing_of_the_model_is_markup(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in live\neverything")
    cell = nbformat.v4.new_code_cell("%%agent\neverything", outputs=[nbformat.from_dict(out) for out in ran.outputs])
    book = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(book)
    exporter: Any = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    html: str = exporter.from_notebook_node(book)[0]
    assert html.count("<strong>bold</strong>") == 1
    assert html.count("A <strong>") == 1
    assert html.count("tokens read") == 1
    assert html.count("<summary") == 2
    assert html.count("data:image/png;base64,") == 1
    assert "alert(1)" in html
    assert "<script>alert" not in html
