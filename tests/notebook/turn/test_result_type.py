"""Tests types of results: resolved without running code, and checked against answers and values of programs."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from typing import Any, ClassVar, Literal

import numpy
import pandas
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.notebook.turn.cell_options import ResultVariable, parse_options
from agent_kernel.notebook.turn.result_type import check_name, resolve_type


class Penguin(pydantic.BaseModel):
    name: str
    mass: float


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Trap:
    """A user's object that counts how often its attributes are read."""

    read: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        Trap.read.append(name)
        return super().__getattribute__(name)

    def __call__(self) -> type:
        Trap.read.append("called")
        return int


def here() -> dict[str, Any]:
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda name: Trap.read.append(name)  # type: ignore[method-assign]
    names = {"pd": pandas, "Penguin": Penguin, "Point": Point, "Colour": Colour, "Literal": Literal}
    return {**names, "trap": Trap(), "lazy": lazy, "n": 3, "int": 7, "DataFrame": pandas.DataFrame}


@pytest.mark.parametrize(
    ("text", "answer", "value"),
    [
        ("int", '{"value": 42}', 42),
        ("int", '{"value": 42.0}', 42),
        ("int", "42", 42),
        ("float", '{"value": 3}', 3.0),
        ("str", '{"value": "Gentoo"}', "Gentoo"),
        ("bool", '{"value": true}', True),
        ("list", '{"value": [1, "a"]}', [1, "a"]),
        ("list[int]", '{"value": [1, 2]}', [1, 2]),
        ("dict", '{"value": {"a": 1}}', {"a": 1}),
        ("dict[str, list[float]]", '{"value": {"a": [1]}}', {"a": [1.0]}),
        ("int | None", '{"value": null}', None),
        ("Optional[int]", '{"value": 1}', 1),
        ("Literal['yes', 'no']", '{"value": "no"}', "no"),
        ("Penguin", '{"name": "Pip", "mass": 4.2}', Penguin(name="Pip", mass=4.2)),
        ("Point", '{"x": 1, "y": 2}', Point(1, 2)),
        ("list[Point]", '{"value": [{"x": 1}]}', [Point(1)]),
        ("Colour", '{"value": "red"}', Colour.RED),
    ],
)
def test_an_answer_becomes_a_value_of_the_type(text: str, answer: str, value: Any) -> None:
    kind = resolve_type(text, here())
    assert kind.read_answer(answer) == value
    assert type(kind.read_answer(answer)) is type(value)
    assert kind.output["json_schema"]["type"] == "object"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("int", "about forty"),
        ("int", '{"value": "42"}'),
        ("int", '{"value": true}'),
        ("int", '{"value": 4.5}'),
        ("int", "{}"),
        ("bool", '{"value": 1}'),
        ("list[int]", '{"value": [1, "a"]}'),
        ("Literal['yes']", '{"value": "no"}'),
        ("Penguin", '{"name": "Pip"}'),
        ("int", "[" * 100_000),
    ],
)
def test_an_answer_of_another_type_is_refused(text: str, answer: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        resolve_type(text, here()).read_answer(answer)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("int", numpy.int64(3), 3),
        ("int", numpy.array(3), 3),
        ("int", 344.0, 344),
        ("float", numpy.float32(0.5), 0.5),
        ("bool", numpy.bool_(True), True),
        ("list[int]", pandas.Series([1, 2]), [1, 2]),
        ("list[str]", numpy.array(["a"]), ["a"]),
        ("list", (1, 2), [1, 2]),
        ("list[str]", pandas.DataFrame({"a": [1]}).columns, ["a"]),
        ("dict[str, int]", pandas.Series({"a": 1}), {"a": 1}),
    ],
)
def test_the_value_of_a_program_becomes_a_plain_value(text: str, value: Any, expected: Any) -> None:
    made = resolve_type(text, here()).convert_value(value)
    assert made == expected
    assert type(made) is type(expected)


def test_a_table_is_the_object_of_the_program_and_has_no_schema() -> None:
    table = pandas.DataFrame({"a": [1]})
    kind = resolve_type("pd.DataFrame", here())
    assert kind.convert_value(table) is table
    assert kind.output == {}
    assert kind.convert_value(table["a"]).equals(table), "a series becomes a table"
    assert kind.may_be(ProgramValue(elsewhere="pandas.DataFrame"))
    assert not kind.may_be(ProgramValue(elsewhere="list"))
    with pytest.raises(ValueError, match="program"):
        kind.read_answer("[]")


def test_tables_need_no_import_once_pandas_is_loaded() -> None:
    assert resolve_type("DataFrame", {}).kind is pandas.DataFrame
    assert resolve_type("Series", {}).kind is pandas.Series


@pytest.mark.parametrize(
    "text",
    [
        "trap()",
        "trap.x",
        "trap",
        "lazy.anything",
        "lazy.a.b",
        "n.real",
        "__import__('os').system('true')",
        "(lambda: int)()",
        "[int][0]",
        "list[trap()]",
        "list[int, str]",
        "dict[int, str]",
        "set",
        "nothing",
        "pd",
        "pd.read_csv",
        "int if n else str",
        "int or str",
        "Literal[n]",
        "f'{trap}'",
        "'int'",
        "int; str",
        "",
        "int " * 1000,
        "list[" * 99 + "int" + "]" * 99,
        "type",
        "object",
        "Trap",
    ],
)
def test_nothing_but_names_brackets_and_bars_is_a_type_and_nothing_of_it_runs(text: str) -> None:
    Trap.read.clear()
    with pytest.raises(AgentError, match="type") as caught:
        resolve_type(text, here()).read_answer("")
    assert "\n" not in str(caught.value)
    assert Trap.read == []


@pytest.mark.parametrize("name", ["class", "3x", "a.b", "", "x-y", "__doc__", "In", "Out", "get_ipython", "_", "_3"])
def test_names_of_python_and_ipython_are_refused(name: str) -> None:
    with pytest.raises(AgentError, match=r"variable|cannot be set"):
        check_name(name)


def test_a_result_stands_among_the_options_and_ends_before_the_prompt() -> None:
    read = parse_options("-m tiny -> n: int --seed 1 How many rows?")
    assert (read.result, read.words, read.sampling) == (ResultVariable("n", "int"), "How many rows?", {"seed": 1})
    assert parse_options("->n:int").result == ResultVariable("n", "int")
    assert parse_options("-> total What is it?").words == "What is it?"
    assert parse_options("-> xs: dict[str, list[int]] | None Which?").result == ResultVariable(
        "xs", "dict[str, list[int]] | None"
    )
    assert parse_options("-> a: Literal['x ]', \"y\"] go").result == ResultVariable("a", "Literal['x ]', \"y\"]")
    assert parse_options("What is a -> b: int?").result is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-> n: f()", "'f()' is not a type"),
        ("-> n: 3", "'3' is not a type"),
        ("-> n:", "'' is not a type"),
        ("-> n: list[int", "no closing bracket"),
        ("-> class: int", "'class' is not the name of a variable"),
        ("->", "'' is not the name of a variable"),
        ("-> In: list", "In cannot be set"),
    ],
)
def test_a_wrong_result_is_one_clear_line(line: str, words: str) -> None:
    with pytest.raises(AgentError) as caught:
        parse_options(line)
    assert words in str(caught.value)


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True).filter(lambda name: name not in {"as", "if", "in", "is"})
TYPES = st.recursive(
    st.sampled_from(["int", "float", "str", "bool", "list", "dict"]),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"list[{kind}]"),
        inner.map(lambda kind: f"dict[str, {kind}]"),
        st.tuples(inner, inner).map(" | ".join),
    ),
    max_leaves=6,
)
WORDS = st.sampled_from(["How many?", "", "[a] list", "int: x", "-", "(no)", "the | bar"])


@given(TYPES, WORDS)
def test_every_type_that_is_written_is_read_back_with_the_prompt_after_it(kind: str, words: str) -> None:
    read = parse_options(f"-> total: {kind} -m x {words}")
    assert read.result == ResultVariable("total", kind)
    assert (read.words, read.model) == (words.strip(), "x")
    schema = resolve_type(kind, {}).output["json_schema"]
    assert json.loads(json.dumps(schema)) == schema


@given(st.text(max_size=60))
@example("int[")
@example("a" * 60)
def test_any_text_after_the_arrow_is_a_result_or_one_line_of_error(text: str) -> None:
    error = ""
    try:
        read = parse_options(f"-> {text}")
        assert read.result is not None
        if read.result.type:
            resolve_type(read.result.type, here())
    except AgentError as refused:
        error = str(refused)
    assert "\n" not in error


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.text(), st.booleans(), st.lists(st.integers())))
def test_a_value_that_fits_an_answer_comes_back_unchanged(value: Any) -> None:
    kind = resolve_type(type(value).__name__, {})
    assert kind.read_answer(json.dumps({"value": value})) == value
    assert kind.convert_value(value) == value
