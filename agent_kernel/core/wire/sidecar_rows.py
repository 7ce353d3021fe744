"""Compacts and expands the rows of turns and items in NAME.agent.json, since format 3. A compact row leaves out what a
reader can derive from the row before it.

A row of an item has no ``turn`` if the item belongs to the same turn as the item before it, and no ``seq`` if its
number is the next one. A row of a turn has no field with its usual value; for ``epoch``, ``where``, ``model``, and the
names of ``SETTINGS`` in its record, the usual value is that of the turn before. ``without`` lists the names of
``SETTINGS`` that the record of the turn before has and the record of this turn lacks. A session that grows therefore
adds rows and changes none. The functions work on plain JSON, have no side effects, and use the standard library only,
since kernels read sidecars too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SETTINGS = ("client_tools", "permission", "local", "host", "notes", "tools", "finish")
"""Names in a turn's record whose values are usually those of the turn before."""
MAX_INHERITED = 1000
"""Maximum characters of JSON of a value that a row can leave out because the row before has it. Without a limit, a
small document could stand for a very large session."""
_USUAL: Mapping[str, Any] = {
    "state": "committed",
    "reason": "",
    "cell": "",
    "closed": None,
    "usage": {},
    "record": {},
    "segment": 0,
}
_PLACE = ("epoch", "where", "model")
_OF_TURN = ("cell", "epoch")
"""Fields that documents before format 3 repeat in each item."""
_ABSENT = object()


def compact_rows(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part ``agent_kernel`` of a document with compact rows. ``own`` is this part with complete rows."""
    return {**own, "turns": _compact_turns(own["turns"]), "items": _compact_items(own["items"])}


def expand_rows(own: Any) -> Any:
    """Return the part ``agent_kernel`` of a document of format 3 with complete rows. ``own`` is this part as the
    document has it, and is not trusted: where an object or a list is missing, the value stays as it is, so that the
    reader refuses it."""
    if not isinstance(own, dict):
        return own
    return {**own, "turns": _expand_turns(own.get("turns")), "items": _expand_items(own.get("items"))}


def _compact_items(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    compact = []
    seq, turn = 0, None
    for row in rows:
        usual = {"seq": seq + 1, "turn": turn}
        seq, turn = row["seq"], row["turn"]
        compact.append(
            {name: value for name, value in row.items() if name not in _OF_TURN and value != usual.get(name, _ABSENT)}
        )
    return compact


def _expand_items(rows: Any) -> Any:
    if not isinstance(rows, list):
        return rows
    expanded: list[Any] = []
    seq: Any = 0
    turn: Any = None
    for row in rows:
        if not isinstance(row, dict):
            expanded.append(row)
            continue
        full = {"seq": seq + 1 if type(seq) is int else None, "turn": turn, **row}
        seq, turn = full["seq"], full["turn"]
        expanded.append(full)
    return expanded


def _compact_turns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    compact = []
    inherited = _Inherited()
    for row in rows:
        usual = {**_USUAL, **inherited.usual}
        record = row["record"]
        own = {name: value for name, value in record.items() if not inherited.has(name, value)}
        short = {name: value for name, value in {**row, "record": own}.items() if not _is_usual(usual, name, value)}
        without = [name for name in inherited.settings if name not in record]
        compact.append(short | ({"without": without} if without else {}))
        inherited.learn(row, record)
    return compact


def _expand_turns(rows: Any) -> Any:
    if not isinstance(rows, list):
        return rows
    expanded: list[Any] = []
    inherited = _Inherited()
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("record", {}), dict):
            expanded.append(row)
            continue
        own, without = row.get("record", {}), row.get("without", ())
        gone = {name for name in SETTINGS if name in own or (isinstance(without, list) and name in without)}
        record = {name: value for name, value in inherited.settings.items() if name not in gone} | own
        # The fields of the row come first, in their order, so that writing the row again gives the same text.
        given = {name: value for name, value in row.items() if name != "without"}
        usual = {name: value for name, value in {**_USUAL, **inherited.usual}.items() if name not in given}
        full = {**given, **usual, "record": record}
        inherited.learn(full, record)
        expanded.append(full)
    return expanded


class _Inherited:
    """The values that a row can omit because they equal those of earlier rows. ``usual`` maps each field of a row to
    its usual value. ``settings`` maps the names of SETTINGS in the record of the row to their usual values."""

    def __init__(self) -> None:
        self.usual: dict[str, Any] = {"ordinal": 1, **dict.fromkeys(_PLACE, "")}
        self.settings: dict[str, Any] = {}

    def has(self, name: str, value: Any) -> bool:
        return name in self.settings and _is_same(self.settings[name], value)

    def learn(self, row: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        ordinal = row["ordinal"]
        self.usual = {name: row[name] if _is_short(row[name]) else "" for name in _PLACE}
        self.usual["ordinal"] = ordinal + 1 if type(ordinal) is int else None
        settings = self.settings
        self.settings = {
            name: record[name]
            for name in SETTINGS
            if name in record and (record[name] is settings.get(name, _ABSENT) or _is_short(record[name]))
        }


def _is_usual(usual: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in usual and _is_same(usual[name], value)


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two values have the same JSON. Unlike ``==``, this distinguishes 1, 1.0 and true."""
    if type(first) is not type(second):
        return False
    return bool(first == second) if isinstance(first, str | int | None) else json.dumps(first) == json.dumps(second)


def _is_short(value: Any) -> bool:
    return len(json.dumps(value)) <= MAX_INHERITED
