"""Records the tools that open pages can run for the notebook of a kernel. Turns of that notebook can use these tools
while a page is open."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

RUNS = frozenset({"run_cells"})


@dataclass(slots=True)
class PageTools:
    """The tools of all open pages. Use the object in one event loop only."""

    _pages: dict[tuple[str, str], list[frozenset[str]]] = field(default_factory=dict)

    def add(self, namespace: str, kernel: str, tools: Collection[str]) -> Callable[[], None]:
        """Register the tools of a page and return a function that removes them."""
        key, served = (namespace, kernel), frozenset(tools)
        self._pages.setdefault(key, []).append(served)

        def end() -> None:
            pages = self._pages.get(key, [])
            if served in pages:
                pages.remove(served)
            if not pages:
                self._pages.pop(key, None)

        return end

    def tools(self, namespace: str, kernel: str, *, by_kernel: bool = False) -> frozenset[str]:
        """Return the tools that pages can run for a kernel. ``by_kernel``: for a turn of a cell. Such a turn keeps the
        kernel busy, so tools that run cells are left out."""
        served: frozenset[str] = frozenset().union(*self._pages.get((namespace, kernel), ()))
        return served - RUNS if by_kernel else served
