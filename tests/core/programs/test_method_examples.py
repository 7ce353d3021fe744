"""Tests that a question which names a statistical method gets an example of it, and that the examples are right."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from agent_kernel.core.programs.method_examples import EXAMPLES, MAX_EXAMPLES, method_examples

VALUES = pd.DataFrame({"a": [1.0, 2.0, 3.0, None, 2.5, 90.0], "b": [2.0, 1.0, 4.0, 3.0, 5.0, 6.0]})


@pytest.mark.parametrize(
    ("question", "example"),
    [
        ("Count the outliers by the Z-score method.", "z.abs() > 3"),
        ("Which values lie outside of 1.5 times the IQR?", "quantile(0.25)"),
        ("Is it normal by the Shapiro-Wilk test?", "stats.shapiro"),
        ("The Spearman correlation of a and b", "method='spearman'"),
        ("The Pearson correlation, with its p-value", "stats.pearsonr"),
        ("Fit an ordinary least squares regression.", "stats.linregress"),
        ("Train a logistic regression.", "accuracy_score"),
        ("Which two of the columns have the strongest correlation?", "idxmax()"),
        ("Encode the colour by one-hot columns.", "get_dummies"),
        ("Are weekends warmer?", "dayofweek >= 5"),
        ("Which shop sold the most in Q2?", "dt.quarter == 3"),
        ("How many hourly readings are missing?", ".difference(dates)"),
        ("What is the longest gap between two visits?", "diff()"),
        ("Fit a straight line of price over km.", "np.polyfit"),
        ("Which shop has the highest percentage of late orders?", ".groupby(t['c']).mean()"),
        ("Rain as bars and the temperature on a second y axis, please.", "twinx()"),
        ("Show the sums by quarter.", "columns=dates.dt.quarter"),
        ("Plot the totals, one line per source.", "columns='a'"),
        ("In which month did the revenue fall most?", "idxmin()"),
    ],
)
def test_a_question_that_names_a_method_gets_an_example(question: str, example: str) -> None:
    assert example in method_examples(question)


def test_other_questions_get_none() -> None:
    for question in (
        "What is the mean of a?",
        "The Pearson correlation of a and b",
        "Plot the weekly totals.",
        "On how many days is there a missing value?",
        "Fit least squares with scikit-learn.",
        "",
    ):
        assert method_examples(question) == ""


def test_a_question_about_everything_gets_few_examples() -> None:
    found = method_examples("z-score, IQR, Shapiro, Kolmogorov, Spearman, Pearson with p-value, weekend")
    assert sum(code in found for _, code in EXAMPLES) == MAX_EXAMPLES


def test_the_example_of_the_strongest_correlation_runs_and_finds_it() -> None:
    (code,) = (code for words, code in EXAMPLES if words.search("Which pair has the highest correlation?"))
    *statements, value = code.split("; ")
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "b": [2.0, 1.0, 4.0, 3.0], "d": [-1.0, -2.0, -3.0, -6.0]})
    names = {"t": table, "np": np}
    exec("\n".join(statements), names)
    assert (names["first"], names["second"]) == ("a", "d")
    assert eval(value, names) == pytest.approx(table["a"].corr(table["d"]))


def test_the_examples_of_outliers_run_and_find_them() -> None:
    scores, quartiles = (code for words, code in EXAMPLES if words.search("z-score") or words.search("IQR"))
    for code, outliers in ((scores.replace("> 3", "> 1.9"), 1), (quartiles, 1)):
        *statements, _, rest = code.split("; ")
        names = {"t": VALUES, "c": VALUES["a"]}
        exec("\n".join(statements), names)
        assert eval("is_outlier.sum()", names) == outliers
        assert len(eval(rest, names)) == len(VALUES) - outliers
        assert np.isclose(eval(rest, names)["a"].max(), 3.0)


def test_the_examples_about_dates_and_lines_run_and_find_their_values() -> None:
    dates = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-05"]))
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, None], "b": [3.0, 5.0, 7.0, 1.0]})
    monthly = pd.Series([100.0, 80.0, 90.0], ["Jan", "Feb", "Mar"])
    names = {"t": table, "np": np, "pd": pd, "dates": dates, "monthly": monthly}
    for question in ("missing days", "longest gap between two", "the slope", "the revenue fell most in a month"):
        (code,) = (code for words, code in EXAMPLES if words.search(question))
        exec("\n".join(code.split("; ")), names)
    assert len(names["missing"]) == 2
    assert names["gaps"].max() == pd.Timedelta(days=3)
    assert (round(names["slope"]), round(names["intercept"])) == (2, 1)
    assert names["change"].idxmin() == "Feb"
