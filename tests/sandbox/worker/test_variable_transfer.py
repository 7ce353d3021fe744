"""Tests that variables which enter or leave a sandbox are copies, and never code."""

from __future__ import annotations

import io
import json
import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.protocols import Variable, VariableInfo, Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.worker import variable_transfer
from tests.sandbox.conftest import Make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")


def arrow(frame: pd.DataFrame) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def npy(array: Any, *, objects: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=objects)
    return buffer.getvalue()


async def test_given_variables_are_set_before_the_code_runs(sandbox: LinuxSandbox) -> None:
    table = {"columns": ["a"], "index": [0, 1], "data": [[1], [2]]}
    given = (
        Variable("plain", "json", b'{"x": [1, 2.5, null]}'),
        Variable("array", "npy", npy(np.arange(3))),
        Variable("frame", "arrow", arrow(pd.DataFrame({"a": [1, 2]})), "pandas.DataFrame"),
        Variable("series", "arrow", arrow(pd.DataFrame({"a": [1, 2]})), "pandas.Series"),
        Variable("table", "json", json.dumps(table).encode(), "pandas.DataFrame"),
        Variable("any", "pickle", pickle.dumps({1, 2}), "set"),
    )
    code = "plain['x'][1], int(array.sum()), int(frame.a.sum()), series.name, table.shape, sorted(any)"
    result = await sandbox.run(KEY, Work(code, given=given))
    assert (result.error, result.value) == (None, "(2.5, 3, 3, 'a', (2, 1), [1, 2])")
    assert (await sandbox.run(KEY, "array[0]")).value == "np.int64(0)"


@pytest.mark.parametrize(
    ("encoding", "data", "why"),
    [
        ("json", b"{", "JSONDecodeError"),
        ("npy", npy(np.array([{}], dtype=object), objects=True), "allow_pickle=False"),
        ("npy", b"nothing", "ValueError"),
        ("arrow", b"nothing", "Arrow"),
        ("pickle", b"cmissing_module\nThing\n.", "missing_module"),
    ],
)
async def test_a_variable_that_can_not_be_read_is_told_and_the_code_does_not_run(
    sandbox: LinuxSandbox, encoding: Any, data: bytes, why: str
) -> None:
    given = (Variable("fine", "json", b"1"), Variable("broken", encoding, data))
    result = await sandbox.run(KEY, Work("open('ran', 'w')", given=given))
    assert result.status == "error"
    assert "variable broken could not be read" in str(result.error)
    assert why in str(result.error)
    assert (await sandbox.run(KEY, "'fine' in globals(), os.path.exists('ran')")).value == "(False, False)"


@pytest.mark.parametrize("name", ["a b", "class", "__builtins__", "", "x.y"])
async def test_what_is_no_name_is_refused(sandbox: LinuxSandbox, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a valid variable name"):
        await sandbox.run(KEY, Work("1", given=(Variable(name, "json", b"1"),)))
    with pytest.raises(InvalidRequest, match="not a valid variable name"):
        await sandbox.take(KEY, name)


async def test_too_much_is_refused_before_anything_is_started(
    sandbox: LinuxSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_transfer, "MAX_BYTES", 10)
    with pytest.raises(InvalidRequest, match="together"):
        await sandbox.run(KEY, Work("1", given=(Variable("a", "json", b"111111"), Variable("b", "json", b"111111"))))
    assert not sandbox.workdir(KEY).exists()


async def test_plain_values_arrays_and_tables_are_taken_as_they_are(sandbox: LinuxSandbox) -> None:
    await sandbox.run(
        KEY,
        "x = {'a': [1, None, 'é', True]}\narray = np.eye(2)\nnumber = np.float32(0.5)\n"
        "frame = pd.DataFrame({'m': ['a', 'b'], 'v': [1.5, None]}, index=[3, 4])\nseries = frame.v",
    )
    plain = await sandbox.take(KEY, "x")
    assert (plain.encoding, json.loads(plain.data), plain.type) == ("json", {"a": [1, None, "é", True]}, "dict")
    array = await sandbox.take(KEY, "array")
    assert (array.encoding, array.type) == ("npy", "numpy.ndarray")
    assert np.load(io.BytesIO(array.data), allow_pickle=False).tolist() == [[1, 0], [0, 1]]
    assert np.load(io.BytesIO((await sandbox.take(KEY, "number")).data)).item() == 0.5
    frame = await sandbox.take(KEY, "frame")
    assert (frame.encoding, frame.type) == ("arrow", "pandas.DataFrame")
    table = pa.ipc.open_stream(frame.data).read_all().to_pandas()
    assert (table.index.tolist(), table.m.tolist()) == ([3, 4], ["a", "b"])
    assert (await sandbox.take(KEY, "series")).type == "pandas.Series"


async def test_a_table_is_taken_as_json_where_there_is_no_arrow(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "import sys\nsys.modules['pyarrow'] = None\nframe = pd.DataFrame({'a': [1, 2]})")
    taken = await sandbox.take(KEY, "frame")
    assert (taken.encoding, json.loads(taken.data)) == ("json", {"columns": ["a"], "index": [0, 1], "data": [[1], [2]]})


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = {1, 2}", "type set"),
        ("x = {1: 2}", "dict with keys of int"),
        ("x = object()", "type object"),
        ("x = np.array([{}])", "array of Python objects"),
        ("x = []\nx.append(x)", "nests too deeply"),
        ("x = 'x' * (65 << 20)", "at most 67,108,864"),
        ("class S(str):\n    pass\nx = S('a')", "type S"),
    ],
)
async def test_what_can_not_be_copied_is_told_with_the_reason(sandbox: LinuxSandbox, code: str, why: str) -> None:
    await sandbox.run(KEY, code)
    with pytest.raises(InvalidRequest, match=why):
        await sandbox.take(KEY, "x")


async def test_what_is_not_there_is_not_found(sandbox: LinuxSandbox) -> None:
    with pytest.raises(NotFound):
        await sandbox.take(KEY, "x")
    await sandbox.run(KEY, "y = 1")
    with pytest.raises(NotFound):
        await sandbox.take(KEY, "x")


async def test_variables_are_listed_without_being_asked_to_print_themselves(sandbox: LinuxSandbox) -> None:
    assert await sandbox.variables(KEY) == ()
    code = (
        "import math as m\n_hidden = 1\nclass Loud:\n    def __repr__(self): open('ran', 'w')\n"
        "loud = Loud(); text = 'abc'; frame = pd.DataFrame({'a': [1, 2]}); n = 5"
    )
    await sandbox.run(KEY, code)
    found = {held.name: held for held in await sandbox.variables(KEY)}
    assert set(found) == {"Loud", "frame", "loud", "n", "text"}
    assert found["frame"] == VariableInfo("frame", "pandas.DataFrame", (2, 1))
    assert (found["loud"].type, found["text"].shape, found["n"].shape) == ("Loud", (3,), ())
    assert (await sandbox.run(KEY, "os.path.exists('ran')")).value == "False"


async def test_why_variables_are_gone_can_be_told_before_the_next_run(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, idle_s=0.2))
    assert sandbox.lost(KEY) == ""
    await sandbox.run(KEY, "x = 1")
    await sandbox.reset(KEY)
    assert "it was reset" in sandbox.lost(KEY)
    assert "it was reset" in (await sandbox.run(KEY, "1")).lost
    assert sandbox.lost(KEY) == ""


async def test_a_work_directory_that_only_has_files_has_lost_nothing(make: Make) -> None:
    sandbox = make()
    sandbox.workdir(KEY).mkdir(parents=True)
    (sandbox.workdir(KEY) / "input.csv").write_text("a")
    assert sandbox.lost(KEY) == ""
    assert (await sandbox.run(KEY, "open('input.csv').read()")).lost == ""
