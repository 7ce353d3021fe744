from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from agent_kernel.notebook.kernel.row_labels import describe_row

ROW = "row 2 of rain: month='Mar', mm=88"


@pytest.fixture
def namespace() -> dict[str, Any]:
    rain = pd.DataFrame({"month": ["Jan", "Feb", "Mar"], "mm": [60, 41, 88]})
    return {"rain": rain, "labelled": rain.set_index("month"), "word": "rain", "sorted_rain": rain.sort_values("mm")}


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(rain['mm'].idxmax())", "2\n"),
        ("rain.mm.idxmax()", "2"),
        ("wettest = rain['mm'].idxmax()\nprint(wettest)", "2"),
        ("print(rain['mm'].idxmax(), rain['mm'].max())", "2 88"),
        ("print(rain['mm'].max(), rain['mm'].idxmax())", "88 2"),
        ("rain[rain.mm > 50]['mm'].idxmax()", "2"),
    ],
)
def test_the_row_of_a_printed_row_number_is_described(code: str, output: str, namespace: dict[str, Any]) -> None:
    assert describe_row(code, output, namespace) == ROW


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(labelled['mm'].idxmax())", "Mar"),  # its labels say what they are
        ("print(sorted_rain['mm'].idxmax())", "2"),  # its row 2 is the last one
        ("print(rain.groupby('month')['mm'].sum().idxmax())", "2"),
        ("print(rain['mm'].max())", "2"),
        ("print(rain['mm'].idxmax())", "7"),
        ("print(rain['mm'].idxmax())", "Traceback: 2"),
        ("print('wettest', rain['mm'].max())", "wettest 88"),
        ("word.idxmax.idxmax()", "2"),
        ("print(unknown['mm'].idxmax())", "2"),
        ("rain['mm'].idxmax(", "2"),
        ("print(rain['mm'].idxmax())", ""),
    ],
)
def test_other_output_is_left_as_it_is(code: str, output: str, namespace: dict[str, Any]) -> None:
    assert describe_row(code, output, namespace) == ""
