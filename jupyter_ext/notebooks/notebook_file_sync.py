"""Keeps bindings, sidecars and the record of cleared outputs up to date when Jupyter saves, renames, copies or deletes
notebook files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.cleared_outputs import ClearedOutputs
from jupyter_ext.notebooks.sidecar_import import SidecarImport
from jupyter_ext.notebooks.sidecar_writer import Sidecars


@dataclass(frozen=True, slots=True)
class NotebookFiles:
    """Reacts to changes of notebook files.

    ``ContentsWatch`` calls the methods ``on_...``, the contents manager calls ``before_save`` and ``after_save``.
    ``namespace`` returns the namespace of the request that is being served.
    """

    namespace: Callable[[], str]
    notebooks: Notebooks
    sidecars: Sidecars
    sidecar_imports: SidecarImport
    cleared_outputs: ClearedOutputs

    async def on_renamed(self, old: str, new: str) -> None:
        await self.notebooks.on_renamed(old, new)
        await self.notebooks.follow_name(self.namespace(), old, new)
        await self.sidecars.on_renamed(old, new)

    async def on_deleted(self, path: str) -> None:
        await self.sidecars.on_deleted(self.namespace(), path)
        await self.notebooks.on_deleted(path)

    async def on_saved(self, path: str) -> None:
        self.notebooks.on_created(path)

    async def on_copied(self, source: str, path: str) -> None:
        self.notebooks.on_created(path)
        await self.sidecar_imports.on_copied(self.namespace(), source, path)

    def before_save(self, model: dict[str, Any], path: str, **kwargs: Any) -> None:
        """Record the cleared outputs of a notebook that the contents manager is about to save."""
        if model.get("type") == "notebook":
            self.cleared_outputs.on_saving(self.namespace(), path.strip("/"), model.get("content"))

    def after_save(self, os_path: str, model: dict[str, Any], **kwargs: Any) -> None:
        """Record that the sidecar of the saved notebook is out of date. The save does not wait until the sidecar is
        written."""
        if model["type"] == "notebook":
            self.sidecars.on_saved(self.namespace(), os_path)
