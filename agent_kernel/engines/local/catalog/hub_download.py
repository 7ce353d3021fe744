"""Downloads files of a model hub over HTTP, continuing where an earlier download stopped.

``huggingface_hub`` lists the files (``hub_listing.py``), but agent-kernel transfers them itself. Its
``hf_hub_download`` and ``snapshot_download`` (read in 2.4) write to a file with a random name and remove it on failure,
so that no download can be resumed after the process was killed. They compare only sizes, can be cancelled only by an
exception from the progress bar, and keep a cache or metadata folder of their own. The function ``http_get``, which they
call, is not public. It buffers 10 MiB before it writes or reports, and gives up when a connection is reset or the hub
answers HTTP 503.

Respects HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and the proxy variables. A ``resolve`` URL of the hub redirects to the
storage, which accepts Range requests; the redirect announces the file's SHA-256 as ``X-Linked-ETag``.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agent_kernel.core.errors import PullFailed
from agent_kernel.engines.local.catalog.catalog_entry import HubFile, HubSnapshot, SnapshotFile
from agent_kernel.engines.local.catalog.hub_listing import endpoint_of, is_offline, token_error, token_of
from agent_kernel.engines.local.catalog.installed_model import SNAPSHOT
from agent_kernel.engines.local.catalog.pull_stages import Progress
from agent_kernel.engines.local.catalog.verified_download import (
    DOWNLOADED,
    SHA256,
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
"""Number of requests in a row that may bring no new byte; after one more, the download fails."""
CONNECT_S, READ_S = 10.0, 30.0
FIRST_WAIT_S = 0.25
ANNOUNCED_HASH = "x-linked-etag"


def fetch(source: HubFile, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Download one file into ``staging``, or continue an earlier download there. Raises SourceUnavailable (no network,
    refused, or no longer at the hub), PullFailed (wrong hash), OSError (disk)."""
    path = staging / DOWNLOADED
    if (earlier := (yield from earlier_download(path, source.sha256))) is not None:
        return earlier
    where = f"{source.repo}/resolve/{source.revision}/{source.file}"
    partial = staging / f"{source.key}.part"
    transfer = _Transfer(where, partial, env, label=source.label, size=source.size, expected=source.sha256)
    yield from transfer.run()
    return (yield from accept(partial, path, transfer.expected or "", source.label))


def fetch_snapshot(source: HubSnapshot, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Download all files into one directory and check the hash of each. The hash of the returned Download is the
    SHA-256 of the list of the files' hashes. Raises the errors of ``fetch``."""
    directory = staging / SNAPSHOT
    directory.mkdir(exist_ok=True)
    before = 0
    for file in source.files:
        for progress in _fetch_member(source, file, staging, env):
            yield Progress("download", before + progress.done, source.download, progress.note or file.path)
        before += file.size
    digests = "\n".join(f"{file.digest}  {file.path}" for file in sorted(source.files, key=lambda file: file.path))
    return Download(directory, hashlib.sha256(digests.encode()).hexdigest())


def _fetch_member(source: HubSnapshot, file: SnapshotFile, staging: Path, env: Mapping[str, str]) -> Iterator[Progress]:
    target, partial = staging / SNAPSHOT / file.path, staging / f"{file.path}.part"
    if (yield from earlier_download(target, file.digest)) is not None:
        return
    label = f"{source.repo}/{file.path}"
    if file.size:
        sha256 = file.digest if len(file.digest) == SHA256 else None
        where = f"{source.repo}/resolve/{source.revision}/{file.path}"
        yield from _Transfer(where, partial, env, label=label, size=file.size, expected=sha256).run()
    else:
        partial.touch()
    yield from accept(partial, target, file.digest, label)


class _Transfer:
    """Downloads one file, in as many requests as necessary.

    ``where`` is the path of the file's URL at the hub, ``label`` its name in messages. ``expected`` is the SHA-256 to
    check. It is empty until the hub announces one. It is None for a small file: the hub has no SHA-256 for it, so the
    caller checks another digest. Raises SourceUnavailable if the environment forbids requests to the hub.
    """

    def __init__(
        self, where: str, partial: Path, env: Mapping[str, str], *, label: str, size: int, expected: str | None
    ) -> None:
        if is_offline(env):
            raise SourceUnavailable("The model was not requested from the hub, because HF_HUB_OFFLINE is set.")
        self.url = f"{endpoint_of(env)}/{where}"
        self.token = token_of(env)
        self.label = label
        self.partial = partial
        self.expected = expected
        self.total = size

    @property
    def have(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def run(self) -> Iterator[Progress]:
        import httpx  # the import takes 0.1 s, which not every command should spend

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
                        raise self._unavailable(f"cannot be reached: {problem}") from error
                if not self._complete():
                    failures = 0 if self.have > before else failures + 1
                    yield from self._wait(failures, problem)

    def _wait(self, failures: int, problem: str) -> Iterator[Progress]:
        if failures > RETRIES:
            raise self._unavailable(f"sent no new data in {failures} requests in a row: {problem}")
        yield Progress("download", self.have, self.total, f"{problem}; trying again")
        time.sleep(min(FIRST_WAIT_S * 2**failures, 8.0))

    def _complete(self) -> bool:
        """Return whether all bytes have arrived; False while the length or the hash is unknown. A partial file that is
        longer than the length is removed, so that the download starts again."""
        if self.total and self.have > self.total:
            self.partial.unlink()
        return bool(self.expected != "" and self.total and self.have == self.total)

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
                # Chunks are written without buffering, because bytes in a buffer are lost with the connection.
                for chunk in response.iter_raw():
                    file.write(chunk)
                    yield Progress("download", file.tell(), self.total)
                self.total = self.total or file.tell()

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 401 and self.token:
            raise token_error(self.label)
        if status in (401, 403):
            raise self._unavailable(
                f"refused the file (HTTP {status}): the file is gated, private or removed",
                hint=(
                    "If the model is gated, accept its terms on the hub, and set HF_TOKEN to a token that may read it."
                ),
            )
        if status == 404:
            raise self._unavailable(
                "does not have the file (HTTP 404)", hint="Check the name of the file, or pull again."
            )
        if status == 416:  # the partial file is longer than the file at the hub
            self.partial.unlink(missing_ok=True)
        if status >= 500 or status in (416, 429):
            raise _TryAgain(f"HTTP {status}")
        if status not in (200, 206):
            raise self._unavailable(f"answered HTTP {status}")

    def _check_hash(self, response: httpx.Response) -> None:
        """Compare the hash that the hub announces with the expected one before anything is downloaded, and raise
        PullFailed if they differ. If no hash was expected, the announced one becomes the expected one."""
        if self.expected is None:
            return
        tags = [answer.headers.get(ANNOUNCED_HASH, "").strip('W/"') for answer in (*response.history, response)]
        announced = next((tag for tag in tags if re.fullmatch("[0-9a-f]{64}", tag)), "")
        if announced and self.expected and announced != self.expected:
            self.partial.unlink(missing_ok=True)
            raise wrong_hash(self.label, self.expected, announced)
        self.expected = self.expected or announced
        if not self.expected:
            raise self._unavailable("does not state the SHA-256 of the file, so the file cannot be verified")

    def _check_length(self, length: int) -> None:
        if self.total and length != self.total:
            raise PullFailed(
                f"{self.label} has {length} bytes instead of {self.total}.",
                hint="Try again. If this happens again, the file on the hub has changed.",
                details={"file": self.label, "expected": self.total, "actual": length},
            )
        self.total = length

    def _unavailable(self, reason: str, hint: str = "") -> SourceUnavailable:
        return SourceUnavailable(f"The hub ({self.url}) {reason}.", hint=hint)


class _TryAgain(Exception):
    """Raised if the hub responds that the request must be repeated later."""
