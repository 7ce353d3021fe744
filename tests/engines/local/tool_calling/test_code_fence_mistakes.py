"""Tests the mistakes of a small model's programs that end with no error."""

from __future__ import annotations

import textwrap

import pandas as pd
import pytest

from agent_kernel.core.file_facts.computed_columns import describe_amount, describe_duration
from agent_kernel.core.file_facts.text_columns import describe_conversion
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import (
    MissingLine,
    find_missing_column,
    find_missing_conversion,
    surplus_rows,
    unchanged_function,
    with_check,
)
from agent_kernel.notebook.kernel.variable_summary import summary
from tests.narrowing import instance_of, not_none

TABLE = "species\nAdelie       3600.5\nGentoo       5076.0\nName: mass, dtype: float64"
FLATS = pd.DataFrame(
    {
        "city": ["Rome", "rome ", "Paris"],
        "rent": ["€ 980", "€ 1,150", "€ 745"],
        "betrag": ["1.250,50", "84,50", "3"],
        "points": [14, "absent", 16.5],
        "paid": ["True", "false", "true"],
        "since": ["3.1.2025", "31.1.2025", "1.2.2025"],
        "kind": ["Loft", "loft", "House"],
        "owner": ["Ada", "Ada ", "Bo"],
    }
)
FACTS = ["Variables: " + summary("flats", FLATS)]

LONG = "\n".join([*(f"{number}  {number}.5" for number in range(10)), "Name: units, Length: 240, dtype: float64"])


@pytest.mark.parametrize(
    ("question", "output", "rows"),
    [
        ("What is the total revenue?", LONG, 240),
        ("What is the average revenue per order?", LONG, 0),
        ("Wie hoch ist der durchschnittliche Umsatz?", LONG, 240),
        ("Which order has the highest revenue?", LONG.replace("240", "17"), 17),
        ("Which order has the highest revenue?", LONG.rpartition("\n")[0], 10),
        ("Show the revenue.", LONG, 0),
        ("What is the total revenue?", "157577.0", 0),
        ("What is the total revenue?", TABLE, 0),
        ("What is the mean revenue of each month?", LONG.replace("240", "12"), 0),
    ],
)
def test_a_question_for_one_value_has_surplus_rows_where_the_code_prints_many(
    question: str, output: str, rows: int
) -> None:
    assert surplus_rows(output, question) == rows


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("print(flats['rent'].mean())", [980.0, 1150.0, 745.0]),
        ('print(flats.loc[flats["rent"].idxmax(), "city"])', [980.0, 1150.0, 745.0]),
        ("print(flats[flats.rent > 800])", [980.0, 1150.0, 745.0]),
        ("print(flats['betrag'].sum())", [1250.5, 84.5, 3.0]),
        ("print(flats['points'].max())", [14.0, None, 16.5]),
        ("print((flats['city'] == 'Rome').sum())", ["rome", "rome", "paris"]),
        ("flats[flats['city'].str.contains('Rome')]", ["rome", "rome", "paris"]),
        ("print(flats['city'].nunique())", ["rome", "rome", "paris"]),
        ("print(flats[flats['city'].str.lower() == 'rome'])", ["rome", "rome", "paris"]),
        ("print(flats['city'].str.strip().value_counts())", ["rome", "rome", "paris"]),
        ("print((flats['kind'] == 'loft').sum())", ["loft", "loft", "house"]),
        ("print((flats['owner'].str.lower() == 'ada').sum())", ["ada", "ada", "bo"]),
        ("print(flats[flats['points'].isna()].shape[0])", [14.0, None, 16.5]),
        ("print(flats[flats['paid'] == 'True'].shape[0])", [True, False, True]),
        (
            "print(flats['since'].min())",
            [pd.Timestamp(2025, 1, 3), pd.Timestamp(2025, 1, 31), pd.Timestamp(2025, 2, 1)],
        ),
    ],
)
def test_code_that_uses_text_without_converting_it_lacks_a_line_that_converts_it(
    code: str, values: list[object]
) -> None:
    missing = not_none(find_missing_conversion(code, FACTS))
    assert not missing.is_named
    assert missing.line.endswith("\n")
    assert find_missing_conversion(missing.line + code, FACTS) is None
    namespace: dict[str, object] = {"pd": pd, "flats": FLATS}
    exec(missing.line, namespace)
    column = instance_of(pd.Series, namespace[missing.line.partition(" =")[0]])
    assert [None if pd.isna(value) else value for value in column] == values


def test_code_that_uses_the_converted_column_lacks_only_the_line_that_makes_it() -> None:
    missing = not_none(find_missing_conversion("print(flats.loc[rent_number.idxmax(), 'city'])", FACTS))
    assert missing.is_named


@pytest.mark.parametrize(
    "code",
    [
        "print(flats)",
        "print(flats['rent'])",
        "rent = flats['rent'].str.strip('€ ').astype(float)\nprint(rent.mean())",
        "print(pd.to_numeric(flats['points'], errors='coerce').mean())",
        "print(other['rent'].mean())",
        "flats[flats['city'].str.contains('rome', case=False)]",
        "print((flats['city'].str.strip().str.lower() == 'rome').sum())",
        "print((flats['kind'].str.lower() == 'loft').sum())",
        "print(flats['owner'].str.strip().nunique())",
        "df = pd.read_csv('flats.csv')\nprint(df['rent'].mean())",
        "print(rent_number.mean()",
        "rent_number = 3\nprint(rent_number, len(flats))",
    ],
)
def test_code_that_converts_or_only_shows_a_column_lacks_nothing(code: str) -> None:
    assert find_missing_conversion(code, FACTS) is None


def test_code_that_computes_with_times_gets_their_durations() -> None:
    fact = describe_conversion("runs", "finish", ["3:41:07", "4:02:55", "DNF"])
    missing = not_none(
        find_missing_conversion("runs['slow'] = runs['finish'] / 2", [f"Files: runs: DataFrame\n{fact}"])
    )
    assert missing.line == "finish_time = pd.to_timedelta(runs['finish'], errors='coerce')\n"


def test_a_column_of_a_file_is_converted_only_if_the_code_gives_its_table_the_name_in_the_fact() -> None:
    fact = "x['a'] holds text. Convert it first: a_number = pd.to_numeric(x['a'], errors='coerce')"
    assert find_missing_conversion("df = pd.read_csv('x.csv')\nprint(a_number)", [f"Files: x.csv: CSV\n{fact}"]) is None
    assert find_missing_conversion("x = pd.read_csv('x.csv')\nprint(a_number)", [f"Files: x.csv: CSV\n{fact}"])


@pytest.mark.parametrize(
    "fact",
    [
        "t['a'] holds text. Convert it first: a_number = __import__('os').system('id')",
        "t['a'] holds text. Convert it first: a_number = pd.to_numeric(t['a'], errors='coerce'); x = 1",
        "t['a'] holds text. Convert it first: a_number = pd.to_numeric(u['b'], errors='coerce')",
        "    t['a'] holds text. Convert it first: a_number = pd.to_numeric(t['a'], errors='coerce')",
        "t['a\\'] + x['b'] holds text. Convert it first: a_number = pd.to_numeric(t['a'], errors='coerce')",
    ],
)
def test_data_that_look_like_a_fact_add_no_code(fact: str) -> None:
    assert (
        find_missing_conversion("print(t['a'].sum())", [f"Variables: t: DataFrame\nx values: {fact}\n{fact}"]) is None
    )


NET = "def net(gross, vat=0.19):\n    # without tax\n\n    return gross * (1 - vat)"
MEAN = "def mean(values):\n    return sum(values) / len(values)"
FUNCTIONS = [
    f"Variables: net: function net(gross, vat), defined by\n{textwrap.indent(NET, '    ')}\n"
    f"mean: function mean(values), defined by\n{textwrap.indent(MEAN, '    ')}\nrates: list of 1: 0.19"
]


@pytest.mark.parametrize(
    ("question", "code", "name"),
    [
        ("net(119) should be 100. Correct net.", NET, "net"),
        ("Korrigiere net.", "def net(gross, vat=0.19):\n    return gross * (1-vat)\nprint(net(119))", "net"),
        ("Fix mean.", MEAN, "mean"),
        ("Fix net.", NET.replace("* (1 - vat)", "/ (1 + vat)"), ""),
        ("Fix net so that it uses mean.", f"{MEAN}\n{NET.replace('0.19', 'mean([0.19])')}", ""),
        ("Fix net.", f"def tax(gross):\n    return gross\n{NET}", ""),
        ("Fix net.", "print(net(119)", ""),
        ("What does net(119) return?", f"{NET}\nprint(net(119))", ""),
        ("Fix gross.", "def gross(net):\n    return net", ""),
    ],
)
def test_code_that_defines_the_function_to_be_changed_as_it_was_is_recognised(
    question: str, code: str, name: str
) -> None:
    assert unchanged_function(code, FUNCTIONS, question) == name


@pytest.mark.parametrize(
    ("question", "passes", "fails"),
    [
        ("net(119) should be 100. Fix net.", "100.0000001", "96.39"),
        ("net([1, 2]) gives 3 but should be 2.25.", "2.254", "2.26"),
        ("net('A B') returns 'A', but I want both: 'AB'.", "'AB'", "'A'"),
        ("net(119, vat=0.07) gives 3, expected [1, 'x'].", "[1, 'x']", "[1, 'y']"),
        ("net(-1) should return None, not 0!", "None", "0"),
        ("net([]) crashes, it shoud return 0 there. Fix it.", "0", "1"),
        ("net('a') sollte \"it's\" ergeben.", '"it\'s"', "'its'"),
    ],
)
def test_a_function_is_checked_with_the_example_that_the_question_gives(question: str, passes: str, fails: str) -> None:
    for returned, is_right in ((passes, True), (fails, False)):
        code = with_check(f"def net(*values, **options):\n    return {returned}\n\nnet(1)", [], question)
        assert code.splitlines()[-1] == "net(1)", "the last value is still displayed"
        assert with_check(code, [], question) == code
        if is_right:
            exec(code, {})
            continue
        with pytest.raises(AssertionError, match=r"net\(.*\) should be .*, but is "):
            exec(code, {})


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("What does net(119) return? It should be 100.", "print(net(119))"),
        ("other(119) should be 100. Fix other.", "print(net(119))"),
        ("net(119) should be 100. Is it?", "print(net(119))"),
        ("net(x) should be 100.", NET),
        ("net(__import__('os').getpid()) should be 100.", NET),
        ("net(119) should not be 100.", NET),
        ("net(119) should be 100 lines long.", NET),
        ("net(119) should be fast.", NET),
        ("net(1190) should be 1,000.", NET),
        ("Fix net so that net(119) returns 100 instead of 96.39.", NET),
        ("other(119) should be 100.", NET),
        ("net(119) should be 100.", "def net(gross):\nreturn 100"),
    ],
)
def test_code_gets_no_check_that_the_question_does_not_state(question: str, code: str) -> None:
    assert with_check(code, FUNCTIONS, question) == code


@pytest.mark.parametrize(
    "code", ["net = lambda gross, vat=0.19: gross * (1 - vat)\nprint(net(119))", "print(net(119))"]
)
def test_a_function_that_the_question_asks_to_change_is_checked_however_the_code_changes_it(code: str) -> None:
    *_, check, last = with_check(f"x = 1\n{code}", FUNCTIONS, "net(119) should be 100. Fix net.").splitlines()
    assert check.startswith("assert abs(net(119) - 100) <= 0.005, ")
    assert last == "print(net(119))"


AMOUNTS = f"Files: o.csv: CSV\n{describe_amount('o', ['qty', 'unit_price'])}"
LINE = "o['amount'] = o['qty'] * o['unit_price']\n"


@pytest.mark.parametrize(
    "question", ["What is the revenue per city?", "Who spent the most?", "Wie hoch ist der Umsatz?"]
)
def test_a_program_that_sums_prices_lacks_the_amounts(question: str) -> None:
    missing = find_missing_column("print(o.groupby('city')['unit_price'].sum())", [AMOUNTS], question)
    assert missing == MissingLine(LINE, is_named=False)
    missing = find_missing_column("print(o.groupby('city')['amount'].sum())", [AMOUNTS], question)
    assert missing == MissingLine(LINE, is_named=True)


@pytest.mark.parametrize(
    ("question", "code", "facts"),
    [
        ("What is the revenue?", "print((o['qty'] * o['unit_price']).sum())", AMOUNTS),
        ("What is the average price?", "print(o['unit_price'].mean())", AMOUNTS),
        ("What is the revenue?", "print(p['revenue'].sum())", AMOUNTS),
        (
            "What is the revenue?",
            "print(o['unit_price'].sum())",
            "\n".join(f"    {one}" for one in AMOUNTS.split("\n")),
        ),
        ("What is the revenue?", "print(o['unit_price'].sum())", AMOUNTS.replace("'qty'", "'qty']; import os; o['a'")),
    ],
    ids=["uses both", "other question", "other table", "quoted data", "other code"],
)
def test_a_program_that_needs_no_amounts_lacks_none(question: str, code: str, facts: str) -> None:
    assert find_missing_column(code, [facts], question) is None


DURATIONS = f"Files: s.csv: CSV\n{describe_duration('s', ['sent', 'delivered'], [])}"
DAYS = "s['days'] = (s['delivered'] - s['sent']).dt.total_seconds() / 86400\n"
READS_DATES = "s = pd.read_csv('s.csv', parse_dates=['sent', 'delivered'])\n"


@pytest.mark.parametrize(
    ("question", "code", "expected"),
    [
        ("Which carrier is the slowest?", "print(s.groupby('carrier')['delivered'].mean())", False),
        ("How long does it take?", "print(s['days'].mean())", True),
        ("How many days on average?", "print((s['delivered'] - s['sent']).mean())", None),
        ("How many were sent in May?", "print(len(s))", None),
    ],
)
def test_a_program_about_how_long_something_takes_needs_the_durations(
    question: str, code: str, expected: bool | None
) -> None:
    missing = find_missing_column(READS_DATES + code, [DURATIONS], question)
    assert missing == (None if expected is None else MissingLine(DAYS, is_named=expected))
