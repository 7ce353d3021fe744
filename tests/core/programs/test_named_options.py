"""Tests that a program uses the functions and options that its question names."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.named_options import (
    with_named_functions,
    with_named_options,
    with_summed_column,
    with_weekday_names,
)


def test_functions_of_scipy_that_the_question_names_are_used() -> None:
    code = "a = t['v'].skew()\nb = t['v'].kurt()\n"
    meant = "a = stats.skew(t['v'].dropna())\nb = stats.kurtosis(t['v'].dropna())\n"
    assert with_named_functions(code, "Use scipy.stats.skew and scipy.stats.kurtosis.") == meant
    assert with_named_functions(meant, "Use scipy.stats.skew and scipy.stats.kurtosis.") == meant
    assert with_named_functions(code, "What are the skewness and the kurtosis?") == code


@pytest.mark.parametrize(
    ("code", "question", "meant"),
    [
        ("s = t['a'].std()", "Use ddof=0.", "s = t['a'].std(ddof=0)"),
        ("s = np.std(t['a'])", "Give the sample standard deviation.", "s = np.std(t['a'], ddof=1)"),
        ("s = t['a'].std(ddof=1)", "Use ddof=0.", "s = t['a'].std(ddof=0)"),
        ("s = t['a'].std(ddof=0)", "Use the sample standard deviation.", "s = t['a'].std(ddof=1)"),
        ("s = t['a'].std(ddof=1)", "Use ddof = 1.", ""),
        ("s = t['a'].std(ddof=d)", "Use ddof=0.", ""),
        ("s = t['a'].std()", "Z-scores with ddof=0, and the standard deviation with ddof = 1.", ""),
        ("r = stats.ttest_ind(a, b)", "Perform Welch's t-test.", "r = stats.ttest_ind(a, b, equal_var=False)"),
        (
            "r = stats.chi2_contingency(t)",
            "Without Yates' continuity correction.",
            "r = stats.chi2_contingency(t, correction=False)",
        ),
        ("r = stats.chi2_contingency(t)", "Perform the test.", ""),
        ("r = stats.chi2_contingency(t, **o)", "Use correction=False.", ""),
        ("a = f(x)", "Use random_state=42.", ""),
    ],
)
def test_an_option_that_the_question_names_is_passed(code: str, question: str, meant: str) -> None:
    assert with_named_options(code, question) == (meant or code)


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        (
            "On which weekday do most tickets come?",
            "print(t['at'].dt.weekday.value_counts().idxmax())",
            "print(t['at'].dt.day_name().value_counts().idxmax())",
        ),
        ("On which weekday is it?", "names = ['Mon', 'Tue']\nprint(names[t['at'].dt.weekday.max()])", None),
        ("On which weekday is it?", "print(t[t['at'].dt.dayofweek >= 5]['n'].sum())", None),
        ("How many are on weekends?", "print(t['at'].dt.dayofweek.max())", None),
    ],
)
def test_a_weekday_has_its_name(question: str, code: str, expected: str | None) -> None:
    assert with_weekday_names(code, question) == (code if expected is None else expected)


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        (
            "which shop sold the most units?",
            "n = t['shop'].value_counts()\nprint(n.idxmax(), n.max())",
            "n = t.groupby('shop')['units'].sum().sort_values(ascending=False)\nprint(n.idxmax(), n.max())",
        ),
        ("which shop sold most often?", "n = t['shop'].value_counts()\nprint(n.idxmax())", None),
        (
            "which shop sold the most units, and how many sales has it?",
            "n = t.groupby('shop')['units'].sum()\nprint(n.idxmax(), t['shop'].value_counts())",
            None,
        ),
        ("what are the most units?", "print(t['units'].value_counts())", None),
    ],
)
def test_most_of_a_column_is_a_sum_and_not_a_number_of_rows(question: str, code: str, expected: str | None) -> None:
    facts = ["Files: s.csv: CSV read by pd.read_csv('s.csv'), 9 rows x 2 columns: shop str, units int64"]
    assert with_summed_column(code, question, facts) == (code if expected is None else expected)
