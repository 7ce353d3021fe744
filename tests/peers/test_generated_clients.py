"""Tests that client generators accept ``openapi.json``: each route becomes code that can be imported or compiled."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_ext.api.openapi.handler import OpenApiHandler

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import client.api, client.models
found = [each.name for each in pkgutil.walk_packages(client.api.__path__, "client.api.") if not each.ispkg]
for name in found:
    module = importlib.import_module(name)
    assert module.sync_detailed and module.asyncio_detailed
print(len(found))
"""
USE = """
import type { components, operations, paths } from "./api";

export const started: paths["/turns"]["post"]["requestBody"]["content"]["application/json"] = { prompt: "Hello." };
export function textOf(event: components["schemas"]["TurnEvent"]): string {
  return event.type === "text.delta" ? event.data.text : "";
}
export type Names = keyof operations;
"""
VERSIONS = ("openapi-typescript@7", "typescript@5")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_text(json.dumps(OpenApiHandler.document("/")))
    return path


def ran(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def test_openapi_python_client_makes_every_route(openapi_python: str, document: Path) -> None:
    directory = document.parent
    generator = Path(openapi_python).parent / "openapi-python-client"
    into = directory / "client"
    told = ran(generator, "generate", "--path", document, "--meta", "none", "--output-path", into, cwd=directory)
    assert "will not be generated" not in told, told
    assert "Unable to parse" not in told, told
    operations = sum(len(verbs) for verbs in json.loads(document.read_text())["paths"].values())
    assert int(ran(openapi_python, "-c", IMPORT_ALL, directory, cwd=directory)) == operations


@pytest.mark.skipif(shutil.which("npm") is None, reason="node is not here")
def test_openapi_typescript_makes_every_route(openapi_python: str, document: Path) -> None:
    tools = Path(openapi_python).parents[1] / "node"
    if not (tools / "node_modules" / ".bin" / "tsc").exists():
        tools.mkdir(exist_ok=True)
        ran("npm", "install", "--no-audit", "--no-fund", "--prefix", tools, *VERSIONS, cwd=tools)
    binaries, directory = tools / "node_modules" / ".bin", document.parent
    # Otherwise it takes every field of a request that has a default for a required one.
    options = ("--default-non-nullable", "false", "-o", directory / "api.d.ts")
    ran(binaries / "openapi-typescript", document, *options, cwd=directory)
    (directory / "use.ts").write_text(USE)
    ran(binaries / "tsc", "--noEmit", "--strict", directory / "api.d.ts", directory / "use.ts", cwd=directory)
    made = (directory / "api.d.ts").read_text()
    for path, verbs in json.loads(document.read_text())["paths"].items():
        assert json.dumps(path) in made
        assert [entry["operationId"] for entry in verbs.values() if entry["operationId"] not in made] == []
