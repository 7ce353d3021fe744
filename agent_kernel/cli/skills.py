"""``agent-kernel skills``: lists, adds and removes skills (folders and zip files with a SKILL.md)."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import Command, argument, group, settings_of
from agent_kernel.cli.base.output import Column, moment, show
from agent_kernel.cli.base.store_access import namespace_of, store_arguments
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.store.store_url import open_bus
from agent_kernel.tools.skills.package import MAX_BYTES, PackageEntry, folder, read_zip, too_large
from agent_kernel.tools.skills.skill import Skill
from agent_kernel.tools.skills.store import SkillStore


def skills_add(args: argparse.Namespace) -> int:
    with _store(args) as store:
        skill = store.add(namespace_of(args), _entries(args.path), args.version_of)
    _show(args, [skill])
    return 0


def skills_list(args: argparse.Namespace) -> int:
    with _store(args) as store:
        skills = store.list(namespace_of(args))
    _show(args, skills)
    return 0


def skills_remove(args: argparse.Namespace) -> int:
    with _store(args) as store:
        name = store.get(namespace_of(args), args.id).latest.name
        store.delete(namespace_of(args), args.id)
    print(f"{args.id} ({name}) was removed.")
    return 0


def _store(args: argparse.Namespace) -> closing[SkillStore]:
    settings = settings_of(args)
    return closing(SkillStore(settings.skills_path, open_bus(settings.store)))


def _entries(path: Path) -> list[PackageEntry]:
    if path.is_dir():
        return folder(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise too_large()
        return read_zip(path.read_bytes())
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error


def _show(args: argparse.Namespace, skills: list[Skill]) -> None:
    columns = {
        "id": Column("ID"),
        "name": Column("NAME"),
        "version": Column("VERSION", right=True),
        "updated": Column("ADDED", moment),
        "description": Column("DESCRIPTION"),
    }
    show([_row(skill) for skill in skills], columns, as_json=args.json, empty="There is no skill yet.")


def _row(skill: Skill) -> dict[str, Any]:
    latest = skill.latest
    row = {"id": skill.id, "name": latest.name, "description": latest.description, "version": latest.number}
    return row | {"created": skill.created, "updated": latest.created, "files": list(latest.files)}


ADD_ARGUMENTS = (
    argument("path", type=Path, help="a folder with a SKILL.md, or a zip file of one"),
    argument("--version-of", default="", metavar="ID", help="add a new version of this skill"),
    *store_arguments(),
)
SKILLS = group(
    "skills",
    "manage skills: folders with instructions that the agent can read in a turn",
    Command("list", "list installed skills", skills_list, store_arguments()),
    Command("add", "add a folder or a zip file with a SKILL.md", skills_add, ADD_ARGUMENTS),
    Command(
        "remove",
        "remove a skill with all its versions",
        skills_remove,
        (argument("id", help="a skill id from 'agent-kernel skills list'"), *store_arguments()),
    ),
)
