"""Sends requests that schemathesis draws from the server's OpenAPI document, with all its checks, to a
running server.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server import TOKEN, AgentServer

Json = dict[str, Any]
REF = re.compile(r"#/components/schemas/([^\"]+)")
ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "429", "5xx"]
"""What schemathesis lets a request be answered with that fits its schemas (5xx are another check's)."""
REFUSED = ["400", "401", "403", "404", "405", "406", "409", "410", "413", "415", "416", "422", "428", "429", "5xx"]
"""And one that does not."""
GENERATED = re.compile(r"([\d,]+) generated")
UNREACHABLE = ("/socket",)
"""A WebSocket is no operation of HTTP."""


@dataclass(frozen=True, slots=True)
class Report:
    code: int
    generated: int
    told: str

    def check(self, *, at_least: int) -> None:
        """Check the report. Raises AssertionError if schemathesis found a problem or sent fewer than ``at_least``
        requests.
        """
        if self.code:
            raise AssertionError(self.told)
        assert self.generated >= at_least, self.told


def closed(document: Json) -> Json:
    """Return the document with closed response schemas: a field that the document does not describe is an error.
    Request schemas stay open.
    """
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    operations = [entry for path in document["paths"].values() for entry in path.values()]
    sent = _reachable(schemas, [entry.get("requestBody") for entry in operations])
    answered = _reachable(schemas, [entry["responses"] for entry in operations])
    for name in answered - sent:
        if "properties" in schemas[name]:
            schemas[name].setdefault("additionalProperties", False)
    return document


def grounded(document: Json, known: Mapping[str, Sequence[str]]) -> Json:
    """Return the document with real ids in its paths, so that requests reach routes whose session, turn or
    file exists.
    """
    document = copy.deepcopy(document)
    for path, operations in document["paths"].items():
        for entry in operations.values():
            for parameter in entry["parameters"]:
                ids = known.get(f"{parameter['name']} of {path.split('/')[1]}") or known.get(parameter["name"])
                if parameter["in"] == "path" and ids:
                    parameter["schema"] = {"type": "string", "enum": [*ids]}
    return document


async def run(
    server: AgentServer, document: Json, folder: Path, *, examples: int, seed: int, options: Sequence[str] = ()
) -> Report:
    """Run schemathesis with ``examples`` drawn requests for each operation, and those of its coverage phase."""
    folder.mkdir(parents=True, exist_ok=True)
    schema, settings = folder / "openapi.json", folder / "schemathesis.toml"
    schema.write_text(json.dumps(document))
    settings.write_text(_settings(document))
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("--config-file", str(settings), "run", str(schema), "--url", f"{server.url}agent/v1"),
        *("-H", f"Authorization: Bearer {TOKEN}", "--checks", "all", "--no-color", "--no-shrink", "--warnings", "off"),
        *("-n", str(examples), "--seed", str(seed), "--generation-database", "none", "--continue-on-failure"),
        *("--suppress-health-check", "all", "--request-timeout", "60", "--output-truncate", "false"),
        *(option for path in UNREACHABLE for option in ("--exclude-path", path)),
        *options,
    ]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, cwd=folder, check=False, env={"PATH": ""}
    )
    found = GENERATED.search(ran.stdout)
    return Report(ran.returncode, int(found[1].replace(",", "")) if found else 0, ran.stdout + ran.stderr)


def _reachable(schemas: Json, roots: Any) -> set[str]:
    found: set[str] = set()
    todo = set(REF.findall(json.dumps(roots)))
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= set(REF.findall(json.dumps(schemas[name]))) - found
    return found


def _settings(document: Json) -> str:
    """Return the settings of schemathesis. If an operation has conditions beyond its schema, 400 is a valid answer to a
    request that fits the schema.
    """
    told = [f"checks.negative_data_rejection.expected-statuses = {json.dumps(REFUSED)}\n"]
    for path, operations in document["paths"].items():
        for method, entry in operations.items():
            if "x-conditions" in entry:
                expected = json.dumps([*ACCEPTED, "400", "413", "416", "422"])
                told.append(
                    f"[[operations]]\ninclude-name = {json.dumps(f'{method.upper()} {path}')}\n"
                    f"checks.positive_data_acceptance.expected-statuses = {expected}\n"
                )
    return "\n".join(told)
