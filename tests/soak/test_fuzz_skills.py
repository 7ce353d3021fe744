"""Feeds damaged zips, hostile names and heads, and random MCP configurations: each is refused with its name, and
nothing is written outside.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.mcp import config
from agent_kernel.tools.mcp.mcp_tools import exposed_name
from agent_kernel.tools.skills.package import MAX_BYTES, MAX_ENTRIES, PackageEntry, read_zip, unpack
from tests.soak.conftest import Soak
from tests.soak.hostile import damaged, mutated, text, until_over

HEAD = b"---\nname: Charts\ndescription: Draws charts\n---\nUse matplotlib.\n"
CONFIG = {
    "servers": [
        {"name": "a", "source": {"type": "Process", "command": "x", "args": ["y"], "env": {"K": "${V}"}}},
        {"name": "b", "source": {"type": "Http", "url": "https://h/${V:-d}", "headers": {"X": "${V}"}}},
    ],
    "tool_timeout_secs": 30,
    "max_concurrent_calls": 10,
    "auto_register_tools": True,
}
NAMES = st.one_of(
    text,
    st.lists(st.sampled_from(["..", ".", "a", "CON", "c:", "\\", "", "é", "e\u0301", "A", "\0", " "]), max_size=5).map(
        "/".join
    ),
)


def pack_files() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("charts/SKILL.md", HEAD)
        archive.writestr("charts/scripts/draw.py", b"print(1)\n" * 50)
    return made.getvalue()


def unpack_and_check(entries: list[PackageEntry]) -> None:
    """Check that the package is refused, or unpacked below its directory as plain files within the limits."""
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "outer" / "content"
        target.mkdir(parents=True)
        with contextlib.suppress(InvalidRequest):
            unpack(entries, target)
        found = [Path(folder) / name for folder, _, names in os.walk(place) for name in names]
        assert all(path.is_relative_to(target) and path.is_file() and not path.is_symlink() for path in found)
        assert len(found) <= MAX_ENTRIES
        assert sum(path.stat().st_size for path in found) <= MAX_BYTES


def check_zip(data: bytes) -> None:
    try:
        entries = read_zip(data)
    except InvalidRequest:
        return
    unpack_and_check(entries)


def check_names(names: list[str], head: bytes) -> None:
    unpack_and_check(
        [PackageEntry.from_bytes("SKILL.md", head), *(PackageEntry.from_bytes(name, b"x") for name in names)]
    )


def check_config(body: Any) -> None:
    if not isinstance(body, dict):
        return
    try:
        found = config.parse(body)
        filled = [server.resolve({"V": "secret-value"}) for server in found.servers]
    except InvalidRequest:
        return
    for one in filled:
        assert "secret-value" not in repr(one)
        assert "secret-value" not in one.redact("and secret-value here") or one.secrets == ()


def check_exposed(prefix: str, names: list[str]) -> None:
    taken: dict[str, str] = {}
    for name in names:
        made = exposed_name(prefix, name, taken)
        assert made not in taken
        assert 1 <= len(made) <= 64
        assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
        taken[made] = name


@pytest.mark.soak(0.02)
def test_nothing_that_comes_in_breaks_out(soak: Soak) -> None:
    quarter = soak.seconds / 4
    until_over(soak, "zips", {"data": damaged(pack_files())}, check_zip, quarter)
    heads = {"names": st.lists(NAMES, max_size=8), "head": st.one_of(st.just(HEAD), damaged(HEAD))}
    until_over(soak, "names and heads", heads, check_names, 2 * quarter)
    until_over(soak, "configurations", {"body": mutated(CONFIG)}, check_config, 3 * quarter)
    names = {"prefix": text, "names": st.lists(text, max_size=20)}
    until_over(soak, "names of tools", names, check_exposed, 4 * quarter)
