from __future__ import annotations

import pytest

from agent_kernel.notebook.kernel.prose_detection import reads_like_prose


@pytest.mark.parametrize(
    "text",
    [
        "plot sales by month",
        "What is the mean of temp_max, please",
        "Which tea in teas.csv is the dearest?",
        "for each month show the three largest values",
        "Wie viele Zeilen hat die Tabelle?",
        "Show the rows (only 2024)\nand the columns",
        "画出每月的销售额，并解释。",
    ],
)
def test_a_sentence_is_prose(text: str) -> None:
    assert reads_like_prose(text)


@pytest.mark.parametrize(
    "code",
    [
        "pritn 'hello'",
        "for x in range(10) print(x)",
        "df = pd.read_csv('a.csv'",
        "if x = 3:\n    pass",
        "import numpy as as np",
        "from a import b c",
        "def f(x)\n    return x",
        "class A B",
        "x y",
        "print hello",
        "return not in a function",
        "values[0]] + 1",
        "# plot sales by month\nx = = 1",
        "%timeit plot sales by month",
        "!plot sales by month",
        "a is not b c",
        "",
    ],
)
def test_code_with_a_typing_error_is_no_prose(code: str) -> None:
    assert not reads_like_prose(code)
