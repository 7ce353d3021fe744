"""Progress output of a pull: a bar on a terminal, lines in a log, JSON lines for a program."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any, TextIO

from tqdm import tqdm

from agent_kernel.engines.local.catalog.pull_stages import Progress, megabytes

STAGES = {"wait": "waiting", "download": "downloading", "verify": "checking", "rewrite": "rewriting as Q8_0"}
JSON_EVERY_S = 0.1


class Bar:
    """Shows one progress bar for each stage, on a terminal."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar: Any = None
        self._stage = self._note = ""

    def show(self, progress: Progress) -> None:
        if progress.note != self._note and not progress.total:
            tqdm.write(progress.note, self._file)  # the note explains why nothing is counted
        self._note = progress.note
        if not progress.total or progress.stage == "done":
            return
        if progress.stage != self._stage:
            self.close()
            self._stage = progress.stage
            size = shutil.get_terminal_size()  # tqdm prints nothing for 0 x 0; this function then returns 80 x 24
            shape = {"ncols": size.columns, "nrows": size.lines}
            self._bar = tqdm(desc=STAGES[progress.stage], unit="B", unit_scale=True, file=self._file, **shape)
        self._bar.set_postfix_str(progress.note, refresh=False)
        self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Lines:
    """Writes one line for every tenth of a stage, for logs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: tuple[object, ...] = ()

    def show(self, progress: Progress) -> None:
        counted = progress.total and progress.stage in ("download", "rewrite")
        tenth = progress.done * 10 // progress.total if counted else 0
        state = (progress.stage, tenth if counted else progress.note)
        if progress.stage == "done" or state == self._last:
            return
        self._last = state
        amount = f" {tenth * 10} % of {megabytes(progress.total)}" if counted else ""
        note = f" ({progress.note})" if progress.note else ""
        self._file.write(f"{STAGES[progress.stage]}{amount}{note}\n")
        self._file.flush()

    def close(self) -> None: ...


class JsonLines:
    """Writes progress as JSON lines: ``{"type": "progress", "stage", "done", "total", "note"}``. At most ten lines per
    second, and one at every change of stage or note."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = ("", "", 0.0)

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if (progress.stage, progress.note) == self._last[:2] and now - self._last[2] < JSON_EVERY_S:
            return
        self._last = (progress.stage, progress.note, now)
        self._file.write(json.dumps({"type": "progress"} | progress.to_json()) + "\n")
        self._file.flush()

    def close(self) -> None: ...
