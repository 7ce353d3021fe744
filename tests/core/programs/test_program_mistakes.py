"""Tests the mistakes that end with no error: each program next to the one that its author means."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.core.programs.program_rules import rewrite_mistakes


def run(code: str) -> Any:
    table = pd.DataFrame({"kind": ["a", "a", "b", "b"], "v": [1.0, None, 5.0, 9.0], "w": [1, 2, 3, 4]})
    names: dict[str, Any] = {"t": table, "np": np, "pd": pd}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, names)
    return names["t"]


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("t['v'].fillna(0, inplace=True)", "t['v'] = t['v'].fillna(0)"),
        ("for _ in 'x':\n    t['w'].clip(2, inplace=True)", "for _ in 'x':\n    t['w'] = t['w'].clip(2)"),
        ("t[t['w'] > 2]['v'] = 0", "t.loc[t['w'] > 2, 'v'] = 0"),
        ("t['v'] = t['v'].dropna()", "t = t.dropna(subset=['v'])"),
        ("t.dropna(subset=['v'])\nx = 1", "t = t.dropna(subset=['v'])\nx = 1"),
        ("t.rename(columns={'v': 'x'})\nx = 1", "t = t.rename(columns={'v': 'x'})\nx = 1"),
        ("t = t[t['v'] != None]", "t = t[t['v'].notna()]"),
        ("t.loc[t['v'] == np.nan, 'v'] = 0", "t.loc[t['v'].isna(), 'v'] = 0"),
        ("t['v'][t['w'] > 2] = 0", "t.loc[t['w'] > 2, 'v'] = 0"),
        (
            "t['v'] = t['v'].fillna(t.groupby('kind')['v'].median())",
            "t['v'] = t['v'].fillna(t.groupby('kind')['v'].transform('median'))",
        ),
        (
            "t['v'].fillna(t.groupby('kind')['v'].mean(), inplace=True)",
            "t['v'] = t['v'].fillna(t.groupby('kind')['v'].transform('mean'))",
        ),
    ],
)
def test_a_statement_without_an_effect_is_the_one_that_has_it(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    assert run(code).equals(run("pass"))
    assert not run(meant).equals(run("pass"))


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("x = t[t['w'] >= 2 & t['w'] <= 3]", "x = t[(t['w'] >= 2) & (t['w'] <= 3)]"),
        ("x = (t['w'] < 2) | (t['w'] > 3).sum()", "x = ((t['w'] < 2) | (t['w'] > 3)).sum()"),
        (
            "x = t[(t['w'] == 1) | (t['w'] == 2) & (t['kind'] != 'b')]",
            "x = t[((t['w'] == 1) | (t['w'] == 2)) & (t['kind'] != 'b')]",
        ),
        (
            "x = t[(t['kind'] != 'b') & (t['w'] == 1) | (t['w'] == 2)]",
            "x = t[((t['w'] == 2) | (t['w'] == 1)) & (t['kind'] != 'b')]",
        ),
    ],
)
def test_comparisons_are_made_before_they_are_combined(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    run(meant)


READ = "t = pd.read_csv(path, parse_dates=['day'])\n"


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (f"{READ}x = t[t['day'] == 2017]", f"{READ}x = t[t['day'].dt.year == 2017]"),
        (f"{READ}x = t[t['day'].isin([2016, 2017])]", f"{READ}x = t[t['day'].dt.year.isin([2016, 2017])]"),
        (
            "t['day'] = pd.to_datetime(t['day'])\nx = (t['day'] != 2017).sum()",
            "t['day'] = pd.to_datetime(t['day'])\nx = (t['day'].dt.year != 2017).sum()",
        ),
    ],
)
def test_dates_are_compared_with_a_year_by_their_year(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    assert rewrite_mistakes(meant) == meant


def test_numbers_and_dates_without_a_year_are_compared_as_written() -> None:
    for code in ("x = t[t['w'] == 2017]", f"{READ}x = t[t['day'] == '2017-01-01']", f"{READ}x = t[t['w'] == 2017]"):
        assert rewrite_mistakes(code) == code


@pytest.mark.parametrize("slice", ["'v', 'w'", "('v', 'w')"])
def test_several_columns_of_groups_are_named_in_a_list(slice: str) -> None:
    code = f"x = t.groupby('kind')[{slice}].sum()"
    assert rewrite_mistakes(code) == "x = t.groupby('kind')[['v', 'w']].sum()"
    assert rewrite_mistakes("x = t.groupby('kind')['v'].sum()") == "x = t.groupby('kind')['v'].sum()"


@pytest.mark.parametrize(
    "code",
    [
        "t.fillna(0, inplace=True)",
        "t.sort_values('w', inplace=True)",
        "t['v'] = t['v'].fillna(0)",
        "t.loc[t['w'] > 2, 'v'] = 0",
        "x = (t['w'] >= 2) & (t['w'] <= 3)",
        "x = 1 < 2 < 3",
        "names = {'a': {'b': 1}}\nnames['a']['b'] = 2",
        "names['a'][i + 1] = 2",
        "if record['a'] == None:\n    print(record['b'])",
        "t['v'].fillna(0, inplace=False)",
        "no python at all",
        "",
    ],
)
def test_other_programs_stay_as_they_are(code: str) -> None:
    assert rewrite_mistakes(code) == code


@pytest.mark.parametrize(
    "code",
    [
        "x = t[(t['w'] == 1) | ((t['w'] == 2) & (t['kind'] != 'b'))]",
        "x = t[((t['kind'] != 'b') & (t['w'] == 1)) | (t['w'] == 2)]",
        "x = t[(t['w'] == 1) & (t['v'] == 2) | (t['w'] == 2) & (t['v'] == 3)]",
        "x = t[(t['kind'] == 'a') | (t['w'] == 2) & (t['v'] > 3)]",
    ],
)
def test_alternatives_with_parentheses_or_of_several_columns_are_kept(code: str) -> None:
    assert rewrite_mistakes(code) == code


def test_the_row_of_an_extreme_value_is_selected_by_its_label() -> None:
    assert rewrite_mistakes("row = t[t['a'].idxmin()]") == "row = t.loc[t['a'].idxmin()]"
    for code in ("row = t.loc[t['a'].idxmin()]", "x = means[t['a'].idxmin()]", "x = t['a'].idxmin()"):
        assert rewrite_mistakes(code) == code


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (
            "x = stats.f_oneway(*[t[t['kind'] == k]['v'] for k in t['kind']])",
            "x = stats.f_oneway(*[t[t['kind'] == k]['v'] for k in t['kind'].unique()])",
        ),
        (
            "for k in t['kind']:\n    means.append(t.loc[t['kind'] == k, 'v'].mean())",
            "for k in t['kind'].unique():\n    means.append(t.loc[t['kind'] == k, 'v'].mean())",
        ),
        ("x = [k + 1 for k in t['w']]", "x = [k + 1 for k in t['w']]"),
        ("x = [t[t['w'] == k] for k in t['v']]", "x = [t[t['w'] == k] for k in t['v']]"),
    ],
)
def test_a_loop_over_groups_selects_each_group_once(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("t['speed_kmh'] = t['km'] / t['duration_min']", "t['speed_kmh'] = t['km'] / (t['duration_min'] / 60)"),
        ("mph = t['miles'] / t['seconds']", "mph = t['miles'] / (t['seconds'] / 3600)"),
        ("t['speed_kmh'] = t['km'] / t['hours']", "t['speed_kmh'] = t['km'] / t['hours']"),
        (
            "t.plot(x='kind', y='v', hue='w', kind='line')",
            "t.pivot_table(index='kind', columns='w', values='v', aggfunc='sum').plot(kind='line')",
        ),
        ("sns.lineplot(data=t, x='kind', y='v', hue='w')", "sns.lineplot(data=t, x='kind', y='v', hue='w')"),
        ("x = t['revenue_m'].sum() / 1_000_000", "x = t['revenue_m'].sum()"),
        ("x = t[t['a'] > 1]['Staff (thousands)'] / 1000", "x = t[t['a'] > 1]['Staff (thousands)'] / 1000"),
        ("x = t['Staff (thousands)'].mean() / 1000", "x = t['Staff (thousands)'].mean()"),
        ("x = t['revenue_m'].sum() / 1000", "x = t['revenue_m'].sum() / 1000"),
        ("x = t['dam'].sum() / 1e6", "x = t['dam'].sum() / 1e6"),
        ("t['speed_kmh'] = 60 * t['km'] / t['min']", "t['speed_kmh'] = 60 * t['km'] / t['min']"),
        ("t['pace'] = t['km'] / t['min']", "t['pace'] = t['km'] / t['min']"),
        ("cost = t['grams'] * t['eur_per_kg']", "cost = (t['grams'] / 1000) * t['eur_per_kg']"),
        ("print((t['price_per_l'] * t['ml']).sum())", "print((t['price_per_l'] * (t['ml'] / 1000)).sum())"),
        (
            "cost = t['grams'] * t['eur_per_kg']\nprint(cost.sum() / 1000)",
            "cost = t['grams'] * t['eur_per_kg']\nprint(cost.sum() / 1000)",
        ),
        ("t['kmh'] = t['km'] / t['min']\nt['kmh'] *= 60", "t['kmh'] = t['km'] / t['min']\nt['kmh'] *= 60"),
        ("cost = t['grams'] * t['eur_per_kg'] / 1000", "cost = t['grams'] * t['eur_per_kg'] / 1000"),
        ("cost = t['kg'] * t['eur_per_kg']", "cost = t['kg'] * t['eur_per_kg']"),
        ("cost = t['hours'] * t['eur_per_hour']", "cost = t['hours'] * t['eur_per_hour']"),
    ],
)
def test_amounts_are_converted_to_the_unit_of_the_value(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (
            "p = t.pivot_table(index='kind', columns='day.dt.quarter', values='w')",
            "p = t.pivot_table(index='kind', columns=t['day'].dt.quarter, values='w')",
        ),
        ("g = t.groupby(['kind', 'day.dt.day_name()'])", "g = t.groupby(['kind', t['day'].dt.day_name()])"),
        ("g = t.groupby('kind')", "g = t.groupby('kind')"),
        ("print('day.dt.month')", "print('day.dt.month')"),
    ],
)
def test_a_part_of_a_date_is_no_label(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
