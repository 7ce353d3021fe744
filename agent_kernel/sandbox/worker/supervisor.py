"""Runs between the server and the jailed worker. The supervisor waits warm, becomes a jail on request, and ends
everything below it when it ends. Trusted; standard library only; started by ``host/jailed_process.py``.

Its control channel carries one JSON object per line. From the server: the ``JailSpec``, then ``{"do": "interrupt"}`` or
``{"do": "refresh"}``; end of file ends everything. To the server: ``{"warm": pid}``, ``{"refreshed": true}``,
``{"failed": reason}``, ``{"group": pid}`` (the process group, where no namespace ends the processes), and ``{"exit":
status, "why": reason}``. ``status`` has the form that ``waitstatus_to_exitcode`` returns, in which a negative number is
a signal; ``why`` is set if the supervisor ended the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from agent_kernel.sandbox.jail import loopback, mounts, privileges
from agent_kernel.sandbox.jail.jail import Jail, JailSpec
from agent_kernel.sandbox.jail.resource_usage import check_usage, children_of, measure_usage
from agent_kernel.sandbox.worker import code_worker

REFUSED = 97
LOOK_S = 1.0
LOOK_CLOSELY_S = 0.25
"""LOOK_S and LOOK_CLOSELY_S are the seconds between two checks of a session's usage. LOOK_CLOSELY_S applies once the
session has an eighth of the allowed processes."""
LOOK_AGAIN_S = 0.05
FASTEST_MB_S = 2000.0
"""Assumed limit of how fast a session can fill memory, in MB per second; two cores of 2024 reach it. The next check
comes before the remaining memory could be full at this rate."""
OF_THEIR_TIME = 3
"""After a check that stopped the processes, they run at least this many times as long as the check took."""


def main(protocol_fd: int, control_fd: int, way_fd: int = -1) -> None:
    """Run the supervisor. The descriptors are ``protocol_fd`` (the worker's channel to the server), ``control_fd``
    (this process's channel), and ``way_fd`` (a socket over which the proxy's listening socket is sent to the
    server)."""
    control = Control(socket.socket(fileno=control_fd))
    control.send({"warm": os.getpid()})
    request = control.wait()
    if request is None:
        return
    os.umask(0o022)
    _easy_to_kill()
    privileges.adopt_orphans()
    jail = Jail(JailSpec.from_json(request))
    try:
        jail.prepare()
    except OSError as error:
        control.send({"failed": str(error)})
        return
    _hand_over(jail, way_fd)
    # The socket is created before the fork, so that the end of a child that fails at once is noticed.
    wakeup = _wake_on_child()
    own_pid = os.getpid()
    child = os.fork()
    if child == 0:
        control.close()
        _close_wakeup(wakeup)
        _first_process(jail, protocol_fd) if jail.isolated else _worker(jail, protocol_fd, own_pid)
    if not jail.isolated:
        _lead(child)
        control.send({"group": child})
    _let_go(protocol_fd)
    UsageWatch(control, jail, child, wakeup).run()


def _first_process(jail: Jail, protocol_fd: int) -> NoReturn:
    """Run process 1 of the namespace: starts the worker, forwards interrupts, reaps orphans, and ends when the
    worker ends."""
    privileges.die_with_parent(signal.SIGKILL)
    _default_signals()
    try:
        jail.isolate()
    except OSError as error:
        _refuse_mounts(jail, protocol_fd, error)
    child = os.fork()
    if child == 0:
        _worker(jail, protocol_fd)
    _let_go(protocol_fd)
    signal.signal(signal.SIGINT, lambda number, frame: os.kill(child, signal.SIGINT))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _lead(pid: int) -> None:
    """Move process ``pid`` to a process group of its own. Everything that it starts stays in this group and can be
    killed at once."""
    try:
        os.setpgid(pid, 0)
    except OSError:
        return  # both sides of the fork make this call, and the other was first; or the process has ended


def _hand_over(jail: Jail, way_fd: int) -> None:
    """Send the socket on which the proxy listens to the server, if the jail has one."""
    if way_fd < 0:
        return
    with socket.socket(fileno=way_fd) as way:
        if jail.listener is not None:
            socket.send_fds(way, [b"."], [jail.listener.fileno()])
            jail.listener.close()


def _worker(jail: Jail, protocol_fd: int, parent: int = 0) -> NoReturn:
    """Apply the last layers of the jail to this process, and run the agent's code in it until the server ends it."""
    _default_signals()
    if not jail.isolated:
        _lead(0)
    if jail.isolated:
        try:
            mounts.leave_sources()
        except OSError as error:
            _refuse_mounts(jail, protocol_fd, error)
    missing = jail.confine(parent)
    if missing:
        reasons = "; ".join(f"{name}: {jail.layers.get(name, {}).get('detail', 'absent')}" for name in missing)
        code_worker.refuse(protocol_fd, reasons, jail.layers)
        os._exit(REFUSED)
    for name in [name for name in sys.modules if name.split(".")[0] == "agent_kernel"]:
        del sys.modules[name]  # this module is an empty replacement of the real package, which user code may import
    os.environ.update(jail.spec.env)
    if jail.network == "full":
        _packages(jail.spec.workdir)
    code_worker.main(protocol_fd, jail.spec.workdir, dict(jail.spec.limits), jail.layers)
    os._exit(0)


def _packages(workdir: str) -> None:
    """Configure pip for the proxy, and for a target directory that this session's code can import from."""
    place = os.path.join(workdir, ".packages")
    os.makedirs(place, exist_ok=True)
    os.environ.update(loopback.variables(), PIP_TARGET=place, PYTHONPATH=place)
    sys.path.append(place)


class Control:
    """Sends and receives lines of JSON over the control channel."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._rest = b""

    def send(self, body: dict[str, Any]) -> None:
        try:
            self.channel.sendall(json.dumps(body).encode() + b"\n")
        except OSError:
            return  # the server has ended; the next read returns end of file

    def wait(self) -> dict[str, Any] | None:
        """Wait for the next line and return it. Returns None at the end of file."""
        while b"\n" not in self._rest:
            data = self.channel.recv(65536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        body: dict[str, Any] = json.loads(line)
        return body

    def ready(self) -> Iterator[dict[str, Any] | None]:
        """Yield the lines that have arrived. Called when the channel is readable."""
        yield self.wait()
        while b"\n" in self._rest:
            yield self.wait()

    def close(self) -> None:
        self.channel.close()


class UsageWatch:
    """Runs the supervisor's loop after the fork: checks the session's resource use, obeys the server, and reports the
    end of the worker."""

    def __init__(self, control: Control, jail: Jail, child: int, wakeup: socket.socket) -> None:
        self.control, self.jail, self.child, self.wakeup = control, jail, child, wakeup
        self._why = ""
        self._most_free = 0

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.control.channel, selectors.EVENT_READ)
            selector.register(self.wakeup, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(self._look())]
                if self.wakeup in ready:
                    self.wakeup.recv(4096)
                    ended = _collect(self.child)
                    if ended is not None:
                        _end_all()
                        # Process 1 reports a signal as a shell does: 128 + number of the signal.
                        by_signal = self.jail.isolated and ended > 128
                        return self.control.send({"exit": 128 - ended if by_signal else ended, "why": self._why})
                if self.control.channel in ready and not self._obey():
                    self._stop()
                    return _end_all()

    def _look(self) -> float:
        """Check the resource use of the session, and end the session if it uses too much. Returns seconds until the
        next check."""
        limits, counted = self.jail.spec.limits, self.jail.spec.counted
        if self._why:
            return LOOK_S
        began = time.monotonic()
        used = measure_usage(os.getpid(), everybody=self.jail.isolated)
        check = check_usage(used, limits, counted)
        self._why = check.too_much or self._disk(limits["disk_reserve_mb"])
        if self._why:
            self._stop()
        soonest = max(LOOK_AGAIN_S, OF_THEIR_TIME * (time.monotonic() - began), check.left_mb / FASTEST_MB_S)
        return min(LOOK_CLOSELY_S if 8 * used.tasks > limits["procs"] else LOOK_S, soonest)

    def _disk(self, reserve_mb: int) -> str:
        """Return why the session uses too much disk space, or "". The server checks the disk only during runs, so this
        check also covers the time between them.

        The session must leave half of ``reserve_mb`` free, or half of the largest free space seen so far if that is
        less. So a disk that was nearly full before does not end the session."""
        try:
            free = shutil.disk_usage(self.jail.spec.workdir).free >> 20
        except OSError:
            return ""
        self._most_free = max(self._most_free, free)
        return (
            f"it left less than {reserve_mb} MB free on the disk"
            if free < min(reserve_mb, self._most_free) // 2
            else ""
        )

    def _stop(self) -> None:
        """Kill all processes of the session in one step. If there is a process namespace, the end of its process 1 ends
        the others; otherwise the process group is killed."""
        (os.kill if self.jail.isolated else os.killpg)(self.child, signal.SIGKILL)

    def _obey(self) -> bool:
        for request in self.control.ready():
            if request is None:
                return False
            if request["do"] == "interrupt":
                os.kill(self.child, signal.SIGINT)
            elif request["do"] == "refresh":
                self._refresh()
        return True

    def _refresh(self) -> None:
        try:
            self.jail.refresh()
        except OSError as error:
            self.control.send({"refreshed": False, "reason": str(error)})
        else:
            self.control.send({"refreshed": True})


def _collect(child: int) -> int | None:
    """Reap ended processes. Returns the exit code of ``child`` if it is among them."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)


def _end_all() -> None:
    """Kill every descendant. Orphans become our children, so this ends when no child is left."""
    while True:
        # If /proc is that of the jail, this lists no children. The jail's processes end with process 1, which is our
        # only child.
        for pid in children_of("self"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _wake_on_child() -> socket.socket:
    """Return a socket that becomes readable whenever a child ends."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    _KEPT.append(writer)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


_KEPT: list[socket.socket] = []


def _close_wakeup(reader: socket.socket) -> None:
    """Close this child's copies of the wakeup sockets. Otherwise the child could read the bytes that tell the
    supervisor about ended processes."""
    signal.set_wakeup_fd(-1)
    reader.close()
    while _KEPT:
        _KEPT.pop().close()


def _nothing(number: int, frame: FrameType | None) -> None: ...


def _refuse_mounts(jail: Jail, protocol_fd: int, error: OSError) -> NoReturn:
    """Report that the directories of the jail could not be mounted, and exit."""
    jail.layers["mounts"] = {"required": False, "active": False, "detail": str(error)}
    code_worker.refuse(protocol_fd, f"mounts: {error}", jail.layers)
    os._exit(REFUSED)


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _let_go(protocol_fd: int) -> None:
    """Close this process's copies of the worker's channels, so that the server sees an end of file on them when the
    worker ends. Descriptors 1 and 2 become copies of standard input, which is /dev/null, because /dev/null cannot be
    opened by its name while the file tree is being switched."""
    os.close(protocol_fd)
    for fd in (1, 2):
        os.dup2(0, fd)


def _easy_to_kill() -> None:
    """Configure the system to kill the jail rather than the server when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("600")
    except OSError:
        return
