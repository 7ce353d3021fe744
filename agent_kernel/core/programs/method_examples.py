"""Finds the statistical methods that a question names, and returns an example line of code for each of them.

A small model makes mistakes when it writes these methods from memory: z-scores without the absolute value, quartiles of
another column, Pearson's correlation in place of Spearman's. The list contains only methods that a model wrote wrongly
or left out, because an example of a method that the model knows makes its programs worse (Qwen2.5-Coder-1.5B, 96
questions)."""

from __future__ import annotations

import re

from agent_kernel.core.programs.table_facts import MAX_QUESTION

MAX_EXAMPLES = 4
QUARTER = r"\b(?:first|second|third|fourth|[1-4](?:st|nd|rd|th)) quarter\b|\bQ[1-4]\b"
"""Matches a quarter of the year in a question."""
EXAMPLES = tuple(
    (re.compile(words, re.IGNORECASE), code)
    for words, code in (
        (
            r"\bz-?scores?\b",
            "z = (c - c.mean()) / c.std(ddof=0); is_outlier = z.abs() > 3; is_outlier.sum(); t[~is_outlier]",
        ),
        (
            r"\bIQR\b|\binterquartile\b",
            "q1, q3 = c.quantile(0.25), c.quantile(0.75); iqr = q3 - q1; "
            "is_outlier = (c < q1 - 1.5 * iqr) | (c > q3 + 1.5 * iqr); is_outlier.sum(); t[~is_outlier]",
        ),
        (r"\bshapiro\b", "w, p = stats.shapiro(c.dropna())"),
        (r"\bkolmogorov\b", "d, p = stats.kstest((c - c.mean()) / c.std(), 'norm')"),
        (
            r"\bpearson\b(?=[\s\S]*\b(?:p-?values?|two-tailed|significan))",
            "pairs = t[['a', 'b']].dropna(); r, p = stats.pearsonr(pairs['a'], pairs['b'])",
        ),
        (
            r"\A(?=[\s\S]*\b(?:two|pairs?)\b)(?=[\s\S]*\b(?:strong|high|larg|weak|low)est\b)[\s\S]*\bcorrelat",
            "r = t[['a', 'b', 'd']].corr(); pairs = r.where(np.triu(np.ones(r.shape), 1) > 0).stack(); "
            "first, second = pairs.abs().idxmax(); pairs[first, second]",
        ),
        (r"\bspearman\b", "t['a'].corr(t['b'], method='spearman')"),
        (r"\bRMSE\b|\broot mean squared?\b", "rmse = mean_squared_error(y_test, model.predict(X_test)) ** 0.5"),
        (
            r"\A(?![\s\S]*\b(?:train|scikit|sklearn|predictors|features|multiple))[\s\S]*\b(?:least squares|OLS)\b",
            "fit = stats.linregress(t['a'], t['b']); fit.slope, fit.rvalue**2; "
            "residuals = t['b'] - fit.intercept - fit.slope * t['a']",
        ),
        (
            r"\blogistic regression\b|\bclassif(?:y|ier)\b",
            "accuracy_score(y_test, y_pred); f1_score(y_test, y_pred); y_pred.sum(); y_test.sum()",
        ),
        (r"\bone-hot\b|\bdummy variables?\b", "X = pd.get_dummies(t[['a', 'b']], columns=['b'], drop_first=True)"),
        (r"\bweekends?\b", "is_weekend = dates.dt.dayofweek >= 5"),
        (
            r"\b(?:hour|day|date|reading|timestamp|month|week)\w*\s+(?:\w+\s+)?(?:is|are|was|were)\s+(?:missing|absent)\b"
            r"|\bmissing\b[^.?\n]{0,9}\b(?:hour|day|date|reading|timestamp|month|week)s\b",
            "missing = pd.date_range(dates.min(), dates.max(), freq='D').difference(dates); len(missing)",
        ),
        (
            r"\b(?:longest|largest|biggest|average|mean|median) (?:gap|pause|break|time|interval) between\b",
            "gaps = dates.sort_values().diff(); gaps.max(); gaps.mean(); dates.sort_values()[gaps.idxmax()]",
        ),
        (
            r"\bstraight line\b|\btrend ?line\b|\bslope\b",
            "pairs = t[['a', 'b']].dropna(); slope, intercept = np.polyfit(pairs['a'], pairs['b'], 1)",
        ),
        (
            r"\b(?:fell|falls?|drop(?:s|ped)?|declined?|decreased?|lost|largest (?:fall|drop|decline|decrease))\b"
            r"(?=[\s\S]*\b(?:most|month|year|week|day|quarter)\b)",
            "change = monthly.pct_change(); change.idxmin(), change.min()",
        ),
        (
            r"\b(?:per|by|each|every|\d|four) quarters?\b|\bquarterly\b",
            "t.pivot_table(index='a', columns=dates.dt.quarter, values='c', aggfunc='sum')",
        ),
        (
            r"\b(?:line|bar|curve)s? (?:per|for each|for every) ",
            "t.pivot_table(index=dates.dt.month, columns='a', values='c', aggfunc='sum').plot()",
        ),
        (
            r"\b(?:highest|lowest|largest|smallest|best|worst) (?:percentage|share|rate|proportion|fraction)\b",
            "share = (t['a'] > t['b']).groupby(t['c']).mean() * 100; share.idxmax(), share.max()",
        ),
        (
            r"\bsecond(?:ary)? (?:y[ -]?)?axis\b|\btwo (?:y[ -]?)?axes\b",
            "fig, ax = plt.subplots(); ax.bar(t['a'], t['b']); right = ax.twinx(); right.plot(t['a'], t['c'])",
        ),
        (QUARTER, "is_third = dates.dt.quarter == 3"),
    )
)
"""Words of a question, and an example of the method that they name. ``t`` is a table, ``c`` one of its columns."""


def method_examples(question: str) -> str:
    """Return the examples of the methods that the question names, as one text; an empty string if it names none."""
    excerpt = question[:MAX_QUESTION]
    found = [code for words, code in EXAMPLES if words.search(excerpt)][:MAX_EXAMPLES]
    return f"(Examples with a table t and its column c: {'. '.join(found)})" if found else ""
