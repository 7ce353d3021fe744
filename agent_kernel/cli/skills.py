"""``agent-kernel skills``: installed skills (folders and zips with a SKILL.md)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agent_kernel.cli.base import store_access
from agent_kernel.cli.base.command import Command, group, settings_of
from agent_kernel.cli.base.output import Column, moment, show
from agent_kernel.cli.base.store_access import as_json, namespace_of
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.skills.package import MAX_BYTES, PackageEntry, folder, read_zip, too_large
from agent_kernel.tools.skills.skill import Skill
from agent_kernel.tools.skills.store import SkillStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a folder with a SKILL.md, or a zip file of one")
    parser.add_argument("--version-of", default="", metavar="ID", help="add a new version of this skill")
    store_access.arguments(parser)


def skills_add(args: argparse.Namespace) -> int:
    skill = _store(args).add(namespace_of(args), _entries(args.path), args.version_of)
    _show(args, [skill])
    return 0


def skills_list(args: argparse.Namespace) -> int:
    _show(args, _store(args).list(namespace_of(args)))
    return 0


def remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a skill id from 'agent-kernel skills list'")
    store_access.arguments(parser)


def skills_remove(args: argparse.Namespace) -> int:
    store = _store(args)
    name = store.get(namespace_of(args), args.id).latest.name
    store.delete(namespace_of(args), args.id)
    print(f"{args.id} ({name}) was removed.")
    return 0


def _store(args: argparse.Namespace) -> SkillStore:
    return SkillStore(settings_of(args).skills_path)


def _entries(path: Path) -> list[PackageEntry]:
    if path.is_dir():
        return folder(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise too_large()
        return read_zip(path.read_bytes())
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read ({error.strerror}).") from error


def _show(args: argparse.Namespace, skills: list[Skill]) -> None:
    columns = {
        "id": Column("ID"),
        "name": Column("NAME"),
        "version": Column("VERSION", right=True),
        "updated": Column("ADDED", moment),
        "description": Column("DESCRIPTION"),
    }
    show([_row(skill) for skill in skills], columns, as_json=as_json(args), empty="There is no skill yet.")


def _row(skill: Skill) -> dict[str, Any]:
    latest = skill.latest
    row = {"id": skill.id, "name": latest.name, "description": latest.description, "version": latest.number}
    return row | {"created": skill.created, "updated": latest.created, "files": list(latest.files)}


SKILLS = group(
    "skills",
    "folders with instructions that turns may be given",
    Command("list", "list installed skills", store_access.arguments, skills_list),
    Command("add", "add a folder or a zip file with a SKILL.md", add_arguments, skills_add),
    Command("remove", "remove a skill with all its versions", remove_arguments, skills_remove),
)
