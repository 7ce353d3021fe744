"""API keys of servers: looked up by name for each request, sent in one header, and not stored."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from agent_kernel.core.errors import AgentKernelError, EngineError
from agent_kernel.engines.openai_api.endpoint import Endpoint

HIDDEN = "[key]"


def key_of(endpoint: Endpoint, env: Mapping[str, str] = os.environ) -> str:
    """Return the API key of a server; empty if the configuration names none. Raises EngineError if the named key does
    not exist or cannot be sent in a header."""
    if endpoint.api_key_keyring:
        key = _from_keyring(*endpoint.api_key_keyring.partition("/")[::2])
    elif endpoint.api_key_env:
        key = env.get(endpoint.api_key_env, "").strip()
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
    """Return the text that follows "Set" in a hint: where the user configures the key of this server."""
    if endpoint.api_key_keyring:
        service, _, user = endpoint.api_key_keyring.partition("/")
        return f"it in the keyring (keyring set {service} {user})"
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


def _from_keyring(service: str, user: str) -> str:
    try:
        import keyring  # keyring is an optional library
    except ImportError as error:
        raise EngineError("Keys in a keyring need the keyring library.", hint="pip install keyring") from error
    try:
        return keyring.get_password(service, user) or ""
    except keyring.errors.KeyringError as error:
        raise EngineError(
            f"The keyring cannot be read: {type(error).__name__}.", hint="Unlock it, or use api_key_env."
        ) from None
