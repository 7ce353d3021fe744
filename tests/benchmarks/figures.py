"""The figures that benchmarks record, and the page that shows them: ``python -m tests.benchmarks.figures`` writes
docs/performance.md from build/bench/figures.json. The page has every row of ROWS, also those that were not run."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_kernel.engines.local.catalog.machine import read_machine

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "build" / "bench" / "figures.json"
PAGE = ROOT / "docs" / "performance.md"
PACKAGES = ("agent-kernel", "openvino-genai", "jupyter-server", "tornado", "ipykernel", "numpy", "pandas")
HEAD = """\
# Performance

This page is for people who want to know how fast agent-kernel is, and for developers who check that a change makes
nothing slower. Each row has a measured figure and, where there is one, a similar operation of another program for
comparison.

`make bench` measures the figures and writes this page. A figure and what it is compared with come from one run,
because the speed of a machine changes; ratios therefore say more than times. `make bench ARGS="-k NAME"` repeats one
benchmark and keeps the other rows. A row that was not run says so.

The column *here* has the figure of agent-kernel, and *ratio* is this figure divided by the one it is compared with.
"95 of 100" means that 95 of 100 measured cases took at most this long. A process that is *taken warm* was started in
advance, and *reuse* means that a model keeps what it has computed for the earlier turns (its KV cache).
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the page. ``test`` is the benchmark that measures it. ``peer`` is what it is compared with, if
    anything."""

    name: str
    test: str
    peer: str = ""


START, STORE, TURN = "Start", "Sessions in SQLite", "A turn on the server"
SANDBOX, DRAFTS, MODEL = "The sandbox", "Drafts", "Local models"
_APPEND, _LONG = (
    "an_append_costs_a_small_multiple_of_bare_sqlite",
    "an_append_and_a_tail_cost_the_same_in_a_long_session",
)
_TURN, _JAILED = "a_turn_of_500_deltas_and_5_calls", "a_jailed_worker_starts_nearly_as_fast_as_python_itself"
_SIZE, _LLAMA = "what_a_draft_costs_by_the_size_of_the_kernel", "the_engine_keeps_up_with_llama_cpp"
_SERVE = "more_requests_are_answered_than_by_transformers_serve"
SECTIONS: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {
        START: (
            Row(
                "`agent-kernel serve` answers `health`",
                "serve_answers_health_soon",
                "a process that imports jupyter_server",
            ),
            Row("`%load_ext agent_kernel`, processor time", "loading_the_magics_takes_little", "importing ipykernel"),
            Row(
                "importing the server extension, processor time",
                "importing_the_server_extension",
                "importing jupyter_server",
            ),
            Row(
                "warm start of `coder-0.5b`, to the first token",
                "a_model_starts_soon",
                "a process that imports openvino-genai",
            ),
            Row(
                "warm start of `coder-1.5b`, to the first token",
                "a_model_starts_soon",
                "a process that imports openvino-genai",
            ),
        ),
        STORE: (
            Row("append of one message", _APPEND, "a bare sqlite3 transaction"),
            Row("one turn: create, open, two appends, close", "a_turn_and_a_thousand_sessions"),
            Row("sessions of 20 messages, written by 8 tasks", "a_turn_and_a_thousand_sessions"),
            Row("append to a session of 10,000 items", _LONG, "append to a session of 10 items"),
            Row("last 20 messages of 10,000 items", _LONG, "last 20 messages of 10 items"),
            Row("longest stall of the event loop while 10,000 items are read", "the_event_loop_goes_on_while"),
            Row("written to the journal for a turn of two messages", "a_turn_writes_little_to_the_disk"),
            Row("size of the file", "the_file_grows_by_what_is_said", "the JSON in it"),
        ),
        TURN: (
            Row("processor time of a turn of 5 calls and 500 deltas", _TURN, "one `GET api/status`"),
            Row("from an event to the client that follows it, 99 of 100", _TURN),
        ),
        SANDBOX: (
            Row("jailed worker, from nothing", _JAILED, "starting plain Python"),
            Row("jailed worker, taken warm, with its first run", _JAILED, "starting plain Python"),
            Row("run in a started worker", _JAILED, "starting plain Python"),
            Row("`import numpy` in a new worker", _JAILED, "starting plain Python"),
            Row("`import pandas` in a new worker", _JAILED, "starting plain Python"),
        ),
        DRAFTS: (
            *(
                row
                for size in ("100 MB", "1 GB", "4 GB")
                for row in (
                    Row(f"start of a draft of a kernel of {size}", _SIZE, "a bare fork"),
                    Row(f"call in a draft of a kernel of {size}", _SIZE),
                )
            ),
        ),
        MODEL: (
            Row("first token of the twentieth turn of 3,900 tokens", "the_twentieth_turn_starts_at_once", "no reuse"),
            Row("tokens of eight sessions at once", "sessions_together_decode_more_than_one", "one session"),
            Row("decoding, against the library's own loop", "the_engine_is_as_fast_as_the_library", "openvino-genai"),
            Row("decoding at 512 tokens of context", _LLAMA, "llama.cpp"),
            Row("decoding at 2,048 tokens of context", _LLAMA, "llama.cpp"),
            Row("first token of the next turn", _LLAMA, "llama.cpp"),
            *(
                Row(f"{part} inline completion by `{model}`, 95 of 100", "a_completion_is_there_soon_after_a_pause")
                for model in ("coder-0.5b", "coder-1.5b")
                for part in ("first text of an", "whole")
            ),
            Row("requests, several clients at once", _SERVE, "transformers serve"),
            Row("first text of one client", _SERVE, "transformers serve"),
        ),
    }
)
ROWS: Mapping[str, Row] = MappingProxyType({row.name: row for rows in SECTIONS.values() for row in rows})


def record(row: str, ours: float, peer: float | None, unit: str, file: Path = FIGURES) -> None:
    """Store the figure ``ours`` of a row, and ``peer``, the figure that it is compared with.

    Removes the figures of another machine or of other versions from the file. Raises KeyError for a row that is not in
    ROWS.
    """
    kept = read_figures(file)
    here = {"machine": machine(), "versions": versions()}
    rows = kept["rows"] if {name: kept.get(name) for name in here} == here else {}
    figure = {
        "ours": ours,
        "peer": peer,
        "unit": unit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "load": os.getloadavg()[0],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(here | {"rows": rows | {ROWS[row].name: figure}}, indent=1), encoding="utf-8")
    os.replace(temporary, file)


def read_figures(file: Path = FIGURES) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": {}}
    return found


def machine() -> dict[str, Any]:
    described = read_machine()
    return {
        "processor": _processor(),
        "cores": described.cores,
        "memory_gib": round(described.memory.total / 2**30) if described.memory else None,
        "gpus": [gpu.name for gpu in described.gpus],
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def render(figures: Mapping[str, Any]) -> str:
    """Return the page with the recorded figures."""
    lines = [HEAD, *_conditions(figures)]
    for section, rows in SECTIONS.items():
        lines += [f"## {section}", "", "| | here | compared with | ratio | benchmark |", "|---|---|---|---|---|"]
        lines += [_line(row, figures["rows"].get(row.name)) for row in rows]
        lines.append("")
    return "\n".join(lines)


def _conditions(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the page about the machine, the versions and the dates."""
    if not figures["rows"]:
        return ["No benchmark was run yet.", ""]
    at = figures["machine"]
    parts = [at["processor"], f"{at['cores']} cores", f"{at['memory_gib']} GiB of memory", *(at["gpus"] or ["no GPU"])]
    dates = sorted({row["date"] for row in figures["rows"].values()})
    loads = sorted(row["load"] for row in figures["rows"].values())
    return [
        f"- **Machine**: {', '.join([*parts, at['system']])}",
        f"- **Versions**: {', '.join(f'{name} {number}' for name, number in figures['versions'].items())}",
        f"- **Date**: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}",
        f"- **Load**: {loads[0]:.1f} to {loads[-1]:.1f} programs ran or waited for a core when the figures were taken. "
        f"Above {at['cores']}, other programs slowed what was measured.",
        "",
    ]


def _line(row: Row, figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return f"| {row.name} | not run | {row.peer} | | `{row.test}` |"
    ours, peer, unit = figure["ours"], figure["peer"], figure["unit"]
    compared = f"{row.peer}: {_number(peer)} {unit}" if peer is not None else ""
    ratio = f"{_number(ours / peer)}" if peer else ""
    return f"| {row.name} | {_number(ours)} {unit} | {compared} | {ratio} | `{row.test}` |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    PAGE.write_text(render(read_figures()), encoding="utf-8")
