"""Finds the token of ``agent-kernel serve``: the token that the user gives, or a generated token that is stored in a
file which only its owner may read.

The token appears in no argument, no log and no output.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_kernel.core.atomic_file import write_synced
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings

VARIABLES = ("JUPYTER_TOKEN", "AGENT_KERNEL_TOKEN")
FILE_VARIABLE = "JUPYTER_TOKEN_FILE"
OF_A_KERNEL = "AGENT_KERNEL_ID"
"""If this environment variable is set, AGENT_KERNEL_TOKEN is the credential of a kernel and not the token of this
server."""
NAME = "serve-token"
SHORT = 16


@dataclass(frozen=True, slots=True)
class ServeToken:
    """A token. ``where`` describes its origin to the user; ``file`` is the file that contains it, if there is one."""

    value: str = field(repr=False)
    where: str
    file: Path | None = None

    @property
    def short(self) -> bool:
        return len(self.value) < SHORT


HUB_TOKENS = ServeToken("", "of each user, from the JupyterHub")
"""Stands in for the token of a server that has no token of its own, because each user has one from the JupyterHub."""


def forget_variables(environment: MutableMapping[str, str]) -> None:
    """Remove the environment variables that contain a token, so that a server without a token of its own does not pass
    them to subprocesses."""
    for name in (*VARIABLES, FILE_VARIABLE):
        environment.pop(name, None)


def token(token_file: Path | None, data_dir: Path, environment: MutableMapping[str, str]) -> ServeToken:
    """Return the token from the file ``token_file``, or else from an environment variable, or else from a file in
    ``data_dir``. If that file is missing, it is created with a new token.

    The variables are removed from ``environment``, so that no subprocess inherits them. Raises InvalidRequest.
    """
    kernel = environment.get(OF_A_KERNEL, "")
    values = {name: environment.pop(name, "").strip() for name in VARIABLES}
    file = environment.pop(FILE_VARIABLE, "")
    if token_file is not None:
        return ServeToken(_check(_read(token_file), str(token_file)), f"in {token_file}", token_file)
    for name, value in values.items():
        if value and not (name == "AGENT_KERNEL_TOKEN" and kernel):
            return ServeToken(_check(value, name), f"the value of {name}")
    if file:
        return ServeToken(_check(_read(Path(file)), file), f"in {file}", Path(file))
    own = data_dir / NAME
    return ServeToken(_read_or_create(own), f"in {own}", own)


def shown_place(key: ServeToken) -> str:
    """Return the path of the token's file for the login page, which everybody can read. Return it only for the default
    file, written with ``~``; the path of another file could reveal private names, so the result is then empty."""
    default = Settings().data_dir / NAME
    if key.file != default:
        return ""
    try:
        return str(Path("~") / default.relative_to(Path.home()))
    except (ValueError, RuntimeError):  # the path is not below the home directory, or there is no home directory
        return ""


def _check(value: str, where: str) -> str:
    """Return the token if it is a valid HTTP header value. Raises InvalidRequest; the message never contains the token.
    ``where`` describes its origin."""
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise InvalidRequest(
            f"The token ({where}) is empty, or contains characters that an HTTP header cannot contain."
        )
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"The token cannot be read: {_cause(error)} ({path}).") from None


def _read_or_create(path: Path) -> str:
    """Return the token in the file ``path``, which is created with a new token if it is missing. Two servers that start
    at the same time get the same token. Raises InvalidRequest if the file cannot be read or written, or if other users
    may read it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            _write(path, secrets.token_urlsafe(32))
        facts = path.lstat()
    except OSError as error:
        raise InvalidRequest(
            f"The token cannot be stored: {_cause(error)} ({path}).",
            hint="Set JUPYTER_TOKEN, or use another --data-dir.",
        ) from None
    shared = stat.S_IMODE(facts.st_mode) & 0o077 if os.name == "posix" else 0
    is_own = os.name != "posix" or facts.st_uid == os.geteuid()
    if not stat.S_ISREG(facts.st_mode) or shared or not is_own:
        raise InvalidRequest(
            f"Other users may read the token in {path}, or may have written it.",
            hint="Remove the file: the next start creates one.",
        )
    return _check(_read(path), str(path))


def _write(path: Path, value: str) -> None:
    """Create the file ``path`` with its content in one step. Raises FileExistsError if it exists, and OSError."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        os.link(write_synced(draft, f"{value}\n".encode()), path)
    finally:
        draft.unlink(missing_ok=True)


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
