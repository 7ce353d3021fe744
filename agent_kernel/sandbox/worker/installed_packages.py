"""Lists the packages installed for jailed code, on request. Standard library only."""

from __future__ import annotations

import importlib.metadata


class Packages(list[str]):
    """Entries of the form ``name version``, which are displayed one on each line."""

    def __repr__(self) -> str:
        return "\n".join(self) or "(none)"


def packages(match: str = "") -> Packages:
    """Return the installed packages whose names contain ``match``, ignoring case; without ``match`` all of them. More
    packages cannot be installed here.
    """
    pattern = match.lower().replace("_", "-")
    lines = {
        f"{name} {distribution.version}"
        for distribution in importlib.metadata.distributions()
        if (name := distribution.name) and pattern in name.lower().replace("_", "-")
    }
    return Packages(sorted(lines, key=str.lower))
