"""Tests that a program uses the functions, options and ranges that its question names."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.program_rules import follow_question

AGES = "Count them: child (0 to 17), young (18 to 39), middle (40 to 64), senior (65 and older)."
FILLED = "t['a'] = t['a'].fillna(0)\n"


def test_functions_of_scipy_that_the_question_names_are_used() -> None:
    code = "a = t['v'].skew()\nb = t['v'].kurt()\n"
    meant = "a = stats.skew(t['v'].dropna())\nb = stats.kurtosis(t['v'].dropna())\n"
    assert follow_question(code, "Use scipy.stats.skew and scipy.stats.kurtosis.") == meant
    assert follow_question(meant, "Use scipy.stats.skew and scipy.stats.kurtosis.") == meant
    assert follow_question(code, "What are the skewness and the kurtosis?") == code


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
    assert follow_question(code, question) == (meant or code)


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("pd.cut(t['a'], [0, 17, 39, 64, 200], right=False)", "pd.cut(t['a'], [0, 18, 40, 65, 200], right=False)"),
        ("pd.cut(t['a'], bins=[0, 18, 40, 65, 200])", "pd.cut(t['a'], bins=[0, 18, 40, 65, 200], right=False)"),
        ("b = [0, 17, 39, 64, 200]\npd.cut(x, b)", "b = [0, 17, 39, 64, 200]\npd.cut(x, b, include_lowest=True)"),
        ("pd.cut(t['a'], [-1, 17, 39, 64, 200])", "pd.cut(t['a'], [-1, 17, 39, 64, 200])"),
        ("pd.cut(t['a'], [0, 18, 40, 65, 200], right=False)", "pd.cut(t['a'], [0, 18, 40, 65, 200], right=False)"),
        ("pd.cut(t['a'], 4)", "pd.cut(t['a'], 4)"),
    ],
)
def test_bins_count_both_ends_of_the_ranges_of_the_question(code: str, meant: str) -> None:
    assert follow_question(code, AGES) == meant
    assert follow_question(code, "Count them by age.") == code


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        ("What is the average a?", f"{FILLED}print(t['a'].mean())", "print(t['a'].mean())"),
        ("What is the average a? Missing ones are zero.", f"{FILLED}print(t['a'].mean())", None),
        ("Count an empty a as 0 in the average.", f"{FILLED}print(t['a'].mean())", None),
        ("What is the total of a?", f"{FILLED}print(t['a'].sum())", None),
        ("What is the average a?", "t['a'] = t['a'].fillna(t['b'])\nprint(t['a'].mean())", None),
    ],
)
def test_missing_values_are_no_zeros_in_a_mean_unless_the_question_says_so(
    question: str, code: str, expected: str | None
) -> None:
    assert follow_question(code, question) == (code if expected is None else expected)
