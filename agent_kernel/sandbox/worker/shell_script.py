"""Runs a shell script inside the jail; nothing it starts outlives it. Standard library only.

While a script runs, this process adopts orphans below it, so that detached processes are found at its end. Where
seccomp forbids signalling other processes (no namespaces, and a Linux kernel before 6.12), leftover processes end only
together with the sandbox worker of the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping

from agent_kernel.sandbox.jail.raw_syscalls import prctl
from agent_kernel.sandbox.jail.resource_usage import children_of

SHELL = "/bin/sh"
START = 'cd "$1" && { ulimit -S -t "$2" 2>/dev/null; exec /bin/sh -e -c "$3"; }'
"""The shell command that runs a script. Because of ``-e``, the script ends at the first command that fails, with the
exit code of that command."""
MAX_BYTES = 120_000
"""Limit in bytes of a script. It is passed as one argument, for which Linux accepts up to 128 KiB."""
_SUBREAPER = 36


class Script:
    """Runs shell scripts. ``env`` and ``workdir`` are the same for every script, even if Python code has changed the
    worker's own."""

    def __init__(self, workdir: str, env: Mapping[str, str]) -> None:
        self._workdir = workdir
        self._env = dict(env)

    def run(self, code: str, *, cpu_s: float, grace_s: float, calm: Callable[[], None]) -> int:
        """Run a script and return its exit code (128 + signal if a signal ended it). ``calm`` is called to make this
        process ignore further interrupts.

        When interrupted, the script gets SIGINT, after a third of ``grace_s`` SIGTERM, and after two thirds SIGKILL;
        then KeyboardInterrupt is raised. Raises ValueError for a script of more than MAX_BYTES bytes."""
        if len(code.encode("utf-8", "surrogateescape")) > MAX_BYTES:
            raise ValueError(f"A script can have at most {MAX_BYTES:,} bytes: write longer input to a file.")
        others = set(children_of(os.getpid()))
        prctl(_SUBREAPER, 1)
        shell = 0
        try:
            shell = self._spawn(code, cpu_s)
            status = os.waitpid(shell, 0)[1]
            exit_code = os.waitstatus_to_exitcode(status)
            return exit_code if exit_code >= 0 else 128 - exit_code
        except KeyboardInterrupt:
            calm()
            for number in (signal.SIGINT, signal.SIGTERM):
                if shell and not _signal_and_wait(shell, number, grace_s / 3):
                    continue
                break
            if not _end(shell, others, time.monotonic() + grace_s / 3):
                # The script left a process that this process has no right to end. The server ends the whole session
                # during this sleep.
                time.sleep(60)
            raise
        finally:
            calm()
            _end(shell, others, time.monotonic() + grace_s / 3)
            prctl(_SUBREAPER, 0)

    def _spawn(self, code: str, cpu_s: float) -> int:
        limit = str(max(1, round(cpu_s))) if cpu_s > 0 else "unlimited"
        return os.posix_spawn(
            SHELL,
            [SHELL, "-c", START, "sh", self._workdir, limit, code],
            self._env,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
            setpgroup=0,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )


def _signal_and_wait(shell: int, number: signal.Signals, within_s: float) -> bool:
    """Send a signal to the script and wait up to ``within_s`` seconds. Returns True if the script has ended. Without
    process groups, SIGINT goes to all processes of this session."""
    with contextlib.suppress(OSError):
        if os.getpgid(shell) == shell:
            os.killpg(shell, number)
        else:
            os.kill(0 if number == signal.SIGINT else shell, number)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if os.waitid(os.P_PID, shell, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.01)
    return False


def _end(shell: int, earlier_pids: set[int], until: float) -> bool:
    """Kill and reap all processes below this one, except ``earlier_pids``, which existed before the script. When a
    process is killed, its children become children of this process. Returns False if some are left at the time
    ``until``."""
    while left := set(children_of(os.getpid())) - earlier_pids:
        with contextlib.suppress(OSError):
            os.killpg(shell, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True
