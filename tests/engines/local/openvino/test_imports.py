"""What importing openvino does besides: by itself, it sends usage data and writes a file with a client's number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

IMPORT = """
import sys
from agent_kernel.engines.local.openvino.backend import import_libraries
numpy, openvino, genai = import_libraries()
openvino.Tensor(numpy.zeros((1, 1)))
genai.SchedulerConfig()
print([name for name, module in sys.modules.items() if "telemetry" in name and module is not None])
"""


def test_openvino_sends_no_usage_data(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "CI"}  # openvino sends nothing in a CI run
    env["HOME"] = str(tmp_path)
    run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, env=env, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["[]"]
    assert not list(tmp_path.iterdir())
