from __future__ import annotations

from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from jupyter_ext.headless.notebook_kernel import CellOutputs


def message(kind: str, **content: Any) -> dict[str, Any]:
    return {"msg_type": kind, "header": {"msg_type": kind, "msg_id": "1"}, "content": content}


def display(kind: str, text: str, display_id: str) -> dict[str, Any]:
    return message(kind, data={"text/plain": text}, metadata={}, transient={"display_id": display_id})


def apply_messages(*messages: dict[str, Any]) -> NotebookNode:
    cell, outputs = new_code_cell(), CellOutputs()
    for one in messages:
        outputs.apply(one, cell)
    return cell


def test_an_updated_display_keeps_its_place_and_its_last_content() -> None:
    cell = apply_messages(
        display("display_data", "one", "a"),
        display("display_data", "two", "b"),
        display("update_display_data", "1", "a"),
    )
    assert [output.data["text/plain"] for output in cell.outputs] == ["1", "two"]
    assert {output.output_type for output in cell.outputs} == {"display_data"}


def test_a_later_cell_updates_the_display_of_an_earlier_one() -> None:
    outputs, first, second = CellOutputs(), new_code_cell(), new_code_cell()
    outputs.apply(display("display_data", "waiting", "a"), first)
    outputs.apply(display("update_display_data", "done", "a"), second)
    assert first.outputs[0].data["text/plain"] == "done"
    assert not second.outputs


def test_pieces_of_a_stream_are_one_output() -> None:
    cell = apply_messages(
        message("stream", name="stdout", text="a"),
        message("stream", name="stdout", text="b"),
        message("stream", name="stderr", text="c"),
    )
    assert [(output.name, output.text) for output in cell.outputs] == [("stdout", "ab"), ("stderr", "c")]


def test_clearing_with_wait_clears_when_the_next_output_comes() -> None:
    cell = apply_messages(message("stream", name="stdout", text="old"), message("clear_output", wait=True))
    assert cell.outputs[0].text == "old"
    cell = apply_messages(
        message("stream", name="stdout", text="old"),
        message("clear_output", wait=True),
        message("stream", name="stdout", text="new"),
    )
    assert [output.text for output in cell.outputs] == ["new"]


def test_the_execution_count_is_the_kernels() -> None:
    assert apply_messages(message("execute_input", execution_count=7, code="x")).execution_count == 7
