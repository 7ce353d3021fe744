"""Issues and checks the credential of each kernel. Only that kernel knows it, and it is valid until the kernel restarts
or ends."""

from __future__ import annotations

import hashlib
import secrets


class KernelCredentials:
    """Stores SHA-256 hashes of the tokens, never the tokens."""

    def __init__(self) -> None:
        self._kernels: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def issue(self, kernel: str) -> str:
        """Return a new token for the kernel and revoke its earlier one."""
        token = secrets.token_urlsafe(32)
        self.accept(kernel, token)
        return token

    def accept(self, kernel: str, token: str) -> None:
        """Register a token that the kernel has chosen."""
        self.revoke(kernel)
        self._hashes[kernel] = _hash(token)
        self._kernels[_hash(token)] = kernel

    def kernel(self, token: str) -> str | None:
        """Return the id of the kernel to which the token belongs; None if the token is not valid."""
        return self._kernels.get(_hash(token))

    def revoke(self, kernel: str) -> None:
        self._kernels.pop(self._hashes.pop(kernel, ""), None)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
