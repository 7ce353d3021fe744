"""Tests which sentences of a question a program leaves out."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.question_coverage import uncovered_sentences

FACTS = [
    "Files: sales.csv: CSV read by pd.read_csv('sales.csv'), 240 rows x 4 columns: unit_price float64, price float64,"
    " discount float64, city str"
]


def omitted(question: str, code: str) -> list[str]:
    return uncovered_sentences(question, code, FACTS)


@pytest.mark.parametrize(
    ("sentence", "without", "covered"),
    [
        ("How many trips are on weekends?", "t = t[t['day'] < 5]", "t = t[t['day'] >= 5]"),
        (
            "Who paid most in the third quarter?",
            "q = t[t.day.dt.month >= 3]\nprint(q)",
            "q = t[t.day.dt.month >= 7]\nprint(q)",
        ),
        ("Give the sum of Q3 only.", "q = t[t.day.dt.month >= 3]\nprint(q)", "q = t[t.day.dt.quarter == 3]\nprint(q)"),
        ("What is the median price?", "print(t['price'].mean())", "print(t['price'].median())"),
        ("Treat a missing discount as 0.", "print(t['discount'].sum())", "print(t['discount'].fillna(0).sum())"),
        (
            'Treat a missing "unit_price" as 0.',
            "t['paid'] = t['n'] * t['unit_price']\nprint(t['paid'].fillna(0).sum())",
            "t['paid'] = t['n'] * t['unit_price'].fillna(0)\nprint(t['paid'].sum())",
        ),
        (
            "Drop the rows in which the price is missing.",
            "print(len(t))",
            "print(len(t.dropna(subset=['price'])))",
        ),
        ("Keep those with an absolute z-score above 3.", "t[z > 3].std()", "t[z.abs() > 3].std()"),
        ("Is the p-value below 0.05?", "print(t['a'].corr(t['b']) < 0.05)", "print(stats.pearsonr(a, b)[1] < 0.05)"),
        ("Use the Spearman correlation.", "print(a.corr(b))", "print(a.corr(b, method='spearman'))"),
        ("Give scipy.stats.skew of it.", "print(t['v'].skew())", "print(stats.skew(t['v']))"),
        ("Test it by the t-test.", "print(a.mean() > b.mean())", "print(stats.ttest_ind(a, b))"),
        ("Draw the moving average.", "print(t['v'].mean())", "print(t['v'].rolling(7).mean())"),
        ("Keep 20% for testing.", "train_test_split(a, b)", "train_test_split(a, b, test_size=0.2)"),
        ("Split it with random_state=42.", "train_test_split(a, b)", "train_test_split(a, b, random_state=42)"),
        ("Use the rows with a unit_price.", "print(t['price'].sum())", "print(t[t['unit_price'].notna()])"),
        ('Use the column "city".', "print(t['price'].sum())", "print(t.groupby('city').size())"),
        (
            "Which city got the highest discount?",
            "print(t['city'].value_counts().idxmax())",
            "print(t.groupby('city')['discount'].sum().idxmax())",
        ),
        (
            "Wo ist der durchschnittliche discount am größten?",
            "print(t['city'].value_counts().idxmax())",
            "print(t.groupby('city')['discount'].mean().idxmax())",
        ),
        ("How many are older than 50?", "print(len(t))", "print((t['age'] >= 51).sum())"),
        ("-999 means that there is no value.", "print(t['price'].mean())", "print(t[t['price'] != -999].mean())"),
        ("Use the values of meter W-07 only.", "print(t['v'].mean())", "print(t[t['meter'] == 'W-07']['v'].mean())"),
        ("How many cost 20 or more?", "print(len(t))", "print((t['price'] >= 20).sum())"),
        ("What was sold in May 2023?", "print(t['day'].dt.month == 5)", "print(t['day'].str.startswith('2023-05'))"),
        ("Which is the top 10 percent?", "print(t.max())", "print(t['price'].quantile(0.9))"),
        ("Leave out the rows without discount.", "print(t['price'].sum())", "print(t.dropna()['price'].sum())"),
        (
            "Compute the speed of each ride.",
            "speed_kmh = d / h\nprint(d.mean())",
            "speed_kmh = d / h\nprint(speed_kmh.mean())",
        ),
        (
            "Convert the weight and count the rows.",
            "t['weight_kg'] = t['weight'] / 1000\nprint(len(t))",
            "t['weight_kg'] = t['weight'] / 1000\nprint(t['weight_kg'].sum())",
        ),
    ],
)
def test_a_sentence_is_left_out_if_the_program_has_nothing_of_it(sentence: str, without: str, covered: str) -> None:
    question = f"Look at sales.csv. {sentence}"
    assert omitted(question, without) == [sentence]
    assert omitted(question, covered) == []


@pytest.mark.parametrize(("rows", "count"), [("t[outliers]", 1), ("t[~outliers]", 0), ("t.drop(t[outliers].index)", 0)])
def test_rows_that_are_to_be_removed_must_not_be_the_ones_that_are_kept(rows: str, count: int) -> None:
    code = f"q = t['a'].quantile(0.75)\noutliers = (t['a'] < -q) | (t['a'] > q)\nt = {rows}\nprint(len(t))"
    assert len(omitted("Remove the outliers of a.", code)) == count


def test_sentences_are_found_in_their_order_without_the_marks_of_a_list() -> None:
    question = "1. Replace missing values by the median.\n2. What is the skewness?\n@skew[value] with the kurtosis"
    assert omitted(question, "print(1)") == ["Replace missing values by the median.", "What is the skewness?"]


def test_a_comment_is_no_part_of_a_program() -> None:
    assert omitted("What is the median?", "# the median\nprint(1)") == ["What is the median?"]


def test_a_column_by_which_nothing_is_left_out_need_not_be_used() -> None:
    assert omitted('Use all rows, including those with a negative "unit_price".', "print(t['n'].median())") == []


def test_a_label_that_is_an_ordinary_word_need_not_mean_the_column() -> None:
    assert omitted("How many cities offer a discount, at what price?", "print(len(t))") == []


@pytest.mark.parametrize("code", ["print(", "", "The median is 3.", f"print({'+'.join('x' * 900)})"])
def test_text_that_is_no_program_leaves_out_nothing(code: str) -> None:
    assert omitted("What is the median?", code) == []


def test_a_variable_that_the_question_asks_for_need_not_be_used() -> None:
    assert omitted("Make a list named speeds with the speeds.", "speeds = [1]\nprint('done')") == []


CATEGORIES = [
    "Files: power.csv: CSV read by pd.read_csv('power.csv'), 51 rows x 3 columns: year int64, source str, n int64\n"
    "    year,source,output\n"
    "    2001,Fossil Fuels,35361\n"
    "    source values: Fossil Fuels, Nuclear Energy, Renewables\n"
    "    missing values: output 2"
]


@pytest.mark.parametrize(
    ("code", "is_covered"),
    [
        ("print(t['n'].sum())", False),
        ("print(t[t['source'] == 'Renewables']['n'].sum())", True),
        ("print(t[t.source == 'Renewables'].n.sum())", True),
        ("print(t.groupby('source')['n'].sum())", True),
        ("sources = pd.read_csv('source.csv')\nprint(sources['n'].sum())", False),
        ("print(t['n'].dropna().sum())", False),
        ("print(t.dropna().describe())", True),
    ],
)
def test_a_program_must_use_the_column_of_a_category_that_the_question_names(code: str, is_covered: bool) -> None:
    question = "How large is n for renewables?"
    assert uncovered_sentences(question, code, CATEGORIES) == ([] if is_covered else [question])


@pytest.mark.parametrize(
    ("code", "is_covered"),
    [
        ("print((t['n'].std() / t['n'].mean()))", False),
        ("print(t.groupby('source')['n'].std() / t.groupby('source')['n'].mean())", True),
        ("print(t.groupby('year')['n'].std())", False),
        ("for one in t['source'].unique():\n    print(t[t['source'] == one]['n'].std())", True),
    ],
)
def test_a_value_for_each_category_is_computed_by_groups(code: str, is_covered: bool) -> None:
    question = "Compute the coefficient of variation of n for each source."
    assert uncovered_sentences(question, code, CATEGORIES) == ([] if is_covered else [question])
    assert uncovered_sentences("What is n per month?", code, CATEGORIES) == []


LEVELS = [
    "Files: app.log: log read by pd.Series(open('app.log').read().splitlines())"
    ".str.extract(r'(?P<level>\\w+) (?P<part>.*)'), 51 rows x 2 columns: level str, part str\n"
    "    level values: INFO, ERROR\n    part values: db, web"
]
READS = "app = pd.Series(open('app.log').read().splitlines()).str.extract(r'(?P<level>\\w+) (?P<part>.*)')\n"


@pytest.mark.parametrize(
    ("code", "is_covered"),
    [
        ("app['part'].value_counts().idxmax()", False),
        ("app['level'].value_counts().idxmax()", False),
        ("app[app['level'] == 'ERROR']['part'].value_counts().idxmax()", True),
        ("app.groupby(['part', 'level']).size()", True),
    ],
)
def test_another_form_of_a_value_names_it_too_and_the_code_that_reads_the_file_does_not(
    code: str, is_covered: bool
) -> None:
    question = "Which part has the most errors?"
    assert uncovered_sentences(question, READS + code, LEVELS) == ([] if is_covered else [question])


def test_lines_of_json_are_read_without_a_use_of_their_columns() -> None:
    rows = "pd.json_normalize(pd.read_json('o.jsonl', lines=True).to_dict('records'))"
    reads = f"{rows}.astype({{'sold_on': 'datetime64[ns]'}})"
    facts = [f"Files: o.jsonl: JSON lines read by {reads}, 9 rows x 2 columns: sold_on date, n int64\n    sold_on,n"]
    question = 'Sum n by "sold_on".'
    assert uncovered_sentences(question, f"o = {reads}\nprint(o['n'].sum())", facts) == [question]


@pytest.mark.parametrize("value", ["Renewable", "Solar", "Nuclear Energy, Renewables"])
def test_a_comparison_with_a_value_that_the_column_lacks_is_told_by_its_values(value: str) -> None:
    code = f"print(t[t['source'] == '{value}']['n'].sum())"
    note = "'source' has only these values: Fossil Fuels, Nuclear Energy, Renewables"
    told = uncovered_sentences("How large is n per year?", code, CATEGORIES)
    assert told == ([] if ", " in value else [note])  # a value with a comma looks like two values
    assert uncovered_sentences("How large is n per year?", code, FACTS) == []


def test_the_values_of_a_column_cannot_end_the_comment_that_tells_them() -> None:
    facts = ["t: DataFrame, 9 rows x 1 columns: source str\nsource values: coal, wind\rimport os\r#"]
    (note,) = uncovered_sentences("How large is it?", "print(t[t['source'] == 'oil'])", facts)
    assert note == "'source' has only these values: coal, wind import os #"


def test_a_loop_must_use_its_variable_to_compute_the_value_of_each_pass() -> None:
    question = "Which variety has the largest mean?"
    code = (
        "best = -1\nfor variety in t['variety'].unique():\n    m = t{}['w'].mean()\n"
        "    if m > best:\n        best, which = m, 1\n        which = variety\nprint(which)"
    )
    assert uncovered_sentences(question, code.format(""), FACTS) == [question]
    assert uncovered_sentences(question, code.format("[t['variety'] == variety]"), FACTS) == []


@pytest.mark.parametrize(
    ("code", "is_covered"),
    [
        ("n = t[t['z'].abs() > 2].shape[0]\nm = t['w'].mean()\nprint(n, m)", False),
        ("far = t['z'].abs() > 2\nprint(len(t[far]), t['w'].mean())", False),
        ("far = t['z'].abs() > 2\nprint(far.sum(), t[far]['w'].mean())", True),
        ("far = t[t['z'].abs() > 2]\nprint(len(far), far['w'].mean())", True),
        ("print(t['w'].mean())", True),
    ],
)
def test_a_value_of_these_rows_is_computed_from_the_selected_rows(code: str, is_covered: bool) -> None:
    question = "How many cars are far out, and what is the mean weight of these cars?"
    assert uncovered_sentences(question, code, FACTS) == ([] if is_covered else [question])


def test_two_demanded_values_are_not_the_same_expression() -> None:
    question = "How many died that day, and how many dates are there?\n@deaths[n] @dates[n]"
    code = "deaths = t['day'].{}\ndates = t['day'].nunique()\nprint(f'@deaths[{{deaths}}] @dates[{{dates}}]')"
    assert uncovered_sentences(question, code.format("nunique()"), FACTS) == ["deaths and dates are different values."]
    assert uncovered_sentences(question, code.format("value_counts().max()"), FACTS) == []


@pytest.mark.parametrize(
    ("question", "without", "covered"),
    [
        (
            "In which year and quarter was the rate highest?",
            "print(t['rate'].max(), t['year'].max())",
            "print(t.loc[t['rate'].idxmax(), ['year', 'quarter']])",
        ),
        (
            "Compute the change against the previous month of the same stock.",
            "print(t['price'].pct_change())",
            "print(t.groupby('stock')['price'].pct_change())",
        ),
        (
            "Which city has the fewest rows?",
            "print(t['city'].value_counts().idxmax())",
            "print(t['city'].value_counts().idxmin())",
        ),
        (
            "In which month did the price fall most?",
            "print(m.pct_change().idxmax())",
            "print(m.pct_change().idxmin())",
        ),
        (
            "Show the 4 quarters of the year as columns.",
            "print(t.pivot_table(columns='day'))",
            "print(t.pivot_table(columns=t['day'].dt.quarter))",
        ),
        (
            "Which city has the highest price?",
            "t['sum'] = t['n'] * t['price']\nprint(t['city'].value_counts().idxmax())",
            "t['sum'] = t['n'] * t['price']\nprint(t.groupby('city')['sum'].sum().idxmax())",
        ),
        (
            "Which city had the highest total sales?",
            "highest_total = t['price'].max()\nprint(t[t['price'] == highest_total]['city'])",
            "print(t.groupby('city')['price'].sum().idxmax())",
        ),
        (
            "Which sale has the highest price?",
            "print(t.loc[t['price'].idxmin()])",
            "print(t.loc[t['price'].idxmax()])",
        ),
        (
            "What is the mean after the outliers are removed?",
            "far = z > 3\nprint(far.sum(), t['w'].mean())",
            "far = z > 3\nprint(far.sum(), t[~far]['w'].mean())",
        ),
    ],
)
def test_a_program_that_computes_something_else_leaves_the_sentence_out(
    question: str, without: str, covered: str
) -> None:
    assert uncovered_sentences(question, without, FACTS) == [question]
    assert uncovered_sentences(question, covered, FACTS) == []
