"""A log whose lines have a common form is read as a table with one row for each line."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.file_facts.log_lines import LogTable, log_table

CLOCKS = [f"2025-01-{day:02} 10:{day:02}:00" for day in range(1, 29)]


def _read(lines: Sequence[str]) -> pd.DataFrame:
    """Read the lines as the code does that a description of the log gives."""
    table = log_table("\n".join(lines), whole=True)
    assert table is not None
    return _frame(table, lines)


def _frame(table: LogTable, lines: Sequence[str]) -> pd.DataFrame:
    frame = pd.Series(list(lines)).str.extract(table.pattern)
    frame = frame.dropna(how="all") if table.has_other_lines else frame
    return frame.astype(dict(table.types))


@pytest.mark.parametrize(
    ("lines", "columns", "first"),
    [
        pytest.param(
            [
                f"{clock} {level} db request took {at} ms"
                for at, clock in enumerate(CLOCKS)
                for level in ("INFO", "ERROR")
            ],
            ["time", "level", "ms"],
            [pd.Timestamp("2025-01-01 10:01"), "INFO", 0],
            id="a time, a level and a number with a unit",
        ),
        pytest.param(
            [f"{clock},250 - app.{part} - WARNING - slow query" for clock in CLOCKS for part in ("db", "web")],
            ["time", "source", "level"],
            [pd.Timestamp("2025-01-01 10:01:00.250"), "app.db", "WARNING"],
            id="fields between dashes, as Python's logging writes them",
        ),
        pytest.param(
            [
                f"{clock} | INFO  | {part} | {text}"
                for clock in CLOCKS
                for part, text in (("a", "up"), ("b", "is down"))
            ],
            ["time", "level", "source", "message"],
            [pd.Timestamp("2025-01-01 10:01"), "INFO", "a", "up"],
            id="fields between bars, some of them padded",
        ),
        pytest.param(
            [f"[{clock}] [ERROR] [worker-{at % 3}] batch {at} failed" for at, clock in enumerate(CLOCKS)],
            ["time", "level", "source", "batch"],
            [pd.Timestamp("2025-01-01 10:01"), "ERROR", "worker-0", 0],
            id="fields in brackets",
        ),
        pytest.param(
            [
                f'10.0.0.{at} [{clock}] "{method} /api/{part} HTTP/1.1" {200 + at} {at * 1.5}ms'
                for at, clock in enumerate(CLOCKS)
                for method, part in (("GET", "search"), ("POST", "cart"))
            ],
            ["ip", "time", "method", "path", "status", "ms"],
            ["10.0.0.0", pd.Timestamp("2025-01-01 10:01"), "GET", "/api/search", 200, 0.0],
            id="a request in quotes with its status",
        ),
        pytest.param(
            [
                f"Nov {day:2} 07:00:01 web01 {name}: done"
                for day in range(1, 29)
                for name in (f"sshd[{day}]", "cron[9]")
            ],
            ["time", "source"],
            ["Nov  1 07:00:01", "sshd"],
            id="syslog, without the number of the process",
        ),
        pytest.param(
            [f"{at + 1:02}.03.25, 10:{at:02} - {name}: hi" for at in range(28) for name in ("Anna Maria", "Ben")],
            ["time", "source", "message"],
            ["01.03.25, 10:00", "Anna Maria", "hi"],
            id="the sender of a message",
        ),
        pytest.param(
            [f"ts=2025-03-{day:02}T10:00:00Z user=u{day % 3} amount={day}.5" for day in range(1, 29)],
            ["ts", "user", "amount"],
            [pd.Timestamp("2025-03-01 10:00", tz="UTC"), "u1", 1.5],
            id="keys and values",
        ),
        pytest.param(
            [f"{clock} station-{at % 3} temp=20.5C hum=40%" for at, clock in enumerate(CLOCKS)],
            ["time", "source", "temp", "hum"],
            [pd.Timestamp("2025-01-01 10:01"), "station-0", 20.5, 40],
            id="values with units",
        ),
    ],
)
def test_the_fields_of_a_line_are_columns(lines: list[str], columns: list[str], first: list[object]) -> None:
    frame = _read(lines)
    assert list(frame.columns) == columns
    assert len(frame) == len(lines)
    assert list(frame.iloc[0]) == first


@pytest.mark.parametrize("tail", ["", ' "-" "Mozilla/5.0 (X11; Linux x86_64)"'])
def test_an_access_log_of_a_web_server_has_the_columns_of_its_format(tail: str) -> None:
    lines = [
        f'10.0.0.{at} - - [10/Oct/2025:13:{at:02}:07 +0000] "GET /a/{at}?q=1 HTTP/1.1" 200 {at}{tail}'
        for at in range(20)
    ]
    lines[3] = lines[3].replace("200 3", "304 -")
    frame = _read(lines)
    assert list(frame.columns[:7]) == ["ip", "user", "time", "method", "path", "status", "bytes"]
    assert frame["status"].tolist().count(304) == 1
    assert frame["bytes"].isna().sum() == 1
    table = log_table("\n".join(lines), whole=True)
    assert table is not None
    times = eval(table.conversions["time"].partition(" = ")[2].format("frame['time']"), {"pd": pd, "frame": frame})
    assert times.dt.minute.tolist() == list(range(20))


def test_times_that_pandas_cannot_have_stay_text() -> None:
    lines = [f"{clock} INFO a lease ends in {at} ms" for at, clock in enumerate(CLOCKS)]
    lines[3] = "9999-12-31 00:00:00 INFO a lease ends in 3 ms"
    assert _read(lines)["time"].iloc[3] == "9999-12-31 00:00:00"


def test_durations_in_several_units_are_converted_to_seconds() -> None:
    lines = [f"{clock} route=/a dur={'1.5s' if at % 2 else '250ms'}" for at, clock in enumerate(CLOCKS)]
    table = log_table("\n".join(lines), whole=True)
    assert table is not None
    assert table.conversions == {"dur": "dur_seconds = pd.to_timedelta({}).dt.total_seconds()"}
    assert pd.to_timedelta(_frame(table, lines)["dur"]).dt.total_seconds().tolist()[:2] == [0.25, 1.5]


def test_the_lines_of_a_traceback_are_no_rows() -> None:
    traceback = ["Traceback (most recent call last):", '  File "app.py", line 3, in <module>', "ValueError: bad value"]
    lines = [line for clock in CLOCKS for line in (f"{clock} ERROR job failed in 2.5 s", *traceback)]
    frame = _read(lines)
    assert len(frame) == len(CLOCKS)
    assert frame["seconds"].tolist() == [2.5] * len(CLOCKS)


def test_a_line_that_lacks_fields_keeps_its_time_its_level_and_its_text() -> None:
    lines = [f"{clock} INFO gate {at % 5} opened in {at} ms" for at, clock in enumerate(CLOCKS)]
    lines[20] = "2025-01-21 11:00:00 ERROR lost connection to server, 3 retries"
    row = _read(lines).iloc[20]
    assert row["level"] == "ERROR"
    assert row["message"] == "lost connection to server, 3 retries"
    assert pd.isna(row["ms"])


def test_a_field_that_lines_after_the_inspected_ones_lack_loses_no_line() -> None:
    lines = [f"2025-01-01 {at // 60:02}:{at % 60:02}:00 INFO db request took {at} ms" for at in range(600)]
    later = "2025-01-02 00:00:00 ERROR the server stops"
    table = log_table("\n".join(lines), whole=False)
    assert table is not None
    assert _frame(table, [*lines, later])["level"].tolist().count("ERROR") == 1
    assert (_frame(table, [*lines, "2025-01-02 00:00:00 INFO db request took 12.5 ms"])["ms"] == 12.5).sum() == 1


@pytest.mark.parametrize(
    "text",
    [
        "The owl and the cat\nwent out to sea\nin a small green boat\n\nThey took some honey\nin a note",
        "# Title\n\n- item one\n- item two is longer\n- item three\n\nSome text here.\nMore text, with commas.",
        "a: 1\nb: 2\nc:\n  - x\n  - y\nd: 3\ne: 4\nf: 5\n",
        "2025-01-01 INFO up\n2025-01-01 INFO down\n",
        "",
    ],
)
def test_other_texts_are_no_tables(text: str) -> None:
    assert log_table(text, whole=True) is None


MARKS = ("[", "]", "[x]", '"', '"a b"', "-", "|", "(?P<a>", "\\d", "'")
KEYS = ("key=1", 'key="v', "source=a", "message=b", "level=c", "seconds=1")
FIELDS = ("2025-01-01 10:00:00", "10:00", "INFO", "12 ms", "3s", "4 sec", "name:", "ä", "10.0.0.1", "/p", "GET")
WORDS = st.sampled_from([*MARKS, *KEYS, *FIELDS])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=12), st.booleans())
def test_the_pattern_of_any_text_can_be_applied(lines: list[str], whole: bool) -> None:
    table = log_table("\n".join(lines * 3), whole=whole)
    if table is not None:
        frame = _frame(table, lines * 3)
        assert list(frame.columns) == list(table.cells)


@pytest.mark.parametrize("line", ["[ " * 500, '" ' * 499 + '"', "a=" * 500, "1 ms " * 200, "x" * 5_000])
def test_hostile_lines_take_no_longer_than_others(line: str) -> None:
    begin = time.process_time()
    log_table("\n".join(f"{clock} {line}" for clock in CLOCKS * 8), whole=True)
    assert time.process_time() - begin < 2
