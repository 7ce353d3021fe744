"""Lists the rules that correct a model's program before it runs, in their order, each with its reason. A rule changes
only a program whose text shows the mistake. ``program_repair`` has the rules for a program that ended with an error.

Rules that also need the facts about the data or the variables of the notebook are not in the lists:
``kept_variables``, ``question_mistakes.with_summed_column`` and, for code fences, ``code_fence_percentages``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent_kernel.core.programs import program_mistakes, question_mistakes, statistics_mistakes
from agent_kernel.core.programs.program_edits import Edit, ParsedProgram

MISTAKES: tuple[Callable[[ParsedProgram], Iterator[Edit]], ...] = (
    # Since pandas 3 a column is a copy: ``t['a'].fillna(0, inplace=True)`` changes nothing.
    program_mistakes.in_place,
    # ``t.dropna()`` returns a copy and changes nothing.
    program_mistakes.discarded_results,
    # ``t['a'] = t['a'].dropna()`` changes nothing, because the values are assigned by the labels of their rows.
    program_mistakes.dropped_gaps,
    # As a column is a copy, ``t[t['a'] > 1]['b'] = 2`` changes nothing.
    program_mistakes.chained_assignment,
    # No value of a column equals ``None`` or ``np.nan``, not even a missing one.
    program_mistakes.missing_values,
    # ``fillna`` with one value for each group finds no group, because it looks for the labels of rows.
    program_mistakes.group_values,
    # ``&`` and ``|`` bind more strongly than comparisons: ``t['a'] > 1 & t['b'] < 2`` compares with ``1 & t['b']``.
    program_mistakes.comparisons_first,
    # A method binds more strongly than ``|``: ``(a < x) | (b > y).sum()`` counts only the second condition.
    program_mistakes.counted_last,
    # ``&`` binds more strongly than ``|``: ``(t['a'] == 1) | (t['a'] == 2) & (t['b'] > 3)`` is true of any ``b``.
    program_mistakes.alternatives_first,
    # No date equals a whole number: ``t['day'] == 2017`` is true of no row.
    program_mistakes.years,
    # ``t[t['a'].idxmax()]`` looks for a column, although ``idxmax`` returns the label of a row.
    program_mistakes.row_of_extreme,
    # ``groupby('a')['b', 'c']`` raises an error since pandas 2: several columns are named in a list.
    program_mistakes.columns_of_groups,
    # ``t.groupby('day.dt.month')`` looks for a column of this name.
    program_mistakes.parts_of_dates,
    # ``[t[t['a'] == one]['b'] for one in t['a']]`` has each group as often as the group has rows.
    program_mistakes.each_group_once,
    # ``t.plot(x='a', y='b', hue='c')`` raises an error: only seaborn's functions have ``hue``.
    program_mistakes.plot_of_groups,
    # ``speed_kmh = t['km'] / t['duration_min']`` is a speed in kilometres per minute.
    program_mistakes.values_per_hour,
    # ``t['grams'] * t['eur_per_kg']`` is a thousand times too large.
    program_mistakes.amounts_in_smaller_units,
    # ``t['revenue_m'] / 1000000`` is a million times too small.
    program_mistakes.scaled_twice,
    # Tests of SciPy return nan for means: ``ttest_ind(a.mean(), b.mean())``.
    statistics_mistakes.samples_of_means,
    # A correlation of pandas has no p-value: ``t['a'].corr(t['b']).pvalue``.
    statistics_mistakes.probability_of_correlation,
    # Tests of SciPy return nan for a column with a missing value.
    statistics_mistakes.complete_samples,
    # In a test of two columns of a table, a row needs both values.
    statistics_mistakes.complete_pairs,
    # The results of a test have a fixed order: ``chi2, dof, p, _ = chi2_contingency(...)`` assigns the p-value to
    # ``dof``.
    statistics_mistakes.result_order,
    # ``crosstab(..., margins=True)`` has totals, which a chi-square test would count again.
    statistics_mistakes.table_without_totals,
    # ``t.isna().sum().sum()`` is the number of missing values, not of rows with a missing value.
    statistics_mistakes.rows_with_gaps,
    # ``len(outliers)`` of a condition is the number of all rows, not of the rows for which it is true.
    statistics_mistakes.number_of_outliers,
    # ``mean_of_outliers = t[~outliers]['w'].mean()`` is the mean of the rows that are not outliers.
    statistics_mistakes.outliers_themselves,
    # ``~(x < low) | (x > high)`` negates only the first alternative.
    statistics_mistakes.negated_alternatives,
    # Duplicate rows or missing values that are counted after they were removed or filled in give 0.
    statistics_mistakes.counted_before,
    # ``mean_before`` of a column whose gaps are already filled equals ``mean_after``.
    statistics_mistakes.computed_before,
    # ``model.coef_[0]`` is the coefficient of the first column, even if the variable is named after another column.
    statistics_mistakes.coefficients,
    # The score of a regression is R squared, and its square root is not the RMSE.
    statistics_mistakes.root_mean_squared_error,
    # ``t.corr()['a'].idxmax()`` is ``a``, because each column correlates best with itself.
    statistics_mistakes.other_correlations,
    # ``mean_total = t['a'] + t['b'].mean()`` is not a mean, because only the second column is reduced.
    statistics_mistakes.mean_of_a_sum,
    # A small p-value says that a sample is not normally distributed: ``is_normal = p < 0.05`` is the opposite.
    statistics_mistakes.normal_by_large_probability,
)
"""The rules for what is a mistake whatever the question is."""

QUESTION_MISTAKES: tuple[Callable[[ParsedProgram, str], Iterator[Edit]], ...] = (
    # Skewness and kurtosis of SciPy are biased estimates, and those of pandas are unbiased.
    question_mistakes.named_functions,
    # The result of a function differs by the option that the question names, such as ``ddof=0``.
    question_mistakes.named_options,
    # A range such as "0 to 17" includes both ends, but a bin of ``pd.cut`` excludes one.
    question_mistakes.inclusive_bins,
    # A mean, a median or a minimum changes if missing values become zeros.
    question_mistakes.zeros_for_missing,
    # A row without a value in a column that has nothing to do with the question counts for the question.
    question_mistakes.unrelated_gaps,
    # For the same reason ``t.dropna()`` removes too many rows.
    question_mistakes.complete_table,
    # The row before the first one of a group belongs to another group.
    question_mistakes.neighbours_of_a_group,
    # A small model converts durations wrongly: 3 hours are not 18000 seconds.
    question_mistakes.compared_durations,
    # A small model often gives the numbers 0 or 1 the name of a wrong weekday.
    question_mistakes.weekday_names,
    # An accuracy is a share, and one decimal of a share is not what the question asks for.
    question_mistakes.accuracy_in_percent,
    # The next question may use the name that this question gives to the result.
    question_mistakes.result_name,
)
"""The rules for what is a mistake in the program for one question. They follow MISTAKES."""


def rewrite_mistakes(code: str) -> str:
    """Return the program with the MISTAKES corrected. The program is returned unchanged if it has none of them or
    cannot be parsed."""
    for rule in MISTAKES:
        program = ParsedProgram(code)
        code = program.apply_edits(list(rule(program))) or code
    return code


def follow_question(code: str, question: str) -> str:
    """Return the program with the QUESTION_MISTAKES corrected, in the same way."""
    for rule in QUESTION_MISTAKES:
        program = ParsedProgram(code)
        code = program.apply_edits(list(rule(program, question))) or code
    return code
