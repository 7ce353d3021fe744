"""``agent-kernel purge``: deletes conversations and all their traces that agent-kernel can reach."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Set
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_kernel.cli.base.command import YES, Command, argument, exclusive, settings_of
from agent_kernel.cli.base.output import moment, printable, size, turn_count
from agent_kernel.cli.base.store_access import OWN_NAMESPACE, confirm, namespace_of, run_with_store, store_arguments
from agent_kernel.core.errors import InvalidRequest, SessionBusy
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import NotebookBinding, Session, SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sessions import storage_locations
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts

if TYPE_CHECKING:
    from jupyter_ext.api.responses.store import DatabaseResponses

EVERYTHING = frozenset({"backup", "history", "work", "sidecars", "sidecar", "choices"})
"""Kinds of storage locations that --all removes in addition to the sessions."""
ALWAYS_LEFT = (
    "exports, and copies of notebooks and of their sidecars that you made",
    "backups and snapshots of the disk, and data that remains in overwritten blocks",
    "for some minutes, the memory of servers and kernels that are running",
)


@dataclass(slots=True)
class PurgePlan:
    """The data that the command removes. ``sessions`` are removed from the store. ``responses`` are the sessions whose
    stored responses of the Responses API are removed. ``paths`` are files and directories. ``left`` describes the known
    data that it does not remove."""

    sessions: list[Session] = field(default_factory=list)
    responses: list[SessionKey] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def purge(args: argparse.Namespace) -> int:
    """Remove conversations from the store, search index, journal, media, sidecars, work directories and transcripts.

    Return 0 if everything was removed, and 1 if something could not be removed or the user did not confirm. Raises
    InvalidRequest if nothing was found, and SessionBusy while a turn runs.
    """
    return run_with_store(args, lambda store: _purge(args, store))


async def _purge(args: argparse.Namespace, store: PersistentStore) -> int:
    await store.recover()
    plan = await _make_plan(args, store)
    if not plan.sessions and not plan.responses and not plan.paths:
        raise InvalidRequest("No data of this notebook or session is stored here.", hint="See: agent-kernel where")
    _announce(plan, sys.stderr)
    if not confirm(args, "Remove this permanently?"):
        return 1
    for session in plan.sessions:
        await store.delete(session.key)
    async with _stored_responses(settings_of(args)) as responses:
        for key in plan.responses:
            await responses.forget(key)
    if args.all:
        await store.forget_set_aside(args.namespace)
    stuck = [str(path) for path in plan.paths if not _remove(path)]
    freed = await store.vacuum()
    _report(args, plan, freed, stuck)
    return 1 if stuck else 0


async def _make_plan(args: argparse.Namespace, store: PersistentStore) -> PurgePlan:
    settings = settings_of(args)
    bound = await store.bindings(args.namespace if args.all else namespace_of(args))
    if args.all:
        plan = PurgePlan(await _list_all_sessions(store, args.namespace))
        plan.paths += _locations(settings, EVERYTHING, bound) if args.namespace is None else []
    else:
        keys, bound = _select(args, bound)
        plan = PurgePlan([session for key in keys if (session := await store.info(key)) is not None])
        plan.left += [f"{path}: a copy from before an upgrade" for path in _locations(settings, {"backup"})]
    if args.notebook is not None:
        plan.paths += _notebook_files(settings, args.notebook.absolute())
    purged = {session.key for session in plan.sessions}
    if args.session is not None:
        purged.add(SessionKey(namespace_of(args), args.session))
    async with _stored_responses(settings) as responses:
        plan.responses = [
            key
            for key in await responses.sessions()
            if key in purged or (args.all and args.namespace in (None, key.namespace))
        ]
    for session in plan.sessions:
        plan.paths += _session_paths(settings, session.key)
        plan.left += await _describe_remote_copies(store, session.key)
    for binding in bound:
        plan.paths += storage_locations.data_dir_sidecar_paths(settings, binding)
        if (notebook := storage_locations.notebook_path(binding)) is not None:
            plan.paths += _notebook_files(settings, notebook)
            plan.left += _outputs(notebook)
    plan.paths = [path for path in dict.fromkeys(plan.paths) if path.is_symlink() or path.exists()]
    plan.left = list(dict.fromkeys(plan.left))
    return plan


def _select(
    args: argparse.Namespace, bound: Iterable[NotebookBinding]
) -> tuple[list[SessionKey], list[NotebookBinding]]:
    """Return the keys of the selected sessions and their bindings to notebooks. The selection is the notebook of
    --notebook, or the session of --session; ``bound`` are all bindings of the namespace."""
    if args.session is not None:
        key = SessionKey(namespace_of(args), args.session)
        selected = [
            binding
            for binding in bound
            if binding.session == key.id and not binding.path.startswith(storage_locations.DELETED)
        ]
        return [key], selected
    notebook_path = args.notebook.resolve()
    selected = [
        binding
        for binding in bound
        if (path := storage_locations.notebook_path(binding)) is not None and path.resolve() == notebook_path
    ]
    return list(dict.fromkeys(SessionKey(binding.namespace, binding.session) for binding in selected)), selected


async def _list_all_sessions(store: PersistentStore, namespace: str | None) -> list[Session]:
    """Return all sessions of a namespace, or of all namespaces if it is None. Stored rows without a session are
    assigned to a session first, so that they are removed too. Raises SessionBusy if a turn is running."""
    await store.repair(namespace)
    sessions = [session for session in await store.idle(math.inf) if namespace in (None, session.key.namespace)]
    if len(sessions) < (await store.stats(namespace))["sessions"]:
        raise _busy()
    return sessions


@asynccontextmanager
async def _stored_responses(settings: Settings) -> AsyncIterator[DatabaseResponses]:
    """Open the stored responses of the Responses API, which contain text of their sessions. Creates no file."""
    from jupyter_ext.api.responses.store import DatabaseResponses

    path = settings.data_dir / "responses.db"
    async with aclosing(DatabaseResponses(path if path.exists() else None)) as responses:
        yield responses


async def _describe_remote_copies(store: PersistentStore, key: SessionKey) -> list[str]:
    """Return a description of each server to which the session's conversation was sent. Raises SessionBusy while a turn
    runs."""
    turns = (await store.everything(key))[0]
    if any(turn.state == "open" for turn in turns):
        raise _busy()
    hosts = {str(turn.record.get("host")) for turn in turns if turn.record.get("host") and not turn.record.get("local")}
    return [f"{host}: the model there was sent this conversation" for host in sorted(hosts)]


def _session_paths(settings: Settings, key: SessionKey) -> list[Path]:
    paths = storage_locations.session_paths(settings, key)
    if (transcripts := settings.transcripts_path) is not None:
        paths.append(LiveTranscripts(transcripts).path(key))
    return paths


def _notebook_files(settings: Settings, notebook: Path) -> list[Path]:
    """Return the files that agent-kernel wrote for a notebook: the sidecar files in the notebook's folder, and their
    backups in the data directory."""
    return storage_locations.sidecar_paths(notebook) + storage_locations.sidecar_backup_paths(settings, notebook)


def _locations(settings: Settings, kinds: Set[str], bound: Iterable[NotebookBinding] = ()) -> list[Path]:
    return [place.path for place in storage_locations.existing_locations(settings, bound) if place.kind in kinds]


def _outputs(notebook: Path) -> list[str]:
    checkpoint = notebook.parent / ".ipynb_checkpoints" / f"{notebook.stem}-checkpoint.ipynb"
    return [f"{path}: answers in its outputs" for path in (notebook, checkpoint) if path.exists()]


def _busy() -> SessionBusy:
    return SessionBusy(
        "A turn is running; nothing was removed.", hint="Stop the turn or wait for its end, then run the command again."
    )


def _remove(path: Path) -> bool:
    """Remove a file or directory and return whether this succeeded. For a link, only the link is removed, never its
    target."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
    except OSError:
        return False
    return True


def _announce(plan: PurgePlan, to: Any) -> None:
    for session in plan.sessions:
        title = printable(session.title)
        print(f"session    {session.key.id}  {moment(session.updated)}  {turn_count(session.turns)}  {title}", file=to)
    for key in plan.responses:
        print(f"responses  {printable(key.id)}", file=to)
    for path in plan.paths:
        print(f"file       {path}  {size(storage_locations.disk_usage(path))}", file=to)


def _report(args: argparse.Namespace, plan: PurgePlan, freed: int, stuck: list[str]) -> None:
    left = [*plan.left, *ALWAYS_LEFT]
    if args.json:
        sessions = [
            {"namespace": session.key.namespace, "id": session.key.id, "title": session.title}
            for session in plan.sessions
        ]
        paths = [str(path) for path in plan.paths if str(path) not in stuck]
        report = {"sessions": sessions, "removed": paths, "not_removed": stuck, "freed_bytes": freed, "left": left}
        print(json.dumps(report, indent=2))
        return
    print(f"Removed {len(plan.sessions)} session(s) and {len(plan.paths) - len(stuck)} file(s) or folder(s).")
    for path in stuck:
        print(f"NOT REMOVED: {path}", file=sys.stderr)
    print("Not reached:")
    for what in left:
        print(f"  {what}")


PURGE_ARGUMENTS = (
    exclusive(
        argument(
            "--notebook",
            type=Path,
            metavar="PATH",
            help="the conversations of this notebook, which may already be deleted",
        ),
        argument("--session", metavar="ID", help="the conversation with this id"),
        argument("--all", action="store_true", help="all conversations; models and environments stay"),
        required=True,
    ),
    YES,
    *store_arguments(f"{OWN_NAMESPACE}; with --all: all"),
)
PURGE = Command(
    "purge", "remove conversations with their files, search entries and copies beside notebooks", purge, PURGE_ARGUMENTS
)
