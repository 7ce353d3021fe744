"""Finds work directories of sessions that no longer exist. Such a directory remains if another program deleted the
session, or if a server was killed.

A note (a file beside each work directory) names its session. The code in the jail cannot reach the note.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core import process_identity
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey

NOTE = ".session"


@dataclass(frozen=True, slots=True)
class OrphanWorkdir:
    """A work directory, and the session for which it was created. ``idle`` is true if the process that used the
    directory last has certainly ended, or is this process."""

    key: SessionKey
    workdir: Path
    idle: bool


def write_note(workdir: Path, key: SessionKey) -> None:
    """Write the note that names the session of ``workdir`` and the process that uses it."""
    place = workdir.with_suffix(NOTE)
    fresh = place.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(
        json.dumps({"namespace": key.namespace, "id": key.id, **_identify_process(os.getpid())}), encoding="utf-8"
    )
    fresh.chmod(0o600)
    fresh.replace(place)


def forget(workdir: Path) -> None:
    """Remove the directory and its note."""
    shutil.rmtree(workdir, ignore_errors=True)
    for place in workdir.parent.glob(f"{workdir.name}.*"):
        place.unlink(missing_ok=True)


def find_orphans(work_root: Path) -> list[OrphanWorkdir]:
    """Return all work directories with a readable note. The caller must check which of their sessions still exist."""
    leftovers = []
    for place in sorted(work_root.glob(f"*{NOTE}")):
        try:
            body = json.loads(place.read_text(encoding="utf-8"))
            leftovers.append(
                OrphanWorkdir(SessionKey(body["namespace"], body["id"]), place.with_suffix(""), _is_idle(body))
            )
        except (OSError, ValueError, KeyError, TypeError, InvalidRequest):
            continue
    return leftovers


@functools.cache
def _identify_process(pid: int) -> dict[str, Any]:
    """Return properties that, together with its id, identify the process ``pid``, such as its start time and its
    machine. They do not change while the process runs."""
    where = {
        "machine": process_identity.machine_id(),
        "boot": process_identity.boot_id(),
        "pids": process_identity.pid_namespace(),
    }
    return {"pid": pid, "started": process_identity.start_time(pid), **where}


def _is_idle(body: Mapping[str, Any]) -> bool:
    """Return whether no other process uses the work directory. ``body`` is the parsed content of its note file, which
    identifies the process that used the directory last. The result is True if that process is this one or has certainly
    ended. A process on another machine, or in another container, counts as running."""
    this_process = _identify_process(os.getpid())
    if all(body[name] == value for name, value in this_process.items()):
        return True
    if not this_process["machine"] or body["machine"] != this_process["machine"]:
        return False
    rebooted = body["boot"] != this_process["boot"]
    return rebooted or (
        body["pids"] == this_process["pids"] and not process_identity.is_alive(int(body["pid"]), str(body["started"]))
    )
