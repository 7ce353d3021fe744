from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from agent_kernel.notebook.kernel.row_number_replacement import with_row_values

ROW = "month='Mar', mm=88 (row 2 of rain)"


@pytest.fixture
def namespace() -> dict[str, Any]:
    rain = pd.DataFrame({"month": ["Jan", "Feb", "Mar"], "mm": [60, 41, 88]})
    return {"rain": rain, "labelled": rain.set_index("month"), "word": "rain", "sorted_rain": rain.sort_values("mm")}


@pytest.mark.parametrize(
    ("code", "output", "shown"),
    [
        ("print(rain['mm'].idxmax())", "2\n", ROW),
        ("rain.mm.idxmax()", "2", ROW),
        ("wettest = rain['mm'].idxmax()\nprint(wettest)", "2", ROW),
        ("print(rain['mm'].idxmax(), rain['mm'].max())", "2 88", f"{ROW} 88"),
        ("print(rain['mm'].max(), rain['mm'].idxmax())", "88 2", f"88 {ROW}"),
        ("print(rain['mm'].idxmax(), 88)", "2 88\n[1 figure(s) shown]", f"{ROW} 88\n[1 figure(s) shown]"),
        ("rain[rain.mm > 50]['mm'].idxmax()", "2", ROW),
    ],
)
def test_a_printed_row_number_becomes_the_values_of_the_row(
    code: str, output: str, shown: str, namespace: dict[str, Any]
) -> None:
    assert with_row_values(code, output, namespace) == shown


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
    assert with_row_values(code, output, namespace) == output
