"""Looks up the API key of a server by its name for each request, so that agent-kernel does not store it. Writes and
deletes keys in the system's keyring."""

from __future__ import annotations

import json
import os
from pathlib import Path

from agent_kernel.core.errors import AgentKernelError, EngineError
from agent_kernel.engines.openai_api.endpoint import Endpoint

HIDDEN = "[key]"


def key_of(endpoint: Endpoint) -> str:
    """Return the API key of a server; empty if the configuration names none. Raises EngineError if the named key does
    not exist or cannot be sent in a header."""
    if endpoint.api_key_keyring:
        key = _from_keyring(*endpoint.api_key_keyring.partition("/")[::2])
    elif endpoint.api_key_file:
        key = _from_file(Path(endpoint.api_key_file).expanduser())
    elif endpoint.api_key_env:
        key = os.environ.get(endpoint.api_key_env, "").strip()
    else:
        return ""
    if not key:
        raise EngineError(f"There is no key for {endpoint.host}.", hint=f"Set {key_location(endpoint)}.")
    if not key.isascii() or not key.isprintable():
        raise EngineError(
            f"The key for {endpoint.host} has characters that an HTTP header cannot contain.",
            hint=f"Set {key_location(endpoint)}.",
        )
    return key


def key_location(endpoint: Endpoint) -> str:
    """Return where the user configures the key of this server, as text that follows "Set" in a hint."""
    if endpoint.api_key_keyring:
        service, _, user = endpoint.api_key_keyring.partition("/")
        return f"it in the keyring (keyring set {service} {user})"
    if endpoint.api_key_file:
        return f"it in the file {endpoint.api_key_file}"
    if endpoint.api_key_env:
        return f"the environment variable {endpoint.api_key_env} of the Jupyter server"
    return "api_key_env of this engine to the name of an environment variable that holds a key"


def without_key(text: str, key: str) -> str:
    """Return a server's text with the key replaced by a placeholder, because a server may repeat the key in its
    messages."""
    return text.replace(key, HIDDEN) if key else text


def scrub(error: AgentKernelError, key: str) -> None:
    """Remove the key from the texts of an error, because they may quote the server."""
    if key:
        error.message, error.hint = without_key(error.message, key), without_key(error.hint, key)
        error.args = (error.message,)
        error.details = json.loads(without_key(json.dumps(error.details, default=str), key))


def write_to_keyring(service: str, user: str, key: str) -> bool:
    """Store a key in the system's keyring. Return False if the system has no keyring that works, as is common on
    servers without a desktop. Blocking."""
    try:
        import keyring  # keyring is an optional library
    except ImportError:
        return False
    try:
        if keyring.get_keyring().priority <= 0:
            return False
        keyring.set_password(service, user, key)
        return keyring.get_password(service, user) == key
    except (keyring.errors.KeyringError, RuntimeError):
        return False


def delete_from_keyring(service: str, user: str) -> None:
    """Delete a key. If the key does not exist or the keyring does not work, no error is raised, because no request can
    use the key then. Blocking."""
    try:
        import keyring  # keyring is an optional library

        keyring.delete_password(service, user)
    except ImportError:
        return
    except (keyring.errors.KeyringError, RuntimeError):
        return


def _from_file(path: Path) -> str:
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise EngineError(f"Other users can read the key in {path}.", hint=f"chmod 600 {path}")
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise EngineError(f"The key in {path} cannot be read: {type(error).__name__}.") from None


def _from_keyring(service: str, user: str) -> str:
    try:
        import keyring  # keyring is an optional library
    except ImportError as error:
        raise EngineError(
            ("Keys in a keyring need the keyring library."), hint="Install it with: pip install keyring"
        ) from error
    try:
        return keyring.get_password(service, user) or ""
    except keyring.errors.KeyringError as error:
        raise EngineError(
            f"The keyring cannot be read: {type(error).__name__}.", hint="Unlock the keyring, or use api_key_env."
        ) from None
