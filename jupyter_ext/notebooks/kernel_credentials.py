"""The credential of each kernel: known to that kernel only, for one life of it."""

from __future__ import annotations

import hashlib
import secrets


class Credentials:
    """Keeps SHA-256 of the tokens, never the tokens."""

    def __init__(self) -> None:
        self._kernels: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def issue(self, kernel: str) -> str:
        """A new token; an earlier one of this kernel is void from now on."""
        token = secrets.token_urlsafe(32)
        self.accept(kernel, token)
        return token

    def accept(self, kernel: str, token: str) -> None:
        """A token that the kernel has chosen."""
        self.revoke(kernel)
        self._hashes[kernel] = _hash(token)
        self._kernels[_hash(token)] = kernel

    def kernel(self, token: str) -> str | None:
        """The kernel whose valid token this is."""
        return self._kernels.get(_hash(token))

    def revoke(self, kernel: str) -> None:
        self._kernels.pop(self._hashes.pop(kernel, ""), None)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
