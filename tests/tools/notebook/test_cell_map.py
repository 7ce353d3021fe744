from __future__ import annotations

from typing import Any

import nbformat.v4 as nb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.notebook.cell_map import NotebookCell, cells_of, map_cells, read, select_cells

NOTEBOOK: dict[str, Any] = nb.new_notebook(
    cells=[
        nb.new_markdown_cell("# Title", id="title"),
        nb.new_code_cell(
            "x = 1\nx",
            id="value",
            execution_count=1,
            outputs=[
                nb.new_output("stream", name="stdout", text="\x1b[31mred\x1b[0m\n"),
                nb.new_output("execute_result", {"text/plain": "1", "text/html": "<b>1</b>"}, execution_count=1),
            ],
        ),
        nb.new_code_cell(
            "1/0",
            id="broken",
            outputs=[nb.new_output("error", ename="ZeroDivisionError", evalue="no", traceback=["Trace", "no"])],
        ),
        nb.new_code_cell(
            "plot()",
            id="plot",
            outputs=[
                nb.new_output("display_data", {"image/png": "A" * 4000, "text/plain": "<Figure>"}),
                nb.new_output("display_data", {"text/html": "<p>only html</p>"}),
            ],
        ),
    ]
)
CELLS = cells_of(NOTEBOOK)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cells", "id", "source", "outputs", "output_type", "text", "data", "image/png", "traceback"]
            )
            | st.text(max_size=4),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


def test_a_map_has_a_line_for_each_cell() -> None:
    assert map_cells(CELLS).splitlines() == [
        "0 title markdown: # Title",
        "1 value code: x = 1  (In[1], 2 lines, 2 outputs)",
        "2 broken code: 1/0  (failed: ZeroDivisionError)",
        "3 plot code: plot()  (2 outputs)",
    ]


def test_a_long_notebook_is_mapped_in_parts() -> None:
    many = [NotebookCell(index, f"c{index}", "code", "x " * 500, None, ()) for index in range(120)]
    first = map_cells(many)
    assert len(first) < 6_000
    assert first.endswith("70 more: notebook_cells(start=50)")
    assert map_cells(many, 100).startswith("100 c100 code")
    assert map_cells(many, 500) == "It has 120 cells; there is none from 500 on."


def test_outputs_are_read_as_text_without_colours_and_pictures_by_name() -> None:
    assert read(CELLS[1:2]) == "[1 value code In[1]]\nx = 1\nx\n--> red\n1"
    assert read(CELLS[2:3]) == "[2 broken code]\n1/0\n--> Trace\nno"
    assert read(CELLS[3:4]).splitlines()[2:] == [
        "--> [image/png, 3,000 bytes]",
        "<Figure>",
        "[text/html, 16 characters]",
    ]


def test_cells_are_chosen_by_number_range_id_and_execution() -> None:
    cells, executed = select_cells(CELLS, "2-3, value, In[7], 0-0")
    assert [cell.id for cell in cells] == ["broken", "plot", "value", "title"]
    assert executed == [7]


@pytest.mark.parametrize("wanted", ["nowhere", "9", "", "-1", "1; 2"])
def test_a_choice_of_nothing_is_the_models_mistake_said_in_words(wanted: str) -> None:
    with pytest.raises(InvalidRequest, match="There is no cell"):
        select_cells(CELLS, wanted)


def test_what_does_not_fit_is_named_and_not_cut_in_the_middle_of_nothing() -> None:
    many = [NotebookCell(index, f"c{index}", "code", "y" * 3_000, None, ()) for index in range(10)]
    text = read(many)
    assert len(text) < 6_000
    assert "cells did not fit: " in text
    assert "characters left out" in text


@settings(max_examples=150, deadline=None)
@given(ANYTHING)
def test_whatever_the_file_holds_it_is_read_without_an_error(content: Any) -> None:
    for notebook in (content if isinstance(content, dict) else {}, {"cells": content}, {"cells": [content]}):
        cells = cells_of(notebook)
        map_cells(cells)
        assert len(read(cells)) < 12_000


def test_prompt_cells_are_named_so_that_their_text_is_not_taken_for_code() -> None:
    asked = {"cell_type": "code", "id": "abcd", "source": "plot df", "metadata": {"agent_kernel": {"ask": True}}}
    cells = cells_of({"cells": [asked, {**asked, "metadata": {}}, {**asked, "cell_type": "markdown"}]})
    assert map_cells(cells) == "0 abcd prompt: plot df\n1 abcd code: plot df\n2 abcd markdown: plot df"
    assert read(cells[:1]) == "[0 abcd prompt]\nplot df"
    assert [cell.is_agent_cell for cell in cells] == [True, False, False]
