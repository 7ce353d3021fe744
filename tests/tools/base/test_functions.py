from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import enum
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel

import agent_kernel
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.base import time_limited_call
from agent_kernel.tools.base.functions import FunctionTools, PythonFunctionTool, as_tool
from agent_kernel.turn.agent import Agent
from tests.tools.asking import context, occasion
from tests.turns import stored

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclasses.dataclass
class Place:
    lat: float
    lon: float = 0.0


class Order(BaseModel):
    title: str
    count: int = 1


ORDER = Order(title="x")


@agent_kernel.tool
def weather(
    city: str,
    unit: Unit = Unit.CELSIUS,
    days: int | None = None,
    how: Literal["short", "long"] = "short",
    place: Place | None = None,
) -> dict[str, Any]:
    """The weather of a city.

    From a table.

    Args:
        city: Its name,
            as people say it.
        unit: Of temperatures.
    """
    return {"city": city, "unit": unit, "days": days, "place": place}


def test_the_schema_comes_from_hints_and_docstring() -> None:
    spec = as_tool(weather).spec
    assert (spec.name, spec.kind, spec.source) == ("weather", "function", "user")
    assert spec.description == "The weather of a city.\n\nFrom a table."
    properties = spec.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "Its name, as people say it."}
    assert properties["unit"]["default"] == "celsius"
    assert properties["how"]["enum"] == ["short", "long"]
    assert (spec.parameters["required"], spec.parameters["additionalProperties"]) == (["city"], False)
    jsonschema.Draft202012Validator.check_schema(dict(spec.parameters))


def test_a_parameter_may_be_called_what_it_likes() -> None:
    def odd(title: str, schema: int, json: bool, model_config: float, order: Order = ORDER) -> None: ...

    spec = as_tool(odd).spec
    assert list(spec.parameters["properties"]) == ["title", "schema", "json", "model_config", "order"]
    assert spec.parameters["properties"]["order"]["default"] == {"title": "x", "count": 1}


@pytest.mark.parametrize(
    ("doc", "said"),
    [
        ("Adds.\n\nArgs:\n    a: The first.", "The first."),
        ("Adds.\n\n:param a: The first.", "The first."),
        ("Adds.\n\nParameters\n----------\na : int\n    The first.", "The first."),
        ("Adds.", None),
        ("", None),
    ],
)
def test_every_usual_style_of_docstring_is_read(doc: str, said: str | None) -> None:
    def add(a: int) -> int:
        return a

    add.__doc__ = doc
    assert as_tool(add).spec.parameters["properties"]["a"].get("description") == said


async def test_arguments_become_what_the_hints_say() -> None:
    seen: dict[str, Any] = {}

    @agent_kernel.tool
    def take(unit: Unit, place: Place, order: Order, day: datetime.date, many: tuple[int, ...] = ()) -> str:
        seen.update(unit=unit, place=place, order=order, day=day, many=many)
        return "ok"

    given = {"unit": "kelvin", "place": {"lat": 1}, "order": {"title": "t"}, "day": "2026-03-01", "many": [1, 2]}
    assert (await as_tool(take).call(given, context())).text == "ok"
    assert seen == {
        "unit": Unit.KELVIN,
        "place": Place(1.0),
        "order": Order(title="t"),
        "day": datetime.date(2026, 3, 1),
        "many": (1, 2),
    }


async def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidRequest, match=r"city: .*how: .*more: "):
        await as_tool(weather).call({"how": "medium", "more": 1}, context())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "(it returned nothing)"),
        ({"a": [1, 2.5, None], "d": datetime.date(2026, 1, 2)}, '{"a":[1,2.5,null],"d":"2026-01-02"}'),
        (Place(1, 2), '{"lat":1,"lon":2}'),
        (Order(title="t"), '{"title":"t","count":1}'),
        ([Unit.KELVIN], '["kelvin"]'),
        (True, "true"),
        (float("nan"), "NaN"),
        ({"o": object}, '{"o":"<class \'object\'>"}'),
        (complex(1, 2), "(1+2j)"),
        (ToolOutput("mine", "error"), "mine"),
    ],
)
async def test_what_a_function_returns_is_text_for_the_model(value: Any, text: str) -> None:
    assert (await PythonFunctionTool(lambda: value, name="give").call({}, context())).text == text


async def test_pictures_and_bytes_come_back_as_what_they_are() -> None:
    class Drawn:
        def _repr_png_(self) -> bytes:
            return PNG

    for value in (PNG, Drawn(), Media.of("image/png", PNG)):
        output = await PythonFunctionTool(lambda value=value: value, name="draw").call({}, context())
        assert [(media.mime, media.data) for media in output.media] == [("image/png", PNG)]
    mixed = await PythonFunctionTool(lambda: ["two:", PNG, {"a": 1}, b"\x00\x01"], name="draw").call({}, context())
    assert mixed.text == 'two:\n[1 figure(s) shown]\n{"a":1}\n[2 bytes]'
    assert (len(mixed.media), [(file.name, file.data) for file in mixed.files]) == (1, [("draw-4.bin", b"\x00\x01")])


async def test_a_figure_of_matplotlib_is_a_picture() -> None:
    from matplotlib.figure import Figure

    output = await PythonFunctionTool(lambda: Figure(figsize=(1, 1)), name="draw").call({}, context())
    assert output.media[0].mime == "image/png"


async def test_an_async_function_is_awaited() -> None:
    @agent_kernel.tool(name="later", description="Waits.", effects=True)
    async def wait(seconds: float = 0) -> str:
        await asyncio.sleep(seconds)
        return "done"

    tool = as_tool(wait)
    assert (tool.spec.name, tool.spec.description, tool.spec.kind) == ("later", "Waits.", "function.effects")
    assert (await tool.call({}, context())).text == "done"


async def test_a_function_that_blocks_blocks_nothing_else() -> None:
    free = threading.Event()

    def block() -> str:
        assert free.wait(20)
        return threading.current_thread().name

    call = asyncio.create_task(PythonFunctionTool(block).call({}, context()))
    await asyncio.sleep(0.01)
    free.set()
    assert (await call).text == "tool block"


async def test_a_function_that_hangs_is_answered_for_and_soon_not_called_any_more() -> None:
    free = threading.Event()
    tool = PythonFunctionTool(lambda: free.wait(60), name="hang", timeout_s=0.02)
    try:
        for _ in range(time_limited_call.HUNG):
            output = await tool.call({}, context())
            assert (output.status, output.text) == ("timeout", "It did not end within 0.02 s, and may still run.")
        assert "still run" in (await tool.call({}, context())).text
    finally:
        free.set()
    for _ in range(500):
        if "still run;" not in (await tool.call({}, context())).text:
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("what ended still counted as running")


async def test_an_async_function_that_will_not_be_cancelled_holds_no_turn() -> None:
    stop = asyncio.Event()

    async def stubborn() -> None:
        while not stop.is_set():
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await stop.wait()

    output = await PythonFunctionTool(stubborn, timeout_s=0.02).call({}, context())
    stop.set()
    assert output.status == "timeout"


@pytest.mark.parametrize("error", [ValueError("no such city"), TimeoutError("the database"), KeyError("x")])
async def test_what_a_function_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    for function in (fail, fail_later):
        with pytest.raises(type(error)):
            await PythonFunctionTool(function).call({}, context())


async def test_a_function_that_exits_does_not_end_the_server() -> None:
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await PythonFunctionTool(lambda: sys.exit(3), name="leave").call({}, context())


async def test_a_function_may_see_its_call() -> None:
    def who(word: str, context: ToolContext) -> str:
        return f"{word} {context.key.id} {context.call.id}"

    tool = PythonFunctionTool(who)
    assert list(tool.spec.parameters["properties"]) == ["word"]
    assert (await tool.call({"word": "hi"}, context())).text == "hi s1 call-1"
    with pytest.raises(InvalidRequest, match="only in a server"):
        tool.invoke(word="hi")


async def test_in_a_cell_a_function_is_called_here_with_arguments_as_it_wants_them() -> None:
    def here(unit: Unit) -> tuple[Unit, bool]:
        return unit, threading.current_thread() is threading.main_thread()

    async def later(n: int = 1) -> int:
        return n

    assert PythonFunctionTool(here).invoke(unit="kelvin") == (Unit.KELVIN, True)
    assert await PythonFunctionTool(later).invoke() == 1
    with pytest.raises(InvalidRequest, match="unit: "):
        PythonFunctionTool(here).invoke(unit="miles")


def _positional(*args: int) -> None: ...
def _keywords(**kwargs: int) -> None: ...
def _unknown(a: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _no_json(a: threading.Thread) -> None: ...
def _no_schema(a: Callable[[int], int]) -> None: ...


@pytest.mark.parametrize("function", [_positional, _keywords, _unknown, _no_json, _no_schema, 3, Place])
def test_what_can_not_be_a_tool_is_said_at_once(function: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be|neither"):
        as_tool(function)


@pytest.mark.parametrize("name", ["two words", "ümlaut", "a" * 65, "a.b"])
def test_a_name_that_models_can_not_call_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a valid tool name"):
        PythonFunctionTool(lambda: None, name=name)


def test_a_function_stays_the_function_it_is() -> None:
    assert weather("Oslo")["city"] == "Oslo"
    assert as_tool(as_tool(weather)) is as_tool(weather)


async def test_a_request_narrows_the_functions_of_a_server() -> None:
    tools = FunctionTools([as_tool(weather), PythonFunctionTool(lambda: 1, name="one")])
    for wanted, names in ((None, ["weather", "one"]), (("one",), ["one"]), (("functions",), ["weather", "one"])):
        offered = await tools.offer(occasion(tools=wanted))
        assert [tool.spec.name for tool in offered.tools] == names
    assert (await tools.offer(occasion(tools=("python",)))).tools == ()


async def test_an_agent_takes_functions_as_they_are_and_callbacks_for_declared_ones() -> None:
    def double(n: int) -> int:
        return n * 2

    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(name: str, arguments: dict[str, Any]) -> str:
        asked.append((name, arguments))
        return f"{name} says hello"

    calls = [{"name": "double", "arguments": {"n": 21}}, {"name": "greet", "arguments": {"who": "you"}}]
    engine = ScriptedEngine([{"calls": calls}, {"text": "done"}])
    store = MemoryStore()
    greet = ToolSpec("greet", "", {"type": "object", "properties": {"who": {"type": "string"}}}, kind="dispatch")
    agent = Agent(store, engine, "s1", [double], tool_callbacks={"greet": answer, "unasked": answer})
    await agent.run(TurnRequest("go", functions=(greet,)))
    assert [message.text for message in await stored(store) if message.role == "tool"] == ["42", "greet says hello"]
    assert asked == [("greet", {"who": "you"})]
    assert [tool.name for tool in engine.requests[0].tools] == ["double", "greet"]
