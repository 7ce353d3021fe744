"""The administrator's policy: a file of the system's configuration. Whatever else is set can only be stricter.

permission = "ask"        # for every call
[policy]                  # by kind of call, or by the name of a tool
mcp = "deny"
"python.live" = "ask"
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Permission

NAME = "agent-kernel/policy.toml"
MAX_BYTES = 1 << 20


def policy_paths() -> tuple[Path, ...]:
    """``/etc``, and the system's configuration of Jupyter: ``jupyter_core.paths.SYSTEM_CONFIG_PATH``, which no variable
    moves."""
    if sys.platform == "win32":
        return (Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData")) / "jupyter" / NAME,)
    return tuple(Path(base) / NAME for base in ("/etc", "/usr/local/etc/jupyter", "/etc/jupyter"))


@dataclass(frozen=True, slots=True)
class AdminFile:
    """``binding``: this process could not write the file, so it says what somebody else decided. One that it could
    write holds all the same, for as long as it says so."""

    path: Path
    permission: Permission
    policy: Mapping[str, Permission]
    binding: bool


@dataclass(frozen=True, slots=True)
class AdminPolicy:
    files: tuple[AdminFile, ...] = field(default=())

    @classmethod
    def read(cls, paths: Sequence[Path] | None = None) -> AdminPolicy:
        """Of all files that are there. Raises InvalidRequest for one that can not be read or understood: no server
        starts with half of a policy."""
        return cls(tuple(found for path in (policy_paths() if paths is None else paths) if (found := _read(path))))

    @property
    def policy(self) -> Mapping[str, Permission]:
        """The names that are spoken of."""
        return {name: permission for file in self.files for name, permission in file.policy.items()}

    def rulings(self, kind: str, name: str) -> Iterator[tuple[Permission, str]]:
        """All that is said of a tool."""
        for file in self.files:
            yield file.permission, f"the administrator ({file.path})"
            for word in {kind, name} & set(file.policy):
                yield file.policy[word], f"the administrator for {word} ({file.path})"


NO_ADMIN_POLICY = AdminPolicy()


def _read(path: Path) -> AdminFile | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
        body = tomllib.loads(raw.decode("utf-8"))
        policy = body.pop("policy", {})
        permission = _permission(body.pop("permission", "auto"))
        if body or not isinstance(policy, dict):
            wrong = ", ".join(body) or "a policy that is no table"
            raise ValueError(f"it has {wrong}; it may have permission and [policy]")
        return AdminFile(path, permission, MappingProxyType(_flat(policy)), _binding(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"The administrator's policy {path} can not be used: {error}.",
            hint="Nothing runs without it. Have it mended by whoever keeps this machine.",
        ) from error


def _flat(policy: Mapping[str, Any], above: str = "") -> dict[str, Permission]:
    """``python.live = "ask"`` without quotes is a table in a table for TOML."""
    found: dict[str, Permission] = {}
    for name, value in policy.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = _permission(value)
    return found


def _permission(value: object) -> Permission:
    if value not in get_args(Permission):
        raise ValueError(f"a permission is auto, ask or deny, not {str(value)[:40]!r}")
    return cast(Permission, value)


def _binding(path: Path) -> bool:
    """Neither the file nor a directory on the way to it is this user's, or open to them. For root everything is."""
    user = getattr(os, "geteuid", lambda: -1)()
    real = path.resolve()
    for place in {path, real, *path.absolute().parents, *real.parents}:
        if user != 0 and (place.stat().st_uid == user or os.access(place, os.W_OK)):
            return False
    return True
