"""Reads the administrator's policy from files in the system's configuration. No other setting can be less strict than
this policy. A policy file has this form:

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
    """Return the paths of policy files: below ``/etc`` and the system's Jupyter configuration.

    These are ``jupyter_core.paths.SYSTEM_CONFIG_PATH``, which no environment variable changes.
    """
    if sys.platform == "win32":
        return (Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData")) / "jupyter" / NAME,)
    return tuple(Path(base) / NAME for base in ("/etc", "/usr/local/etc/jupyter", "/etc/jupyter"))


@dataclass(frozen=True, slots=True)
class AdminFile:
    """One policy file.

    ``binding`` is true if this user cannot change the file, so that it records another person's decision. A file that
    the user can change applies too, as long as it exists.
    """

    path: Path
    permission: Permission
    policy: Mapping[str, Permission]
    binding: bool


@dataclass(frozen=True, slots=True)
class AdminPolicy:
    """The policies of all administrator files together. The strictest permission applies."""

    files: tuple[AdminFile, ...] = field(default=())

    @classmethod
    def read(cls, paths: Sequence[Path] | None = None) -> AdminPolicy:
        """Read all policy files that exist. Raises InvalidRequest for a file that is unreadable or invalid, because no
        server may start with an incomplete policy."""
        return cls(tuple(policy for path in (policy_paths() if paths is None else paths) if (policy := _read(path))))

    @property
    def policy(self) -> Mapping[str, Permission]:
        """The permissions in the tables ``[policy]`` of all files, by kind of call or name of a tool."""
        return {name: permission for file in self.files for name, permission in file.policy.items()}

    def rulings(self, kind: str, name: str) -> Iterator[tuple[Permission, str]]:
        """Yield every permission that applies to the tool ``name`` of this ``kind``, with a description of its
        origin."""
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
            wrong = ", ".join(body) or "a policy that is not a table"
            raise ValueError(f"the file contains {wrong}; only the key 'permission' and the table [policy] are allowed")
        return AdminFile(path, permission, MappingProxyType(_flat(policy)), _binding(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"The administrator's policy {path} cannot be used: {error}.",
            hint="The server cannot start with this file. Ask the administrator of this machine to correct it.",
        ) from error


def _flat(policy: Mapping[str, Any], above: str = "") -> dict[str, Permission]:
    """Return the permissions in a table by their dotted names. Tables in it are flattened, because ``python.live =
    "ask"`` without quotes is a table within a table in TOML. ``above`` is the prefix of the names."""
    flat: dict[str, Permission] = {}
    for name, value in policy.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = _permission(value)
    return flat


def _permission(value: object) -> Permission:
    if value not in get_args(Permission):
        raise ValueError(f"a permission must be auto, ask or deny, not {str(value)[:40]!r}")
    return cast(Permission, value)


def _binding(path: Path) -> bool:
    """Return whether this user can write neither the file nor any directory that contains it. For root, every file is
    binding."""
    user = getattr(os, "geteuid", lambda: -1)()
    real = path.resolve()
    for place in {path, real, *path.absolute().parents, *real.parents}:
        if user != 0 and (place.stat().st_uid == user or os.access(place, os.W_OK)):
            return False
    return True
