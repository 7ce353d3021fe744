"""A kernel that no Jupyter server started, and its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tests.server import Json


def own_environment(directory: Path, script: Sequence[Json]) -> dict[str, str]:
    """Return an environment with the scripted engine and without the user's own settings."""
    (directory / "script.json").write_text(json.dumps(list(script)))
    own = {
        "AGENT_KERNEL_ENGINE": "scripted",
        "AGENT_KERNEL_SCRIPT": str(directory / "script.json"),
        "AGENT_KERNEL_DATA_DIR": str(directory / "data"),
        "JUPYTER_CONFIG_DIR": str(directory / "config"),
        "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
        "IPYTHONDIR": str(directory / "ipython"),
    }
    return {**os.environ, **own}
