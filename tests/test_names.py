"""Tests that names which occur in several places have one meaning."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]

SAME_CONCEPT = {
    # A value, and what a schema of the API or the client's class of the same name describes of it.
    *("Approvals", "Branch", "Engine", "Event", "File", "Found", "InputFile", "Item", "Policy", "Ruling", "Session"),
    *("Sessions", "Skill", "StartedTurn", "Summary", "Turn", "Turns", "Usage", "Variable"),
    # The same part of a request or answer in each of the wire formats; the OpenAPI document shows the names.
    *("Container", "Deleted", "FormatBody", "FunctionBody", "FunctionTool", "MessageBody", "OtherTool", "SchemaFormat"),
}
TWO_SIDES = {
    # Our client of an API and the client of our MCP endpoint; the tools of MCP servers and those of our endpoint; a
    # download that a cell follows and the one that the server runs; where a file, and where a document, comes from.
    *("Client", "McpTools", "ModelDownload", "Source"),
}

IRREGULAR = frozenset(
    [
        "begun",
        "bound",
        "brought",
        "built",
        "caught",
        "chosen",
        "done",
        "drawn",
        "felt",
        "found",
        "forgotten",
        "given",
        "gone",
        "had",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "overheard",
        "paid",
        "proven",
        "said",
        "seen",
        "sent",
        "shown",
        "sought",
        "sold",
        "spent",
        "spoken",
        "stolen",
        "struck",
        "stuck",
        "sunk",
        "taken",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "unwritten",
        "withdrawn",
        "woken",
        "won",
        "worn",
        "wrapped",
        "written",
    ]
)
"""Participles that do not end in -ed."""
VERBS_IN_ED = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})
PUBLIC_NAMES = frozenset({"bound", "lost", "scripted", "stored"})
"""Methods of SessionStore, Sandbox and PendingWrite, which other packages implement or call, and
the module of the engine that settings call ``scripted``."""


def test_a_function_or_module_is_not_named_by_a_participle() -> None:
    """``describe``, not ``told``. Properties and predicates may be participles: ``turn.finished``."""
    participles = []
    for package in ("agent_kernel", "jupyter_ext"):
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            functions = [
                node
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            ]
            names = [(path.stem, place), *((node.name, f"{place}:{node.lineno} {node.name}") for node in functions)]
            participles += [line for name, line in names if _is_participle(name) and name not in PUBLIC_NAMES]
    assert participles == []


def _is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.endswith("ed") and "_" not in word and word not in VERBS_IN_ED)


def test_a_public_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in ("agent_kernel", "jupyter_ext"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.relative_to(ROOT).as_posix())
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert not {name: paths for name, paths in several.items() if name not in SAME_CONCEPT | TWO_SIDES}
    assert set(several) == SAME_CONCEPT | TWO_SIDES, "an exception that is no longer needed"
