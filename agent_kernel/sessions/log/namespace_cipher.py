"""Encrypts with AES-256-GCM and a key for each namespace, which HKDF-SHA256 (RFC 5869) derives from the key of a
store."""

from __future__ import annotations

import functools
import hmac
import json
import os
from typing import TYPE_CHECKING, TypeAlias

from agent_kernel.core.errors import InvalidRequest, StoreError
from agent_kernel.sessions.log.log_store import ENCRYPTED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
Context: TypeAlias = tuple[str | int, ...]
"""The values to which encrypted bytes are bound, in addition to their namespace. The bytes cannot be decrypted with
other values."""


class NamespaceCipher:
    """Encrypts data with AES-256-GCM. ``name`` is the store's name for error messages; ``key`` has 32 bytes. Raises
    InvalidRequest if the cryptography library is not installed.
    """

    def __init__(self, name: str, key: bytes) -> None:
        try:
            import cryptography  # noqa: F401  # cryptography is an optional library
        except ImportError as error:
            raise InvalidRequest(
                "Encrypted stores need the Python package cryptography.",
                hint="Install it: pip install 'agent-kernel[encryption]'.",
            ) from error
        self._name = name
        self._key = key

    def encrypt(self, namespace: str, data: bytes, context: Context, clear: bytes = b"") -> bytes:
        """Encrypt ``data``. The result begins with ENCRYPTED, ``clear`` (which is not encrypted) and the nonce.
        ``context`` is authenticated together with the data, and must include the value of ``clear``."""
        nonce = os.urandom(_NONCE_BYTES)
        return (
            ENCRYPTED + clear + nonce + _cipher(self._key, namespace).encrypt(nonce, data, _bind_to(namespace, context))
        )

    def decrypt(self, namespace: str, data: bytes, context: Context, clear: int = 0) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not data.startswith(ENCRYPTED):
            raise StoreError(
                f"{self._name} has sessions that are not encrypted.",
                hint="Remove #key= from the URL of the store, or copy the sessions into an encrypted store "
                "with agent-kernel sessions copy.",
            )
        sealed = data[len(ENCRYPTED) + clear :]
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return _cipher(self._key, namespace).decrypt(nonce, rest, _bind_to(namespace, context))
        except (InvalidTag, ValueError) as error:  # ValueError: the bytes were cut off
            raise self.failure() from error

    def failure(self) -> StoreError:
        return StoreError(
            f"{self._name} cannot be decrypted: the key is not the one of this store, or somebody changed the"
            " database.",
            hint="Nothing was written. Check the key that #key= in the URL of the store names.",
        )

    def hide_name(self, namespace: str, name: str) -> str:
        """Return a name that only servers with the key can compute. Equal names in a namespace give equal results."""
        return hmac.new(_derive(self._key, "names", namespace), name.encode(), "sha256").hexdigest()


def _bind_to(namespace: str, context: Context) -> bytes:
    return json.dumps([namespace, *context]).encode()


@functools.lru_cache(1000)
def _cipher(key: bytes, namespace: str) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_derive(key, "entries", namespace))


@functools.lru_cache(1000)
def _derive(key: bytes, purpose: str, namespace: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = json.dumps(["agent-kernel", purpose, namespace]).encode()
    return HKDF(SHA256(), len(key), salt=None, info=info).derive(key)
