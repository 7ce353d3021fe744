"""Tests which values of an output answer a question that demands them as ``@name[value]``."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.answer_form import unusable_value, values_in_form

FORM = "The mean? Answer in the form @mean[value] @count[n]."


@pytest.mark.parametrize(
    ("described", "answer"),
    [
        ('"value" is rounded to two decimal places and "n" is an integer', "@mean[3.14]\n@count[12943]"),
        ('"n" is a whole number and "value" has 1 decimal', "@mean[3.1]\n@count[12943]"),
        ('"value" and "n" are numbers rounded to three decimals', "@mean[3.142]\n@count[12942.7]"),
        ("both are numbers", "@mean[3.14159]\n@count[12942.7]"),
    ],
)
def test_the_values_of_the_answer_have_the_decimals_that_the_question_asks_for(described: str, answer: str) -> None:
    question = f"{FORM} where {described}."
    assert values_in_form("@mean[3.14159] @count[12942.7]", question) == answer
    assert "text" in values_in_form("@mean[text] @count[4]", question)


def test_a_month_has_two_digits_if_the_question_asks_for_them() -> None:
    question = 'Answer in the form @peak[month] where "month" has the form YYYY-MM.'
    assert values_in_form("@peak[2023-7]", question) == "@peak[2023-07]"
    assert values_in_form("@peak[2023-11]", question) == "@peak[2023-11]"
    assert values_in_form("@peak[2023-7]", "@peak[month]") == "@peak[2023-7]"


def test_values_without_names_are_those_of_the_last_line_in_their_order() -> None:
    assert values_in_form("rows: 3\n2.5 4", FORM, "2.5 4") == "@mean[2.5]\n@count[4]"
    assert values_in_form("rows: 3\n2.5 4", FORM) == ""
    assert values_in_form("@mean[2.5]", FORM, "2.5 4") == ""


@pytest.mark.parametrize(
    ("output", "note"),
    [
        (
            "@mean[a    1.0\nb    2.0\nName: v]\n@count[4]",
            "printed several values for mean, but the question asks for one",
        ),
        ("@mean[3.5]\n@count[nan]", "printed nan for count"),
        ("@mean[3.5] @count[4]", ""),
        ("@other[nan] @mean[[1, 2]]", ""),
        ("3.5\n4", ""),
    ],
)
def test_several_lines_or_nan_are_no_value(output: str, note: str) -> None:
    assert unusable_value(output, FORM) == note


@pytest.mark.parametrize(
    ("described", "value", "asked"),
    [
        ('is one of "low", "high"', "8.69", "one of: low, high"),
        ('is a string that is either "low" or "high"', "True", "one of: low, high"),
        ('is either "low" or "high"', "low", ""),
        ('is one of "1", "2"', "2", ""),
        ("can be any number", "low", "a number"),
        ('is a string which can be "low", "high" or "none"', "True", "one of: low, high, none"),
        ('is a string which can be "low" or "high"', "not low", "one of: low, high"),
        ('is a string which can be "low" or "high"', "Low", ""),
        ('is a string which can be a label such as "low" or "high"', "medium", ""),
        ('is a string exactly as written in the "Level" column', "8.69", "text"),
        ("is a string", "2021", ""),
        ("is a float rounded to 2 decimal places", "low", "a number"),
        ('is a string: "up", "down" or "none"', "none", ""),
        ("is an integer", "4", ""),
        ("is a float", "< 0.001", ""),
        ("names the level", "8.69", ""),
    ],
)
def test_a_value_has_the_kind_that_the_question_describes(described: str, value: str, asked: str) -> None:
    question = f'Which? Answer in the form @level[label] where "label" {described}.'
    note = f"printed {value} for level, but the question asks for {asked}" if asked else ""
    assert unusable_value(f"@level[{value}]", question) == note


@pytest.mark.parametrize(
    ("slot", "described", "value"),
    [
        ("answer", 'where "answer" is a string that is either "yes" or "no"', "yes"),
        ("answer", 'where answer is "Yes" or "No"', "Yes"),
        ("yes_no", "", "yes"),
        ("Yes or no", "", "yes"),
        ("answer", 'where "answer" is "True" or "False"', "True"),
        ("answer", "", "True"),
    ],
)
def test_a_truth_value_is_written_as_the_question_asks(slot: str, described: str, value: str) -> None:
    question = f"Do they differ? Answer in the form @differ[{slot}] {described}"
    assert values_in_form("@differ[True]", question) == f"@differ[{value}]"
    assert unusable_value("@differ[True]", question) == ""


@pytest.mark.parametrize(
    ("described", "value"),
    [("", "2014-08-11"), ("where day has the form YYYY-MM-DD", "2014-08-11")],
)
def test_a_date_is_written_without_midnight(described: str, value: str) -> None:
    assert values_in_form("@hottest[2014-08-11 00:00:00]", f"@hottest[day] {described}") == f"@hottest[{value}]"
    timed = '@hottest[day] where "day" has the form YYYY-MM-DD HH:MM:SS'
    assert values_in_form("@hottest[2014-08-11 00:00:00]", timed) == "@hottest[2014-08-11 00:00:00]"


def test_a_number_is_no_name() -> None:
    described = '@feature[feature_name] where "feature_name" is a string, the name of a column.'
    assert unusable_value("@feature[2]", described) == "printed 2 for feature, but the question asks for text"
    assert unusable_value("@feature[age]", described) == ""
    question = "Which columns? Answer in the form @first[column_name] @second[named]"
    note = "printed -0.23 for first, but the question asks for text"
    assert unusable_value("@first[-0.23] @second[0.3]", question) == note
    assert unusable_value("@first[wind] @second[0.3]", question) == ""
