"""Reads the key of an encrypted store: 32 bytes as base64, in a file, an environment variable, or the system's
keyring."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

from agent_kernel.core.errors import InvalidRequest

KEY_MARK = "#key="
"""In a store's URL, separates the URL from the place of the key: a path, ``env:VARIABLE``, or
``keyring:SERVICE/USER``."""
KEY_BYTES = 32
HINT = "Make a key with: openssl rand -base64 32"


def read_key(place: str, env: Mapping[str, str] = os.environ) -> bytes:
    """Return the key that is stored at ``place`` (see KEY_MARK). Raises InvalidRequest; the message contains no part of
    the key."""
    kind, _, name = place.partition(":")
    if kind == "env":
        text, place_name = env.get(name, ""), f"the environment variable {name[:80]}"
    elif kind == "keyring":
        text, place_name = _from_keyring(name), f"the keyring ({name[:80]})"
    else:
        text, place_name = _from_file(place), place[:200]
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidRequest(f"There is no key of {KEY_BYTES} bytes as base64 in {place_name}.", hint=HINT)
    return key


def _from_file(place: str) -> str:
    try:
        return Path(place).expanduser().read_text(encoding="ascii")
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        raise InvalidRequest(f"The key {place[:200]} cannot be read: {error.strerror}.", hint=HINT) from None


def _from_keyring(name: str) -> str:
    try:
        import keyring  # keyring is an optional library
    except ImportError:
        raise InvalidRequest(
            "A key in the system's keyring needs the Python package keyring.", hint="Install it: pip install keyring."
        ) from None
    service, _, user = name.partition("/")
    try:
        return keyring.get_password(service, user) or ""
    except keyring.errors.KeyringError as error:
        raise InvalidRequest(f"The keyring cannot be read: {type(error).__name__}.") from None
