"""Tests that a program uses the functions, options and ranges that its question names."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.program_rules import follow_question
from agent_kernel.core.programs.question_mistakes import with_summed_column

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
    assert follow_question(code, question) == (code if expected is None else expected)


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


def test_a_row_is_compared_with_the_one_before_it_of_the_same_group() -> None:
    reads = "log = pd.read_csv('log.csv', parse_dates=['day'])\n"
    code = reads + "log['gap'] = log['day'].diff().dt.days\nprint(log.loc[log['gap'].idxmax(), 'machine'])"
    question = "What is the longest gap between two services of the same machine?"
    in_groups = "log.sort_values('day').groupby('machine')['day'].diff()"
    assert follow_question(code, question) == code.replace("log['day'].diff()", in_groups)
    assert follow_question(code.replace(", parse_dates=['day']", ""), question).count("log.groupby('machine')") == 1
    assert follow_question(code, "What is the longest gap between two services?") == code
    assert follow_question(code, "What is the longest gap between two services of the same kind?") == code


@pytest.mark.parametrize(
    ("condition", "question", "meant"),
    [
        ("(t['len_s'] >= 60) & (t['len_s'] <= 18000)", "Drop trips under 1 minute or over 3 hours.", "10800"),
        ("t['Time (min)'] > 3", "How many took over 3 hours?", "180"),
        ("t['len_s'] > 3 * 3600", "How many took over 3 hours?", ""),
        ("t['len_s'] > 10800", "How many took over 3 hours?", ""),
        ("t['points'] > 4", "How many took over 3 hours?", ""),
        ("t['len_s'] > 0", "How many took over 3 hours?", ""),
        ("t['len_s'] == True", "How many took over 3 hours?", ""),
        ("(t['len_s'] > 4) & (t['len_s'] < 5)", "How many took over 3 hours?", ""),
    ],
)
def test_a_duration_is_compared_in_the_unit_of_the_column(condition: str, question: str, meant: str) -> None:
    code = f"print(({condition}).sum())"
    wrong = condition.rpartition(" ")[2].removesuffix(")")
    expected = code.replace(wrong, meant) if meant else code
    assert follow_question(code, question) == expected


def test_rows_with_a_gap_in_an_unused_column_count() -> None:
    after = "t['sum'] = t['a'] + t['b']\nprint(t.groupby('kind')['c'].mean(), t['sum'].max(), other['d'])"
    for code, meant in (
        ("t.dropna(inplace=True)\n", "t.dropna(subset=['a', 'b', 'c'], inplace=True)\n"),
        ("t = t.dropna()\n", "t = t.dropna(subset=['a', 'b', 'c'])\n"),
        ("u = v.dropna()\n", "u = v.dropna()\n"),
        ("t = t.dropna()\nt = t.pivot()\n", "t = t.dropna()\nt = t.pivot()\n"),
        ("t = t.dropna(axis=1)\n", "t = t.dropna(axis=1)\n"),
    ):
        assert follow_question(code + after, "Mean of c?") == meant + after
        assert follow_question(code + after, "Mean of c without missing values?") == code + after
        assert follow_question(code + after, "Mean of c in complete rows?") == code + after


def test_complete_rows_of_some_columns_are_not_complete_rows_of_all() -> None:
    question = "Drop the rows with a missing value in any of these two columns, a and b. Mean of a by b?"
    code = "t = t.dropna(subset=['a', 'b', 'Lot'])\nprint(t.groupby('b')['a'].mean())"
    assert follow_question(code, question) == code.replace(", 'Lot'", "")


@pytest.mark.parametrize(
    ("question", "subset"),
    [
        ("What is the mean of the miles per gallon? Ignore missing values.", "['Miles_per_Gallon']"),
        ("What is the mean of the miles per gallon where the horsepower is known?", None),
        ("What is the mean of the miles per gallon of the complete rows?", None),
    ],
)
def test_rows_are_not_dropped_for_a_column_that_has_nothing_to_do_with_the_question(
    question: str, subset: str | None
) -> None:
    code = "t = t.dropna(subset={})\nprint(t['Miles_per_Gallon'].mean())"
    both = "['Miles_per_Gallon', 'Horsepower']"
    assert follow_question(code.format(both), question) == code.format(subset or both)
    neither = code.format("['Weight']")
    assert follow_question(neither, "Mean of the range?") == code.format("['Miles_per_Gallon']")
    assert follow_question(neither, "Mean of the range where nothing is missing?") == neither
    other = code.format(both) + "\nprint(t['Horsepower'].max())"
    assert follow_question(other, question) == other


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        ("Make a pivot and keep it as piv", "p = t.pivot()\nprint(p)", "p = t.pivot()\npiv = p\nprint(piv)"),
        (
            "keep the 3 players with the most points of each club as top3 (a dataframe)",
            "print(t.head(3))",
            "top3 = t.head(3)\nprint(top3)",
        ),
        ("keep the rows that have a date as they are", "print(t.head(3))", None),
        ("A table named best, please.", "t.head(3)", "best = t.head(3)\nbest"),
        ("Store the sums in `sums`.", "sums = t.sum()\nprint(sums)", None),
        ("Save it as sums.csv", "print(t.sum())", None),
        ("Keep it in memory.", "print(t.sum())", None),
        ("Keep it as piv", "print(f'{t}')", None),
    ],
)
def test_a_result_gets_the_name_that_the_question_gives(question: str, code: str, expected: str | None) -> None:
    assert follow_question(code, question) == (code if expected is None else expected)


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        (
            "Accuracy on the test rows in percent, 1 decimal?",
            "a = accuracy_score(y, p)\nprint(a)",
            "a = accuracy_score(y, p) * 100\nprint(a)",
        ),
        ("What is the accuracy in percent?", "print(accuracy_score(y, p) * 100)", None),
        ("What is the accuracy in percent?", "print(f'{accuracy_score(y, p):.1%}')", None),
        ("What is the accuracy?", "print(accuracy_score(y, p))", None),
    ],
)
def test_an_accuracy_is_given_in_percent_if_the_question_asks_for_it(
    question: str, code: str, expected: str | None
) -> None:
    assert follow_question(code, question) == (code if expected is None else expected)


def test_the_case_of_a_label_does_not_matter_for_the_most_of_it() -> None:
    facts = ["Files: s.csv: CSV read by pd.read_csv('s.csv'), 9 rows x 2 columns: shop str, Units int64"]
    code = "print(t['shop'].value_counts().idxmax())"
    sums = "print(t.groupby('shop')['Units'].sum().sort_values(ascending=False).idxmax())"
    assert with_summed_column(code, "which shop sold the most units?", facts) == sums


def test_the_numbers_of_things_are_added_and_rows_without_such_a_column_are_counted() -> None:
    code = "print(t['ward'].value_counts().idxmax())"
    facts = "Files: t.csv: CSV read by pd.read_csv('t.csv'), 9 rows x 2 columns: ward str, {} int64"
    sums = "print(t.groupby('ward')['n'].sum().sort_values(ascending=False).idxmax())"
    question = "Which ward had the most visits?"
    assert with_summed_column(code, question, [facts.format("n")]) == sums
    assert with_summed_column(code, question, [facts.format("age")]) == code
    assert with_summed_column(code, "Which ward is it?", [facts.format("n")]) == code
