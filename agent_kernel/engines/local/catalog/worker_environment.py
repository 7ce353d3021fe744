"""Creates, finds and removes private environments for the model worker, so that its pinned libraries do not affect the
notebook's packages.

``agent-kernel model setup cpu|gpu`` creates one under the data directory. The worker then runs in it unless the setting
``worker_python`` names another interpreter. An environment is valid only if it has its record file, which ``setup``
writes last.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import filelock

from agent_kernel.core.errors import EngineError, InvalidRequest

Kind: TypeAlias = Literal["cpu", "gpu"]
CPU = (
    "openvino-genai>=2026.4,<2026.5",
    "gguf>=0.17",
    "numpy>=1.26",
    "jinja2>=3.1",
    "jsonschema>=4.18",
    "transformers>=5.22,<5.24",
)
GPU = (
    # The version is fixed, because the grammar hook uses parts of the batching manager that are not public.
    "torch==2.13.0",
    "accelerate>=1.2,<2",
    "bitsandbytes>=0.45; sys_platform != 'darwin'",
    "xgrammar>=0.2.8,<0.3",
    "pillow>=11",
    "av>=14",
)
REQUIREMENTS: Mapping[Kind, tuple[str, ...]] = MappingProxyType({"cpu": CPU, "gpu": (*CPU, *GPU)})
DISK: Mapping[Kind, int] = MappingProxyType({"cpu": 1_000_000_000, "gpu": 8_000_000_000})
"""Free disk space in bytes that creating an environment needs: the packages as pip unpacks them on Linux (for gpu, with
CUDA), and pip's temporary copies."""
RECORD = "environment.json"
CHECK = """
import json, sys
found = {"python": sys.version.split()[0]}
sys.modules["openvino_telemetry"] = None  # so that openvino sends no usage data
import openvino_genai, transformers
found |= {"openvino_genai": openvino_genai.__version__, "transformers": transformers.__version__}
if "gpu" in sys.argv[1:]:
    import accelerate, torch, xgrammar
    found |= {"torch": torch.__version__, "accelerate": accelerate.__version__}
    found["devices"] = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
print(json.dumps(found))
"""
"""The program that the new interpreter runs: it imports the libraries that the worker will import, and reports versions
and devices."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment for the model worker. ``facts`` are the versions and devices that the check after its
    creation reported."""

    kind: Kind
    directory: Path
    facts: Mapping[str, Any]

    @property
    def python(self) -> Path:
        return _python(self.directory)


def environments(data_dir: Path) -> list[Environment]:
    """Return the complete environments; that for a GPU, which has more libraries, comes first."""
    kinds: tuple[Kind, ...] = ("gpu", "cpu")
    return [environment for kind in kinds if (environment := read(kind, _directory(data_dir, kind))) is not None]


def read(kind: Kind, directory: Path) -> Environment | None:
    """Return the environment in ``directory``; None if it does not exist or is incomplete."""
    try:
        facts = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Environment(kind, directory, facts) if _python(directory).exists() else None


def interpreter(worker_python: str, data_dir: Path) -> str:
    """Return the path of the worker's interpreter: ``worker_python`` if it is set, otherwise the interpreter of a
    private environment if one exists, otherwise the interpreter of this process. Raises InvalidRequest if the program
    ``worker_python`` does not exist."""
    if worker_python:
        executable = shutil.which(os.path.expanduser(worker_python))
        if executable is None:
            raise InvalidRequest(
                f"worker_python is {worker_python!r}, which is not a program on this machine.",
                hint="Create one with: agent-kernel model setup cpu (or gpu), and leave worker_python empty.",
            )
        return executable
    return next((str(environment.python) for environment in environments(data_dir)), sys.executable)


def setup(kind: Kind, data_dir: Path, say: Callable[[str], None], *, python: str = sys.executable) -> Environment:
    """Create the environment; ``say`` receives pip's output line by line. An existing environment is removed first,
    which breaks a worker that runs in it, so the caller asks the user beforehand. Blocking; takes minutes.

    Raises EngineError (no space, pip failed, the new interpreter cannot import the libraries).
    """
    directory = _directory(data_dir, kind)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{directory}.lock"):
        remove(kind, data_dir)
        free = shutil.disk_usage(directory.parent).free
        if free < DISK[kind]:
            raise EngineError(
                f"The environment needs {DISK[kind] / 1e9:.0f} GB in {directory.parent}; {free / 1e9:.1f} GB are free.",
                hint="Free some space, or use another --data-dir.",
            )
        _run([python, "-m", "venv", str(directory)], say, "The environment could not be created")
        install = [str(_python(directory)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*install, *REQUIREMENTS[kind]], say, "pip could not install the libraries")
        facts = _check_imports(kind, directory)
        (directory / RECORD).write_text(json.dumps(facts, indent=2), encoding="utf-8")
    return Environment(kind, directory, facts)


def remove(kind: Kind, data_dir: Path) -> bool:
    """Remove an environment and return whether it existed. The record is removed first, so that an interrupted removal
    leaves an environment that counts as incomplete."""
    directory = _directory(data_dir, kind)
    (directory / RECORD).unlink(missing_ok=True)
    existed = directory.exists()
    shutil.rmtree(directory, ignore_errors=True)
    return existed


def _check_imports(kind: Kind, directory: Path) -> dict[str, Any]:
    command = [str(_python(directory)), "-I", "-c", CHECK, kind]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        reason = (completed.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise EngineError(f"The new environment does not import what the worker needs: {reason}")
    facts: dict[str, Any] = json.loads(completed.stdout.strip().splitlines()[-1])
    return facts


def _run(command: list[str], say: Callable[[str], None], failure: str) -> None:
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last = line.strip() or last
                say(last)
        except BaseException:  # Ctrl-C, or ``say`` failed: pip must not continue in the background
            process.terminate()
            raise
    if process.returncode:
        raise EngineError(f"{failure}: {last}", hint="The output of pip is above. Run the same command again.")


def _directory(data_dir: Path, kind: Kind) -> Path:
    return data_dir / "environments" / kind


def _python(directory: Path) -> Path:
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
