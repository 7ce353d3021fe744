"""Pulls a model into the cache: downloads and verifies its files, rewrites a GGUF file as Q8_0 if necessary, and gives
the result its final name by one rename.

A download can be interrupted at any moment, and the next run continues it. One process works on a model, and others
wait. The code is synchronous: it runs in a separate process (``agent-kernel model pull``), never on an event loop.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import filelock

from agent_kernel.core.errors import InvalidRequest, ModelBroken, PullFailed
from agent_kernel.core.setting_declaration import split_list
from agent_kernel.engines.local.catalog import hub_download, wheel_download
from agent_kernel.engines.local.catalog.catalog_entry import KINDS, CatalogEntry, HubFile, HubSnapshot, Source
from agent_kernel.engines.local.catalog.gguf_header import read_header
from agent_kernel.engines.local.catalog.gguf_to_q8_0 import file_hash, needs_rewrite, rewrite
from agent_kernel.engines.local.catalog.installed_model import (
    MODEL_FILE,
    SNAPSHOT,
    LocalModel,
    models_dir,
    size_of,
    write_record,
)
from agent_kernel.engines.local.catalog.model_directory import read_model_directory
from agent_kernel.engines.local.catalog.pull_stages import Progress, megabytes
from agent_kernel.engines.local.catalog.verified_download import Download, SourceUnavailable, Steps

Consent: TypeAlias = Callable[[CatalogEntry, Source], bool]
"""Called before a download whose publisher or hash agent-kernel cannot verify. Asks the user and returns whether the
user accepts the source. May raise PullFailed."""
POLL_S = 0.5
NEW = "new"
MARGIN = 16 << 20
"""Bytes of disk space that must stay free."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PullJob:
    """Downloads one model. Iterating over the job runs it and yields its progress. The last Progress has the stage
    ``done``; from then on, ``model`` is set.

    ``sources`` are the kinds of sources that may be used; they are tried in the order of the catalog. Iterating raises
    PullFailed.
    """

    def __init__(
        self,
        entry: CatalogEntry,
        cache_dir: Path,
        consent: Consent,
        sources: Sequence[str] = KINDS,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.entry = entry
        self.cache_dir = cache_dir
        self.consent = consent
        self.sources = [source for source in entry.sources if source.kind in sources]
        self.env = env
        self.model: LocalModel | None = None

    def __iter__(self) -> Generator[Progress, None, None]:
        try:
            models_dir(self.cache_dir).mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(models_dir(self.cache_dir) / f".{self.entry.folder}.lock")
            yield from _acquire(lock)
            try:
                self.model = self._find_installed() or (yield from self._first_available())
            finally:
                lock.release()
        except OSError as error:
            raise self._disk_error(error) from error
        yield Progress("done", size_of(self.model.path), size_of(self.model.path))

    def _find_installed(self) -> LocalModel | None:
        """Return the installed model, or None if there is none. A damaged copy is removed, so that the model is
        downloaded again."""
        try:
            return self.entry.installed_model(self.cache_dir)
        except ModelBroken:
            forget(self.entry, self.cache_dir)
            return None

    def _first_available(self) -> Steps[LocalModel]:
        reasons: list[SourceUnavailable] = []
        for source in self.sources:
            try:
                return (yield from self._pull_from(source))
            except SourceUnavailable as error:
                reasons.append(error)
                with suppress(OSError):  # the directory has files from which another run continues
                    self._staging(source).rmdir()
                yield Progress("download", note=error.message)
        raise self._no_source_error(reasons)

    def _pull_from(self, source: Source) -> Steps[LocalModel]:
        staging = self._staging(source)
        self._check_space(source, staging)
        if not (source.vouched and source.sha256) and not self.consent(self.entry, source):
            raise PullFailed(
                f"{self.entry.name} was not downloaded, because you did not accept its publisher {source.publisher}."
            )
        staging.mkdir(exist_ok=True)
        download = yield from self._fetch(source, staging)
        model = yield from self._install(source, staging / NEW, download)
        for leftover in models_dir(self.cache_dir).glob(f".{self.entry.folder}-*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
        return model

    def _staging(self, source: Source) -> Path:
        return models_dir(self.cache_dir) / f".{self.entry.folder}-{source.key}.partial"

    def _fetch(self, source: Source, staging: Path) -> Steps[Download]:
        if isinstance(source, HubFile):
            return hub_download.fetch(source, staging, self.env)
        if isinstance(source, HubSnapshot):
            return hub_download.fetch_snapshot(source, staging, self.env)
        return wheel_download.fetch(source, staging, self.env)

    def _install(self, source: Source, new: Path, download: Download) -> Steps[LocalModel]:
        """Build the model's folder in ``new``, rename it into place, and return the model."""
        final = self.entry.directory(source, self.cache_dir)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            model, facts = yield from (
                self._as_snapshot(source, new, download)
                if isinstance(source, HubSnapshot)
                else self._as_q8(source, new, download)
            )
            facts |= {"title": self.entry.title, "publisher": source.publisher, "vouched": source.vouched}
            write_record(new, model, downloaded_sha256=download.sha256, **facts)
            os.replace(new, final)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return model

    def _as_q8(self, source: Source, new: Path, download: Download) -> Steps[tuple[LocalModel, dict[str, Any]]]:
        entry, final = self.entry, self.entry.directory(source, self.cache_dir)
        header = read_header(download.path)
        if needs_rewrite(header):
            yield from rewrite(download.path, new / MODEL_FILE)
            sha256 = yield from file_hash(new / MODEL_FILE)
        else:
            _link(download.path, new / MODEL_FILE)
            sha256 = download.sha256
        licence, length = entry.licence or header.licence, header.context_length or entry.context_length
        model = LocalModel(entry.name, final / MODEL_FILE, sha256, entry.protocol, length, licence, source.label)
        return model, {"types": sorted(header.types)}

    def _as_snapshot(
        self, source: HubSnapshot, new: Path, download: Download
    ) -> Steps[tuple[LocalModel, dict[str, Any]]]:
        """Move the downloaded files of a snapshot into the folder ``new``, unchanged. Return the model and the
        additional fields of its record."""
        entry, final = self.entry, self.entry.directory(source, self.cache_dir)
        directory = read_model_directory(download.path)
        (new / SNAPSHOT).mkdir()
        for file in source.files:
            _link(download.path / file.path, new / SNAPSHOT / file.path)
        yield Progress("verify", source.download, source.download)
        length = directory.context_length or entry.context_length
        revision = download.sha256
        model = LocalModel(entry.name, final / SNAPSHOT, revision, entry.protocol, length, entry.licence, source.label)
        return model, {"commit": source.revision, "architecture": directory.architecture}

    def _check_space(self, source: Source, staging: Path) -> None:
        """Raise PullFailed if the disk does not have enough space for this source and the files made from it."""
        staged = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file()) if staging.exists() else 0
        missing = self._peak_bytes(source) + MARGIN - staged - shutil.disk_usage(models_dir(self.cache_dir)).free
        if missing > 0:
            raise self._full_error(source)

    def _peak_bytes(self, source: Source) -> int:
        """Return the largest number of bytes that the pull occupies on the disk at one time. Wheels are removed before
        the file that was joined from them is rewritten."""
        if isinstance(source, (HubFile, HubSnapshot)):
            # The original and its rewritten copy exist at the same time for a while.
            return source.download + (self.entry.installed if self.entry.installed != source.download else 0)
        largest = max(part.size for part in source.parts)
        return max(source.download + max(largest, source.size), source.size + self.entry.installed)

    def _full_error(self, source: Source) -> PullFailed:
        place, needed = models_dir(self.cache_dir), self._peak_bytes(source) + MARGIN
        free = shutil.disk_usage(place).free
        return PullFailed(
            f"Not enough space in {place} for {self.entry.name}: {megabytes(needed)} needed, {megabytes(free)} free.",
            hint=(
                "Free some space and pull again (the download continues where it "
                "stopped), or set AGENT_KERNEL_CACHE_DIR."
            ),
            details={"path": str(place), "needed_bytes": needed, "free_bytes": free},
        )

    def _disk_error(self, error: OSError) -> PullFailed:
        place = models_dir(self.cache_dir)
        if error.errno in FULL and self.sources:
            return self._full_error(max(self.sources, key=self._peak_bytes))
        return PullFailed(
            f"The cache {place} cannot be used: {error.strerror or error}.",
            hint="Set AGENT_KERNEL_CACHE_DIR, or --cache-dir, to a directory that can be written.",
            details={"path": str(place)},
        )

    def _no_source_error(self, reasons: Sequence[SourceUnavailable]) -> PullFailed:
        kinds = ", ".join(source.kind for source in self.sources) or "none"
        messages = " ".join(error.message for error in reasons) or "The settings allow none of its sources."
        hints = [error.hint for error in reasons if error.hint]
        unused = [source.kind for source in self.entry.sources if source not in self.sources]
        if unused:
            hints.append(f"Allowed sources: {kinds}; --sources {','.join(KINDS)} also tries {', '.join(unused)}.")
        return PullFailed(
            f"{self.entry.name} could not be downloaded. {messages}",
            hint=" ".join(hints) or "Check the network and pull again; the download continues where it stopped.",
            details={"reasons": [error.message for error in reasons], "sources": kinds},
        )


def parse_sources(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of kinds of sources, such as ``"hub,wheels"``. Raises InvalidRequest."""
    kinds = split_list(text)
    if not kinds or not set(kinds) <= set(KINDS):
        raise InvalidRequest(f"sources must be a list of {', '.join(KINDS)}, not {text!r}.")
    return kinds


def forget(entry: CatalogEntry, cache_dir: Path) -> None:
    """Remove the pulled files of a model, so that the next pull downloads it again."""
    for source in entry.sources:
        shutil.rmtree(entry.directory(source, cache_dir), ignore_errors=True)


def is_partial(entry: CatalogEntry, cache_dir: Path) -> bool:
    """Return whether an interrupted pull left files from which the next pull continues."""
    return any(models_dir(cache_dir).glob(f".{entry.folder}-*.partial"))


def _link(path: Path, target: Path) -> None:
    """Create ``target`` as a hard link to the file ``path``, so that both names exist and the download is not lost if
    the process is killed before the model's directory gets its final name. On a file system without hard links, move
    the file to ``target``."""
    try:
        os.link(path, target)
    except OSError:  # the file system has no hard links
        os.replace(path, target)


def _acquire(lock: filelock.BaseFileLock) -> Iterator[Progress]:
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except filelock.Timeout:
            yield Progress("wait", note="another process is pulling this model")
            time.sleep(POLL_S)
