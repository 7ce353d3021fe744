"""Creates the errors that the logs of several databases have in common, so that the same failure has the same message
in each of them.

The parameter ``name`` is the name of the log in messages to people. It contains no password.
"""

from __future__ import annotations

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError


def missing_package(scheme: str, package: str, extra: str) -> InvalidRequest:
    """Return the error for a URL with ``scheme`` if the optional ``package`` is not installed."""
    return InvalidRequest(
        f"The store '{scheme}:' needs the Python package {package}.",
        hint=f"Install it: pip install 'agent-kernel[{extra}]'.",
    )


def newer_format(name: str, version: object, supported: int, alternative: str) -> StoreCorrupt:
    """Return the error for a database with the format ``version``, if this version reads only the format
    ``supported``. The hint asks the user to choose another ``alternative``, for example another "database or schema".
    """
    return StoreCorrupt(
        f"{name} was written by a newer agent-kernel (format {version}, this one knows {supported}).",
        hint=f"Nothing was changed. Upgrade agent-kernel, or name another {alternative}.",
    )


def unusable(
    name: str,
    cause: str,
    hint: str = "Check that the server runs and can be reached. The store works again as soon as it does.",
) -> StoreError:
    """Return the error for a call that the database refused or did not answer."""
    return StoreError(f"{name} cannot be used: {cause}", hint=hint)


def first_line(error: Exception) -> str:
    """Return the first line of a library's message, at most 300 characters. The other lines may quote a statement and
    its values."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
