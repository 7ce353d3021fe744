"""Tests the mistakes in statistics that end with no error: each program next to the one that its author means."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.program_rules import rewrite_mistakes


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("w, p = stats.shapiro(t['v'])", "w, p = stats.shapiro(t['v'].dropna())"),
        ("x = scipy.stats.skew(t['v'])", "x = scipy.stats.skew(t['v'].dropna())"),
        (
            "s, p = ttest_ind(t[t['kind'] == 'a']['v'], t.loc[t['kind'] == 'b', 'v'])",
            "s, p = ttest_ind(t[t['kind'] == 'a']['v'].dropna(), t.loc[t['kind'] == 'b', 'v'].dropna())",
        ),
        (
            "a = t[t['kind'] == 'a']['v'].mean().round(2)\nb = t['v'].mean()\ns, p = stats.ttest_ind(a, b)",
            "a = t[t['kind'] == 'a']['v'].mean().round(2)\nb = t['v'].mean()\n"
            "s, p = stats.ttest_ind(t[t['kind'] == 'a']['v'].dropna(), t['v'].dropna())",
        ),
        (
            "r, p = stats.pearsonr(t['v'], t['w'])",
            "r, p = stats.pearsonr(t.dropna(subset=['v', 'w'])['v'], t.dropna(subset=['v', 'w'])['w'])",
        ),
    ],
)
def test_a_test_gets_values_that_are_not_missing(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    assert rewrite_mistakes(meant) == meant


@pytest.mark.parametrize(
    "code",
    [
        "w, p = stats.shapiro(values)",
        "w, p = mine.shapiro(t['v'])",
        "u = t.dropna()\nr, p = stats.pearsonr(u['v'], u['w'])",
        "r, p = stats.pearsonr(t['v'], other['w'])",
        "m = t['v'].mean()\ns, p = stats.ttest_1samp(values, m)",
    ],
)
def test_a_test_of_other_values_stays_as_it_is(code: str) -> None:
    assert rewrite_mistakes(code) == code


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("chi2, dof, p_value, _ = stats.chi2_contingency(x)", "chi2, p_value, dof, _ = stats.chi2_contingency(x)"),
        ("chi2, dof, p = chi2_contingency(x)", "chi2, p, dof, _ = chi2_contingency(x)"),
        ("chi2, p = chi2_contingency(x)", "chi2, p, *_ = chi2_contingency(x)"),
        ("p, w = stats.shapiro(x)", "w, p = stats.shapiro(x)"),
    ],
)
def test_the_results_of_a_test_get_their_names(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    assert rewrite_mistakes(meant) == meant


@pytest.mark.parametrize(
    "code",
    [
        "chi2, p, dof, expected = stats.chi2_contingency(x)",
        "a, b, c, d = stats.chi2_contingency(x)",
        "r, p = stats.pearsonr(x, y)",
        "p, q = divide(x)",
    ],
)
def test_results_in_their_order_keep_their_names(code: str) -> None:
    assert rewrite_mistakes(code) == code


def test_a_test_of_a_table_leaves_out_its_totals() -> None:
    table, with_totals = "pd.crosstab(a, b)", "pd.crosstab(a, b, margins=True)"
    assert rewrite_mistakes(f"r = chi2_contingency({with_totals})") == f"r = chi2_contingency({table})"
    code = "x = {}\nr = chi2_contingency(x)"
    assert rewrite_mistakes(code.format(with_totals)) == code.format(table)
    for code in (f"x = {with_totals}\nprint(x)", f"r = chi2_contingency({table})"):
        assert rewrite_mistakes(code) == code


def test_both_alternatives_of_a_condition_for_outliers_are_negated() -> None:
    meant = "m = x[~((x < low) | (x > high))].mean()"
    assert rewrite_mistakes("m = x[~(x < low) | (x > high)].mean()") == meant
    for code in (meant, "m = x[~(x < low) & ~(x > high)].mean()", "m = t[~(x < low) | (y > high)]"):
        assert rewrite_mistakes(code) == code


def test_the_largest_correlation_of_a_column_is_not_that_with_itself() -> None:
    code = "c = t.corr(numeric_only=True)\nbest = c['w']{0}.abs().idxmax()\nr = c['w']{0}.max()\nx = c['w']['v']"
    assert rewrite_mistakes(code.format("")) == code.format(".drop('w')")
    assert rewrite_mistakes(code.format(".drop('w')")) == code.format(".drop('w')")


def test_the_number_of_outliers_is_not_the_length_of_their_condition() -> None:
    condition = "outliers = (t['w'] < 2) | (t['w'] > 3)\n"
    assert rewrite_mistakes(f"{condition}n = len(outliers)") == f"{condition}n = outliers.sum()"
    for code in (f"{condition}n = len(t[outliers])", "outliers = t[t['w'] > 3]\nn = len(outliers)"):
        assert rewrite_mistakes(code) == code


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("mean_w_outliers = t[~(z.abs() > 3)]['w'].mean()", "mean_w_outliers = t[(z.abs() > 3)]['w'].mean()"),
        (
            "far = (t['w'] < 2) | (t['w'] > 9)\noutliers = t[~far]",
            "far = (t['w'] < 2) | (t['w'] > 9)\noutliers = t[far]",
        ),
        (
            "is_far = (t['w'] < 2) | (t['w'] > 9)\noutliers.extend(t[~is_far].index)",
            "is_far = (t['w'] < 2) | (t['w'] > 9)\noutliers.extend(t[is_far].index)",
        ),
        ("outliers = t[~((t['w'] >= 2) & (t['w'] <= 9))]", ""),
        ("mean_without_outliers = t[~(z > 3)]['w'].mean()", ""),
        ("rows = t[~(z > 3)]", ""),
    ],
)
def test_a_value_of_the_outliers_is_not_that_of_the_other_rows(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == (meant or code)


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (
            "t['v'] = t['v'].fillna(0)\nn_filled = t['v'].isna().sum()\nprint(n_filled)\n",
            "n_filled = t['v'].isna().sum()\nt['v'] = t['v'].fillna(0)\nprint(n_filled)\n",
        ),
        (
            "t = t.drop_duplicates()\nm = t['w'].mean()\nn_removed = t.shape[0] - t.drop_duplicates().shape[0]",
            "n_removed = t.shape[0] - t.drop_duplicates().shape[0]\nt = t.drop_duplicates()\nm = t['w'].mean()\n",
        ),
        (
            "t['v'] = t.groupby('kind')['v'].transform(lambda x: x.fillna(x.mean()))\nn_filled = t['v'].isna().sum()\n",
            "n_filled = t['v'].isna().sum()\nt['v'] = t.groupby('kind')['v'].transform(lambda x: x.fillna(x.mean()))\n",
        ),
        (
            "t.drop_duplicates(inplace=True)\nduplicate_rows = t.duplicated().sum()\n",
            "duplicate_rows = t.duplicated().sum()\nt.drop_duplicates(inplace=True)\n",
        ),
        (
            "t['v'] = t['v'].fillna(0)\nbefore = t['v'].isna().sum()\nafter = t['v'].isna().sum()\n",
            "before = t['v'].isna().sum()\nt['v'] = t['v'].fillna(0)\nafter = t['v'].isna().sum()\n",
        ),
        (
            "t['v'] = t['v'].fillna(0)\nmean_before = round(t['v'].mean(), 2)\nmean_after = t['v'].mean()\n",
            "mean_before = round(t['v'].mean(), 2)\nt['v'] = t['v'].fillna(0)\nmean_after = t['v'].mean()\n",
        ),
        (
            "t = t.dropna(subset=['v'])\nstd_before = t['v'].std()\nstd_after = t['v'].std()\n",
            "std_before = t['v'].std()\nt = t.dropna(subset=['v'])\nstd_after = t['v'].std()\n",
        ),
    ],
)
def test_what_is_removed_is_counted_before(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant
    assert rewrite_mistakes(meant) == meant


@pytest.mark.parametrize(
    "code",
    [
        "t['v'] = t['v'].fillna(0)\nn = t['w'].isna().sum()\n",
        "u = t.drop_duplicates()\nduplicate_rows = t.duplicated().sum()\n",
        "n_removed = len(t) - len(t.drop_duplicates())\nt = t.drop_duplicates()\n",
        "t['v'] = t['v'].fillna(0)\nmissing = t['v'].isna().sum()\n",
        "t = t.dropna()\nx = 2\nmean_before = t['v'].mean() * x\n",
        "t['w'] = t['w'].fillna(0)\nmean_before = t['v'].mean()\n",
        "t = t[t['w'] > 1]\nmean_before = t['v'].mean()\n",
        # The mean before the outliers are removed, not before the rows with gaps are.
        "t = t.dropna()\nmean_before = t['v'].mean()\nt = t[t['v'] < 9]\nmean_after = t['v'].mean()\n",
        "t = t.dropna()\nmean_before = t['v'].mean()\nmean_after = t[t['v'] < 9]['v'].mean()\n",
        "t = t.dropna()\nt['v'] = t['w'] - 1\nmean_before = t['v'].mean()\nmean_after = t['v'].mean()\n",
        "t = t.drop_duplicates()\nduplicates_left = t.duplicated().sum()\n",
    ],
)
def test_other_counts_stay_where_they_are(code: str) -> None:
    assert rewrite_mistakes(code) == code


X = "X = t[['age', 'height cm', 'log_income']]\n"


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        (f"{X}log_income_coef = model.coef_[0]", f"{X}log_income_coef = model.coef_[2]"),
        (f"{X}coef_height_cm = round(m.coef_[0], 2)", f"{X}coef_height_cm = round(m.coef_[1], 2)"),
        (f"{X}age_coef = model.coef_[0]", f"{X}age_coef = model.coef_[0]"),
        (f"{X}first = model.coef_[0]", f"{X}first = model.coef_[0]"),
        (
            f"{X}Y = t[['height cm', 'age']]\nlog_income = m.coef_[0]",
            f"{X}Y = t[['height cm', 'age']]\nlog_income = m.coef_[0]",
        ),
    ],
)
def test_a_coefficient_is_that_of_the_column_in_its_name(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == meant


@pytest.mark.parametrize("root", ["{} ** 0.5", "np.sqrt({})", "round({} ** 0.5, 2)"])
def test_the_rmse_is_that_of_the_predictions(root: str) -> None:
    score, error = "model.score(X_test, y_test)", "mean_squared_error(y_test, model.predict(X_test))"
    assert rewrite_mistakes(f"rmse = {root.format(score)}") == f"rmse = {root.format(error)}"
    assert rewrite_mistakes(f"r2 = {score}") == f"r2 = {score}"


def test_the_mean_of_a_sum_is_that_of_both_columns() -> None:
    assert rewrite_mistakes("mean_total = t['v'] + t['w'].mean()") == "mean_total = (t['v'] + t['w']).mean()"
    for code in ("centred = t['v'] - t['v'].mean()", "mean_total = t['v'].mean() + t['w'].mean()"):
        assert rewrite_mistakes(code) == code


def test_rows_with_a_missing_value_are_counted_once() -> None:
    assert rewrite_mistakes("rows = t.isna().sum().sum()") == "rows = t.isna().any(axis=1).sum()"
    assert rewrite_mistakes("missing = t.isna().sum().sum()") == "missing = t.isna().sum().sum()"


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("is_normal = p < 0.05", "is_normal = p > 0.05"),
        ("is_normal = 'yes' if p_value <= 0.05 else 'no'", "is_normal = 'yes' if p_value > 0.05 else 'no'"),
        ("print(f'@is_normal[{p < 0.05}] @w[{w:.2f}]')", "print(f'@is_normal[{p > 0.05}] @w[{w:.2f}]')"),
        ("is_normal = p > 0.05", ""),
        ("is_normal = 'no' if p < 0.05 else 'yes'", ""),
        ("not_normal = p < 0.05", ""),
        ("non_normal = p < 0.05", ""),
        ("normality_rejected = p < 0.05", ""),
        ("significant = p < 0.05", ""),
        ("is_normal = abs_skew < 0.5", ""),
        ("print(f'@significant[{p < 0.05}]')", ""),
    ],
)
def test_a_sample_is_normal_if_the_p_value_is_large(code: str, meant: str) -> None:
    assert rewrite_mistakes(code) == (meant or code)


@pytest.mark.parametrize(("option", "test"), [("", "pearsonr"), (", method='spearman'", "spearmanr")])
def test_the_p_value_of_a_correlation_is_that_of_the_test(option: str, test: str) -> None:
    code = f"r = t['v'].corr(t['w']{option})\nprint(f'{{r:.2f}}', r.pvalue)"
    *before, last = rewrite_mistakes(code).splitlines()
    assert code.splitlines()[0] in before
    assert last.startswith(f"print(f'{{r:.2f}}', stats.{test}(")
    assert last.endswith(").pvalue)")
    assert rewrite_mistakes("r = f(t['v'])\nprint(r.pvalue)") == "r = f(t['v'])\nprint(r.pvalue)"
