"""Tries every attack on the jail in a draft. Prints JSON {attack: result} with ``host untouched``, ``unsafe`` (why
there is no draft), ``left`` (what remained afterwards) and ``works`` (the results of ordinary code in the draft).

``python attacks.py``, as any user and in any container; see ``tests/sandbox/attacks`` and ``driver``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sandbox.attacks import ATTACKS, KNOWN, PRELUDE, RUN_ALL, SECRET, UNSEEN, Scene, fill, heard, scene

DRIVER = Path(__file__).with_name("driver.py")
OWN_DIRECTORY = "import os, tempfile\nos.chdir(tempfile.gettempdir())"
WORKS = {
    "reading": "open('data.csv').read(), open('sub/more.csv').read()",
    "modules": "import ours\nours.answer",
    "programs": "import subprocess\nsubprocess.run(['echo', 'hello'], capture_output=True).stdout",
}


@contextmanager
def others(root: Path) -> Iterator[dict[str, object]]:
    """Create what another session has: a work directory, a process, files in /tmp and in shared memory."""
    own = root / "work" / "other" / "mine"
    public = [Path("/tmp/of-other"), Path("/dev/shm/of-other")]
    for path in (own, *public):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)", "of-other"]) as process:
        try:
            yield {"other": str(own), "shared": True}
        finally:
            process.kill()
            for path in public:
                path.unlink(missing_ok=True)


def run_in_draft(here: Scene, codes: list[str]) -> dict[str, Any]:
    hidden = [here.notebook / "runtime", here.root / "kept", here.root / "work"]
    env = {name: value for name, value in os.environ.items() if SECRET not in value}
    env |= {"PYTHONPATH": f"{env['PYTHONPATH']}{os.pathsep}{here.facts['modules']}", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"AGENT_KERNEL_HIDDEN": os.pathsep.join(map(str, hidden)), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps({"setup": "", "codes": codes, "live": [], "timeout_s": 300.0}),
        cwd=here.notebook,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as here, others(here.root) as more:
        os.environ["AGENT_KERNEL_TEST_SECRET"] = SECRET
        facts = here.facts | more
        attacks = {name: fill(code, facts) for name, code in (ATTACKS | UNSEEN | KNOWN).items()}
        code = f"{PRELUDE}{RUN_ALL}run_all({attacks!r})"
        told = run_in_draft(here, [*WORKS.values(), OWN_DIRECTORY, code, "1 / 0", code])
        *works, _, (_, text, first, _), _, (_, _, second, _) = told["ran"]
        said: dict[str, Any] = heard(first) or {"nothing was said": text}
        said["after a call that failed"] = heard(second)
        said["works"] = {name: ran[1] for name, ran in zip(WORKS, works, strict=True)}
        said |= {"host untouched": str(here.untouched()), "unsafe": told["unsafe"], "left": told["left"]}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
