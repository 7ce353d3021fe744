"""Displays matplotlib figures as notebooks do: when the code calls ``show``, and figures that are still open at the end
of a run. Runs inside the jail: standard library only.

No picture is displayed twice, even if the figure was also saved to a file or redrawn without a change. A figure that
was saved and closed is displayed from its file.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_kernel.sandbox.worker import animations
from agent_kernel.sandbox.worker.import_hooks import Hook

BACKEND = "agent_kernel_figures"
DPI = 100.0
"""The resolution in dots per inch that notebooks use. A figure with a resolution of its own is rendered with that
resolution, but at most with MAX_DPI."""
MAX_DPI = 300.0
_SAVED = "_agent_kernel_saved"
_FILES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}


@dataclass(slots=True)
class SavedFigure:
    """A file that a figure or an animation was saved to."""

    path: str
    shown: bool = False


class Figures:
    """Collects the figures of a run. ``media`` receives pictures; at most ``limit`` figures are rendered, none above
    ``max_bytes``."""

    def __init__(self, media: Callable[[str, bytes], None], limit: int, max_bytes: int) -> None:
        self._media = media
        self._limit = limit
        self._max_bytes = max_bytes
        self._saved: list[SavedFigure] = []
        self._films: dict[int, Any] = {}

    def hooks(self) -> dict[str, Hook]:
        return {"matplotlib.figure": self._follow_saving, "matplotlib.animation": self._follow_films}

    def backend(self, module: types.ModuleType) -> None:
        """Fill the module that matplotlib loads as its backend: Agg, with our ``show``."""
        agg = importlib.import_module("matplotlib.backends.backend_agg")
        module.__dict__.update(FigureCanvas=agg.FigureCanvas, FigureManager=agg.FigureManager, show=self.show)

    def begin(self) -> None:
        """Forget the figures that an earlier run saved or animated."""
        self._saved.clear()
        self._films.clear()

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Display every open figure in order of creation, then close all, even if one could not be rendered."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        try:
            for number in pyplot.get_fignums()[: self._limit]:
                self.draw(pyplot.figure(number))
        finally:
            pyplot.close("all")

    def end(self) -> None:
        """Display open figures, then figures that were saved and closed without being displayed."""
        try:
            self.show()
        finally:
            for saved in self._saved:
                if not saved.shown:
                    self._show_file(saved)

    def draw(self, figure: Any) -> bool:
        """Display and close ``figure`` if it is a figure of matplotlib. Return whether it is."""
        library = sys.modules.get("matplotlib.figure")
        if library is None or not isinstance(figure, library.Figure):
            return False
        sys.modules["matplotlib.pyplot"].close(figure)
        film = self._films.pop(id(figure), None)
        saved = figure.__dict__.get(_SAVED)
        if saved is not None:
            saved.shown = True
        if film is None:
            self._media("image/png", _png(figure))
        elif (saved_film := film.__dict__.get(_SAVED)) is not None and _kind(saved_film.path):
            self._show_file(saved_film)
        else:
            self._media("image/png", animations.film(film, self._max_bytes) or _png(figure))
        return True

    def _show_file(self, saved: SavedFigure) -> None:
        saved.shown = True
        kind = _kind(saved.path)
        try:
            if kind and 0 < os.path.getsize(saved.path) <= self._max_bytes:
                with open(saved.path, "rb") as file:
                    self._media(kind, file.read())
        except OSError:
            return  # the code has removed the file

    def _follow_saving(self, module: types.ModuleType) -> None:
        figure: Any = module.__dict__["Figure"]
        save = figure.savefig

        def savefig(this: Any, fname: Any, *args: Any, **kwargs: Any) -> Any:
            result = save(this, fname, *args, **kwargs)
            self._note(this, fname)
            return result

        figure.savefig = savefig

    def _follow_films(self, module: types.ModuleType) -> None:
        animation: Any = module.__dict__["Animation"]
        begin, save = animation.__init__, animation.save

        def track_animation(this: Any, fig: Any, *args: Any, **kwargs: Any) -> None:
            begin(this, fig, *args, **kwargs)
            self._films[id(fig)] = this

        def track_save(this: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            result = save(this, filename, *args, **kwargs)
            if not animations.is_ours(kwargs.get("writer")):
                self._note(this, filename)
            return result

        animation.__init__, animation.save = track_animation, track_save

    def _note(self, owner: Any, path: Any) -> None:
        """Record that ``owner`` (a figure or an animation) was saved to ``path``. Ignores buffers, which are not
        files."""
        if not isinstance(path, (str, os.PathLike)):
            return
        whole = os.path.abspath(os.fsdecode(path))
        known = owner.__dict__.get(_SAVED)
        if known in self._saved:
            known.path = whole
        else:
            owner.__dict__[_SAVED] = known = SavedFigure(whole)
            self._saved.append(known)


def _png(figure: Any) -> bytes:
    own = float(figure.get_dpi())
    usual = own == float(sys.modules["matplotlib"].rcParams["figure.dpi"]) == DPI
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI if usual else min(own, MAX_DPI), bbox_inches="tight")
    return buffer.getvalue()


def _kind(path: str) -> str:
    return _FILES.get(os.path.splitext(path)[1].lower(), "")
