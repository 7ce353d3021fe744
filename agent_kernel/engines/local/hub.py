"""Downloads one file of a model hub over HTTP, going on where an earlier download stopped.

Respects HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN and the proxy variables. A ``resolve`` URL of the hub answers with a
redirect to the storage, which takes Range requests; the redirect announces the file's SHA-256 as ``X-Linked-ETag``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agent_kernel.engines.local.catalog import HubFile
from agent_kernel.engines.local.download import (
    Download,
    SourceUnavailable,
    Steps,
    accept,
    earlier_download,
    wrong_hash,
)
from agent_kernel.engines.local.progress import Progress
from agent_kernel.errors import PullFailed

if TYPE_CHECKING:
    import httpx

ENDPOINT = "https://huggingface.co"
RETRIES = 5
"""Tries in a row without a new byte before a lost connection counts as the end."""
CONNECT_S, READ_S = 10.0, 30.0
FIRST_WAIT_S = 0.25
ANNOUNCED_HASH = "x-linked-etag"


def fetch(source: HubFile, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Raises SourceUnavailable (offline, refused, gone), PullFailed (wrong hash), OSError (disk)."""
    if (earlier := (yield from earlier_download(staging, source.sha256))) is not None:
        return earlier
    if env.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise SourceUnavailable("The hub was not asked: HF_HUB_OFFLINE is set.")
    transfer = _Transfer(source, staging / f"{source.key}.part", env)
    yield from transfer.run()
    return (yield from accept(transfer.partial, staging, transfer.expected, source.label))


class _Transfer:
    """One file in as many requests as it takes. ``expected`` is the hash to check, known after the first answer."""

    def __init__(self, source: HubFile, partial: Path, env: Mapping[str, str]) -> None:
        endpoint = env.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
        self.url = f"{endpoint}/{source.repo}/resolve/{source.revision}/{source.file}"
        self.token = env.get("HF_TOKEN", "")
        self.source = source
        self.partial = partial
        self.expected = source.sha256
        self.total = source.size

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
        """Both the hash and the whole length must be known; what is too long can not be right."""
        if self.total and self.have > self.total:
            self.partial.unlink()
        return bool(self.expected and self.total and self.have == self.total)

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
        if status in (401, 403):
            raise self._unavailable(
                f"refused the file (HTTP {status}): it is gated, private or gone",
                hint="If it is gated, accept its terms on the hub and set HF_TOKEN to a token that may read it.",
            )
        if status == 404:
            raise self._unavailable("does not have the file (HTTP 404)")
        if status == 416:  # our part is longer than the file: it can not be right
            self.partial.unlink(missing_ok=True)
        if status >= 500 or status in (416, 429):
            raise _TryAgain(f"HTTP {status}")
        if status not in (200, 206):
            raise self._unavailable(f"answered HTTP {status}")

    def _check_hash(self, response: httpx.Response) -> None:
        """The hub's own word on the hash, before anything is downloaded. Where we know none, it is the one to check."""
        answers = (*response.history, response)
        tags = [answer.headers.get(ANNOUNCED_HASH, "").strip('W/"') for answer in answers]
        found = next((tag for tag in tags if re.fullmatch("[0-9a-f]{64}", tag)), "")
        if found and self.expected and found != self.expected:
            self.partial.unlink(missing_ok=True)
            raise wrong_hash(self.source.label, self.expected, found)
        self.expected = self.expected or found
        if not self.expected:
            raise self._unavailable("does not say the SHA-256 of the file, and we do not know it")

    def _check_length(self, length: int) -> None:
        if self.total and length != self.total:
            raise PullFailed(
                f"{self.source.label} has {length} bytes instead of {self.total}.",
                hint="Try again; if it stays so, the source changed.",
                details={"file": self.source.label, "expected": self.total, "actual": length},
            )
        self.total = length

    def _unavailable(self, reason: str, hint: str = "") -> SourceUnavailable:
        return SourceUnavailable(f"The hub ({self.url}) {reason}.", hint=hint)


class _TryAgain(Exception):
    """The hub answered, but not now."""
