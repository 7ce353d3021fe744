"""Downloads files of a model hub over HTTP, continuing where an earlier download stopped.

The hub's library lists the files (``hub_listing.py``). The transfer is our own, because that library checks only sizes,
reports no progress of a resumed file and keeps a cache of its own. Respects HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and
the proxy variables. A ``resolve`` URL of the hub redirects to the storage, which accepts Range requests; the redirect
announces the file's SHA-256 as ``X-Linked-ETag``.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_kernel.core.errors import PullFailed
from agent_kernel.engines.local.catalog.catalog_entry import HubFile, HubSnapshot, SnapshotFile
from agent_kernel.engines.local.catalog.gguf_requantize import file_hash
from agent_kernel.engines.local.catalog.hub_listing import bad_token, endpoint_of, is_offline, token_of
from agent_kernel.engines.local.catalog.installed_model import SNAPSHOT
from agent_kernel.engines.local.catalog.requantize_progress import Progress
from agent_kernel.engines.local.catalog.verified_download import (
    Download,
    SourceUnavailable,
    Steps,
    accept,
    earlier_download,
    wrong_hash,
)

if TYPE_CHECKING:
    import httpx

RETRIES = 5
"""Tries in a row without a new byte before the download fails."""
CONNECT_S, READ_S = 10.0, 30.0
FIRST_WAIT_S = 0.25
ANNOUNCED_HASH = "x-linked-etag"
SHA256 = 64
"""Hexadecimal digits of a SHA-256; git's SHA-1 has 40."""


def fetch(source: HubFile, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Raises SourceUnavailable (offline, refused, gone), PullFailed (wrong hash), OSError (disk)."""
    if (earlier := (yield from earlier_download(staging, source.sha256))) is not None:
        return earlier
    _check_online(env)
    where = _RemoteFile(source.repo, source.revision, source.file, source.label)
    transfer = _Transfer(where, staging / f"{source.key}.part", env, source.size, source.sha256)
    yield from transfer.run()
    return (yield from accept(transfer.partial, staging, transfer.expected, source.label))


def fetch_snapshot(source: HubSnapshot, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Download all files into one directory and check each; the hash is that of the list of their hashes. Raises like
    ``fetch``."""
    directory = staging / SNAPSHOT
    directory.mkdir(exist_ok=True)
    before = 0
    for file in source.files:
        for progress in _snapshot_file(source, file, directory, env):
            yield Progress("download", before + progress.done, source.download, progress.note or file.path)
        before += file.size
    listed = "\n".join(f"{file.digest}  {file.path}" for file in sorted(source.files, key=lambda file: file.path))
    return Download(directory, hashlib.sha256(listed.encode()).hexdigest())


def _snapshot_file(
    source: HubSnapshot, file: SnapshotFile, directory: Path, env: Mapping[str, str]
) -> Iterator[Progress]:
    """Download one file. One that an earlier run completed is read again instead, since the disk may have lost it."""
    target, partial = directory / file.path, directory.parent / f"{file.path}.part"
    if target.is_file():
        if (yield from _digest(target, file)) == file.digest:
            return
        target.unlink()
    if file.size:
        _check_online(env)
        label = f"{source.repo}/{file.path}"
        where = _RemoteFile(source.repo, source.revision, file.path, label)
        large = len(file.digest) == SHA256
        transfer = _Transfer(where, partial, env, file.size, file.digest if large else "", announced=large)
        yield from transfer.run()
    else:
        partial.touch()
    actual = yield from _digest(partial, file)
    if actual != file.digest:
        partial.unlink()
        raise wrong_hash(f"{source.repo}/{file.path}", file.digest, actual)
    with partial.open("rb+") as written:
        os.fsync(written.fileno())
    os.replace(partial, target)


def _digest(path: Path, file: SnapshotFile) -> Steps[str]:
    """Return the hub's digest: SHA-256 of large files, git's blob name for small ones."""
    if len(file.digest) == SHA256:
        return (yield from file_hash(path))
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _check_online(env: Mapping[str, str]) -> None:
    if is_offline(env):
        raise SourceUnavailable("The hub was not asked: HF_HUB_OFFLINE is set.")


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """One file of one revision. ``label`` is for messages."""

    repo: str
    revision: str
    file: str
    label: str


class _Transfer:
    """One file in as many requests as necessary. ``expected`` is the SHA-256 to check, known after the first response;
    without ``announced`` the hub does not know it, and the caller checks another digest."""

    def __init__(
        self,
        where: _RemoteFile,
        partial: Path,
        env: Mapping[str, str],
        size: int,
        sha256: str,
        *,
        announced: bool = True,
    ) -> None:
        self.url = f"{endpoint_of(env)}/{where.repo}/resolve/{where.revision}/{where.file}"
        self.token = token_of(env)
        self.label = where.label
        self.partial = partial
        self.announced = announced
        self.expected = sha256
        self.total = size

    @property
    def have(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def run(self) -> Iterator[Progress]:
        import httpx  # 0.1 s: not at the start of every command

        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
        failures = 0
        with httpx.Client(follow_redirects=True, timeout=timeout, headers=headers) as client:
            while not self._complete():
                before, problem = self.have, "the answer ended early"
                try:
                    yield from self._request(client)
                except (httpx.RequestError, httpx.InvalidURL, _TryAgain) as error:
                    problem = str(error) or type(error).__name__
                    if not self.have and isinstance(error, (httpx.ConnectError, httpx.InvalidURL)):
                        raise self._unavailable(f"can not be reached: {problem}") from error
                if not self._complete():
                    failures = 0 if self.have > before else failures + 1
                    yield from self._wait(failures, problem)

    def _wait(self, failures: int, problem: str) -> Iterator[Progress]:
        if failures > RETRIES:
            raise self._unavailable(f"gave nothing {failures} times in a row: {problem}")
        yield Progress("download", self.have, self.total, f"{problem}; trying again")
        time.sleep(min(FIRST_WAIT_S * 2**failures, 8.0))

    def _complete(self) -> bool:
        """Whether the hash and the whole length are known and all bytes arrived. A file that is too long cannot be
        right."""
        if self.total and self.have > self.total:
            self.partial.unlink()
        return bool((self.expected or not self.announced) and self.total and self.have == self.total)

    def _request(self, client: httpx.Client) -> Iterator[Progress]:
        have = self.have
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with client.stream("GET", self.url, headers=headers) as response:
            self._check_status(response)
            self._check_hash(response)
            start = have if response.status_code == 206 else 0
            if "content-length" in response.headers:
                self._check_length(start + int(response.headers["content-length"]))
            with self.partial.open("ab" if start else "wb") as file:
                for chunk in response.iter_raw():  # as they come: what is gathered first is lost with the line
                    file.write(chunk)
                    yield Progress("download", file.tell(), self.total)
                self.total = self.total or file.tell()

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 401 and self.token:
            raise bad_token(self.label)
        if status in (401, 403):
            raise self._unavailable(
                f"refused the file (HTTP {status}): it is gated, private or gone",
                hint="If it is gated, accept its terms on the hub and set HF_TOKEN to a token that may read it.",
            )
        if status == 404:
            raise self._unavailable("does not have the file (HTTP 404)", hint="Check its name, or pull again.")
        if status == 416:  # our part is longer than the file: it can not be right
            self.partial.unlink(missing_ok=True)
        if status >= 500 or status in (416, 429):
            raise _TryAgain(f"HTTP {status}")
        if status not in (200, 206):
            raise self._unavailable(f"answered HTTP {status}")

    def _check_hash(self, response: httpx.Response) -> None:
        """Compare the hash that the hub announces before anything is downloaded. If none was known before, this is the
        one to check."""
        answers = (*response.history, response)
        tags = [answer.headers.get(ANNOUNCED_HASH, "").strip('W/"') for answer in answers]
        found = next((tag for tag in tags if re.fullmatch("[0-9a-f]{64}", tag)), "")
        if found and self.expected and found != self.expected:
            self.partial.unlink(missing_ok=True)
            raise wrong_hash(self.label, self.expected, found)
        self.expected = self.expected or found
        if not self.expected and self.announced:
            raise self._unavailable("does not say the SHA-256 of the file, and we do not know it")

    def _check_length(self, length: int) -> None:
        if self.total and length != self.total:
            raise PullFailed(
                f"{self.label} has {length} bytes instead of {self.total}.",
                hint="Try again; if it stays so, the source changed.",
                details={"file": self.label, "expected": self.total, "actual": length},
            )
        self.total = length

    def _unavailable(self, reason: str, hint: str = "") -> SourceUnavailable:
        return SourceUnavailable(f"The hub ({self.url}) {reason}.", hint=hint)


class _TryAgain(Exception):
    """The hub responded, but the request has to be repeated later."""
