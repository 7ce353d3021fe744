"""Tests what a draft can and cannot do, in a fork of a real IPython."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.notebook.draft import jail

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

DRIVER = Path(__file__).with_name("driver.py")
ROOT = Path(__file__).parents[3]
ORDINARY = 61001
SETUP = """
import ctypes, mmap, os, random, signal, socket, subprocess, sys, threading, time
from pathlib import Path
import numpy as np
numbers = [1, 2, 3]
book = {'a': 1}
array = np.arange(5)
mapped = np.memmap('mapped.bin', mode='r+', shape=8, dtype='u1')
shared = mmap.mmap(-1, 4096)
shared[:4] = b'mine'
reader = open('words.txt')
writer = open('written.txt', 'w')
mine, theirs = socket.socketpair()
random.seed(7)
"""
REFUSED = {
    "write beside the notebook": "open('new.txt', 'w')",
    "write over a file": "open('words.txt', 'w')",
    "append to a file": "open('words.txt', 'a')",
    "remove a file": "os.remove('words.txt')",
    "rename a file": "os.rename('words.txt', 'other.txt')",
    "make a directory": "os.mkdir('folder')",
    "make a link": "os.symlink('words.txt', 'link')",
    "make a hard link": "os.link('words.txt', 'link')",
    "truncate": "os.truncate('words.txt', 0)",
    "write to /tmp": "open('/tmp/draft-was-here', 'w')",
    "read keys": "open(os.path.expanduser('~/.ssh/id_rsa')).read()",
    "read a file elsewhere": "open(os.path.expanduser('~/letter.txt')).read()",
    "read what other programs keep for a while": "os.listdir('/tmp')",
    "read a sidecar": "open('rain.agent.json').read()",
    "read a dot file": "open('.env').read()",
    "read a dot file of a directory": "open('sub/.env').read()",
    "list a dot directory": "os.listdir('sub/.git')",
    "read a file of a dot directory": "open('sub/.git/config').read()",
    "read a sidecar of a directory": "open('sub/rain.agent.json').read()",
    "read Jupyter's runtime": "open('runtime/kernel-1.json').read()",
    "read the environment it began with": "open('/proc/self/environ').read()",
    "read the kernel's environment": "open('/proc/PARENT/environ').read()",
    "write the kernel's memory": "open('/proc/PARENT/mem', 'r+b')",
    "a TCP socket": "socket.create_connection(('127.0.0.1', 9))",
    "a UDP socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a unix socket": "socket.socket(socket.AF_UNIX)",
    "a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "kill the kernel": "os.kill(PARENT, signal.SIGTERM)",
    "kill all": "os.kill(-1, signal.SIGKILL)",
    "use an open file": "reader.read()",
    "use an open socket": "mine.send(b'hello')",
    "ask the person": "input('your password: ')",
    "trace the kernel": "assert ctypes.CDLL(None, use_errno=True).ptrace(16, PARENT, 0, 0) == 0, 'Permission denied'",
    "new namespaces": "assert ctypes.CDLL(None).unshare(0x10000000) == 0, 'Operation not permitted'",
    "too much memory": "np.ones(1 << 33, dtype='u1')",
}
ERRORS: tuple[str, ...] = (
    "PermissionError",
    "Operation not permitted",
    "Permission denied",
    "NoFrontEnd",
    "Bad file descriptor",
)
ERRORS += ("MemoryError",)
WORKS = {
    "every variable": ("numbers[1] + book['a'] + int(array.sum())", "13"),
    "reading a file of the notebook": ("open('words.txt').read()", "some words"),
    "temporary files": ("import tempfile; tempfile.TemporaryFile('w').write('abc')", "3"),
    "programs": ("subprocess.run(['echo', 'hello'], capture_output=True, text=True).stdout", "hello"),
    "what programs print": ("os.system('echo from outside'); 5", "5"),
    "locks between processes": ("import multiprocessing\nwith multiprocessing.Lock():\n    print('locked')", "locked"),
    "shared memory of its own": ("open('/dev/shm/draft-was-here', 'w').write('abcd')", "4"),
    "threads": ("t = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()", "in a thread"),
    "await": ("import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')", "awaited"),
    "errors": ("1 / 0", "ZeroDivisionError"),
    "leaving": ("import sys; sys.exit(3)", "SystemExit"),
    "random as it will be": ("random.random()", "0.32383276483316237"),
    "logging": ("import logging; logging.warning('careful')", "careful"),
}
NEED_MOUNTS = ("locks between processes", "shared memory of its own")
LISTED = ("listing a directory in which something is hidden",)
WORKS |= {
    LISTED[0]: ("import glob\nsorted(glob.glob('*.txt')), sorted(os.listdir('sub'))", "(['words.txt', 'written.txt'],"),
    "a file beside one that is hidden": ("open('sub/rain.csv').read()", "some words"),
}
CHANGES = """
numbers.append(4); book['b'] = 2; array[:] = 0; made = 1; os.environ['DRAFT'] = '1'; os.chdir('/')
mapped[:] = 7; shared[:4] = b'evil'; writer.close
"""


def home_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}-home")


def run_in_draft(
    directory: Path, *codes: str, setup: str = "", live: tuple[str, ...] = (), user: int | None = None, **more: Any
) -> dict[str, Any]:
    asked = {"setup": setup, "codes": codes, "live": live, **more}
    env = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(home_of(directory)), "IPYTHONDIR": str(directory / "ip")}
    env |= {"JUPYTER_RUNTIME_DIR": str(directory / "runtime"), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [*as_user(user), sys.executable, str(DRIVER)],
        input=json.dumps(asked),
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def as_user(user: int | None) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []


def an_ordinary_user_can_run_this() -> bool:
    """Return False if the interpreter is in a directory that only root may enter."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    command = [*as_user(ORDINARY), sys.executable, "-c", "import IPython, numpy"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


IDENTITIES = [None, *([ORDINARY] if an_ordinary_user_can_run_this() else [])]


@pytest.fixture(scope="module", params=IDENTITIES, ids=lambda user: "ordinary user" if user else "this user")
def user(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


@pytest.fixture(scope="module")
def place(user: int | None) -> Iterator[Path]:
    """A work directory outside of pytest's own, which only its owner may enter."""
    with tempfile.TemporaryDirectory(prefix="draft-test-") as made:
        Path(made).chmod(0o755)
        yield fill_directory(Path(made) / "notebooks", user)


def fill_directory(directory: Path, user: int | None) -> Path:
    home = home_of(directory)
    here = [directory / name for name in ("words.txt", "rain.agent.json", ".env", "runtime/kernel-1.json")]
    here += [directory / "sub" / name for name in (".env", ".git/config", "rain.agent.json", "rain.csv")]
    for path in (*here, home / ".ssh" / "id_rsa", home / "letter.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("some words")
    (directory / "mapped.bin").write_bytes(bytes(8))
    for path in (directory, *directory.rglob("*"), home, *home.rglob("*")):
        os.chown(path, user or os.getuid(), user or os.getgid())
    return directory


@pytest.fixture(scope="module")
def tried(place: Path, user: int | None) -> dict[str, Any]:
    codes = [*REFUSED.values(), *(code for code, _ in WORKS.values()), CHANGES]
    live: tuple[str, ...] = (
        "numbers, book, array.tolist(), bytes(mapped), shared[:4], 'made' in globals()",
        "reader.read()",
    )
    live += ("os.environ.get('DRAFT'), os.getcwd() == str(Path('words.txt').resolve().parent)", "random.random()")
    before = sorted(os.listdir(place))
    told = run_in_draft(place, *codes, setup=SETUP, live=live, user=user)
    told["files"] = sorted({*os.listdir(place)} - {*before, "ip", "written.txt"})
    return told


@pytest.mark.parametrize("what", REFUSED)
def test_it_may_not(tried: dict[str, Any], what: str) -> None:
    status, text, *_ = tried["ran"][list(REFUSED).index(what)]
    assert status == "error", text
    assert any(error in text for error in ERRORS), text


def mounts_are_possible(user: int | None) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*as_user(user), "unshare", *(["--user"] if user or os.getuid() else []), "--mount", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("what", WORKS)
def test_it_has(tried: dict[str, Any], what: str, user: int | None) -> None:
    if what in (*NEED_MOUNTS, *LISTED) and not mounts_are_possible(user):
        pytest.skip("this system allows no mounts, so a draft has no shared memory")
    _, text, printed, _ = tried["ran"][len(REFUSED) + list(WORKS).index(what)]
    assert WORKS[what][1] in text + printed


def test_nothing_that_it_changes_is_changed_in_the_kernel(tried: dict[str, Any]) -> None:
    assert tried["ran"][-1][0] == "success"
    variables, file, surroundings, chance = tried["live"]
    assert (
        variables
        == "([1, 2, 3], {'a': 1}, [0, 1, 2, 3, 4], b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00', b'mine', False)"
    )
    assert file == "'some words'", "a shared offset would have moved"
    assert surroundings == "(None, True)"
    assert chance == "0.32383276483316237"
    assert tried["files"] == []
    assert not Path("/tmp/draft-was-here").exists()
    assert not Path("/dev/shm/draft-was-here").exists()
    assert (tried["unsafe"], tried["left"]) == ("", [])


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    daemon = "import subprocess, sys; subprocess.Popen(['sleep', '314159'], start_new_session=True); print('started')"
    told = run_in_draft(tmp_path, daemon)
    assert told["ran"][0][0] == "success"
    assert told["left"] == []
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 314159" not in listed


def test_code_that_python_can_not_read_is_a_failure_that_it_survives(tmp_path: Path) -> None:
    told = run_in_draft(tmp_path, "x = 5", "def f():\n        a = 1\n    b = 2\n", "x")
    assert [status for status, *_ in told["ran"]] == ["success", "error", "success"]
    assert "unindent does not match" in told["ran"][1][1]
    assert "5" in told["ran"][2][1], "it is the same draft"


def test_code_that_takes_too_long_is_stopped_and_only_earlier_variables_stay(tmp_path: Path) -> None:
    """What a call made until it was stopped is half done, and dropped as that of any other call that failed."""
    slow = "import time\nx = 6\nprint('begun', flush=True)\ntime.sleep(60)"
    told = run_in_draft(tmp_path, "x = 5", slow, "x", timeout_s=4.0)
    assert told["ran"][1][0] == "timeout"
    assert "begun" in told["ran"][1][2]
    assert told["ran"][2][0] == "success"
    assert "5" in told["ran"][2][1]


def test_code_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"
    told = run_in_draft(tmp_path, "x = 5", stubborn, "x", timeout_s=4.0)
    assert told["ran"][1][:2] == ["ended", "it took longer than 4 s and did not stop"]
    assert told["ran"][2][:2] == ["success", "Out[0]: 5"], "it is the draft from before that code"
    assert told["left"] == []


def test_a_lock_of_a_thread_that_was_not_copied_is_found_to_hang(place: Path, user: int | None) -> None:
    setup = (
        "import threading, time\nlock = threading.Lock()\n"
        "def hold():\n    with lock:\n        time.sleep(300)\n"
        "threading.Thread(target=hold, daemon=True).start()\nwhile not lock.locked(): time.sleep(0.01)"
    )
    told = run_in_draft(place, "lock.acquire()", setup=setup, timeout_s=60.0, hang_s=2.0, user=user)
    assert told["ran"][0][:2] == ["ended", "it hung: it waits for a thread of your kernel, which a copy does not have"]


def test_an_interrupt_of_which_only_the_flag_is_left_ends_it(tmp_path: Path) -> None:
    told = run_in_draft(tmp_path, "import time\nprint('begun')\ntime.sleep(60)", timeout_s=60.0, stop_at="begun")
    assert told["ran"][0][:2] == ["interrupted", ""]
    assert told["left"] == []


def test_sleeping_is_no_hanging(tmp_path: Path) -> None:
    threads = "import threading, time\nt = threading.Thread(target=time.sleep, args=(4,))\nt.start(); t.join()\n'slept'"
    assert run_in_draft(tmp_path, threads, timeout_s=60.0, hang_s=1.5)["ran"][0][0] == "success"


def test_a_crash_ends_the_call_alone(tmp_path: Path) -> None:
    crashes = "import os; x = 0; os.abort()", "import os; x = 0; os._exit(0)"
    told = run_in_draft(tmp_path, "x = 21", *crashes, "2 * x", live=("1 + 1",))
    assert told["ran"][1][:2] == ["ended", "it was ended by SIGABRT"]
    assert told["ran"][2][:2] == ["ended", "it ended itself"]
    assert "42" in told["ran"][3][1]
    assert told["live"] == ["2"]


CHAIN = """
import io, random
import pandas as pd
df = pd.DataFrame({'a': [1, 2]})
rows = open('words.txt')
random.seed(3)
calls = []
"""


def test_a_failed_call_leaves_nothing_of_itself_in_the_draft(place: Path, user: int | None) -> None:
    half_done = (
        "df.rename(columns={'a': 'b'}, inplace=True)\ncalls.append('half')\nmade = rows.read()\nrandom.random()\n"
        "import os, subprocess\nos.environ['HALF'] = '1'\nos.chdir('/')\nsubprocess.Popen(['sleep', '27182'])\ndf.a"
    )
    look = (
        "import os\n"
        "print(list(df), calls, 'made' in globals(), rows.read(), random.random(), os.getenv('HALF'), os.getcwd())"
    )
    told = run_in_draft(place, CHAIN, "calls.append(1)", half_done, look, half_done, look, user=user)
    assert [status for status, *_ in told["ran"]] == ["success", "success", "error", "success", "error", "success"]
    assert told["ran"][3][1] == f"['a'] [1] False some words 0.23796462709189137 None {place}"
    assert told["ran"][5][1].startswith("['a'] [1] False  0."), "the file was read to its end by then"
    assert told["left"] == []
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 27182" not in listed


def test_programs_that_are_tried_leave_nothing_of_themselves_whether_they_fail_or_not(
    place: Path, user: int | None
) -> None:
    tries = [
        "df['c'] = 0\nrandom.random()\nmade = [1, 2]\nprint('tried')",
        "calls.append(2)\nmade = [1, 2]\nother = 3",
        "del df\n1 / 0",
        "import os\nos._exit(3)",
        "import subprocess\nsubprocess.Popen(['sleep', '27183'])\nmade = (x for x in 'ab')",
    ]
    look = "print(list(df), calls, random.random(), 'made' in globals(), 'other' in globals())"
    told = run_in_draft(place, CHAIN, "calls.append(1)", *(f"# try\n{code}" for code in tries), look, look, user=user)
    first, second, failed, ended, last = told["ran"][2:7]
    assert (first[0], first[1], first[2]) == ("success", "tried", "tried\n")
    assert first[4]["made"] == second[4]["made"] != ""
    assert set(first[4]) == {"df", "made"}
    assert set(second[4]) == {"calls", "made"}
    assert (failed[0], ended[:2], last[4]) == ("error", ["ended", "it ended itself"], {"made": ""})
    assert told["ran"][7][1] == "['a'] [1] 0.23796462709189137 False False"
    assert told["left"] == []
    assert told["processes"] <= 3
    assert "sleep 27183" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_many_calls_in_a_chain_of_bounded_depth(place: Path, user: int | None) -> None:
    """Calls that succeed build on each other, calls that fail leave nothing, and no process is left of either."""
    codes = ["n = 0", *["n += 1", "n += 100; n / 0", "import os; n += 100; os._exit(1)"] * 20, "n"]
    told = run_in_draft(place, *codes, user=user)
    assert told["ran"][-1][1] == "Out[0]: 20"
    assert told["processes"] <= 3
    assert told["left"] == []


def test_a_chain_of_calls_is_held_as_one_draft(place: Path, user: int | None) -> None:
    """Its jail and its limits do not begin anew when the fork from before a failed call takes over."""
    failing = "1 / 0"
    attempts = [
        REFUSED[name] for name in ("write beside the notebook", "read keys", "a unix socket", "too much memory")
    ]
    grow = "import numpy as np\nheld = [*globals().get('held', []), np.zeros(1500 << 20, dtype='u1')]"
    told = run_in_draft(
        place, *[code for attempt in attempts for code in (failing, attempt)], grow, failing, grow, failing, grow,
        setup=SETUP, user=user,
    )  # fmt: skip
    ran = told["ran"]
    assert [status for status, *_ in ran] == ["error"] * 8 + ["success", "error", "success", "error", "error"]
    assert all(any(error in ran[index][1] for error in ERRORS) for index in (1, 3, 5, 7, 12))


def test_threads_of_an_earlier_call_are_there_for_the_next(place: Path, user: int | None) -> None:
    """A call that succeeds goes on in its own process, where its threads are."""
    begin = (
        "import queue, threading\nasked, answers = queue.Queue(), queue.Queue()\n"
        "threading.Thread(target=lambda: [answers.put(2 * asked.get()) for _ in range(9)], daemon=True).start()"
    )
    told = run_in_draft(place, begin, "asked.put(21)\nanswers.get(timeout=20)", user=user)
    assert told["ran"][1][1] == "Out[0]: 42"


def test_a_draft_that_has_filled_its_directory_begins_anew(tmp_path: Path) -> None:
    """Files are not taken back with the call that wrote them."""
    fill = (
        "import tempfile, time\nfor _ in range(5):\n    file = tempfile.NamedTemporaryFile(delete=False)\n"
        "    file.truncate(500 << 20)\ntime.sleep(60)"
    )
    told = run_in_draft(tmp_path, "x = 5", fill, "'x' in globals()", "import time\ntime.sleep(2)", timeout_s=60.0)
    assert told["ran"][1][:2] == ["ended", "it wrote more than 2048 MB"]
    assert told["ran"][2][1] == "Out[0]: False"
    assert told["ran"][3][0] == "success"


def test_the_memory_of_all_processes_of_a_draft_is_bounded_together(place: Path, user: int | None) -> None:
    several = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        held = bytearray(os.urandom(1 << 20) * 150)\n        time.sleep(60)\n        os._exit(0)\n"
        "time.sleep(60)"
    )
    told = run_in_draft(place, "x = 5", several, "x", timeout_s=60.0, memory_mb=600, user=user)
    assert told["ran"][1][:2] == ["ended", "its processes used more than 600 MB of memory together"]
    assert told["ran"][2][1] == "Out[0]: 5"
    assert told["left"] == []


def test_a_flood_of_output_and_a_broken_frame_harm_nobody(tmp_path: Path) -> None:
    flood = "for _ in range(300):\n    print('x' * 100_000)"
    forged = (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'd' + b'\\xff' * 100)\n"
        "    except OSError:\n        pass"
    )
    told = run_in_draft(tmp_path, flood, forged, "3 * 14")
    assert told["ran"][0][0] == "success"
    assert len(told["ran"][0][2]) == 300 * 100_001
    assert told["ran"][1][0] == "ended"
    assert "cannot be read" in told["ran"][1][1]
    assert "42" in told["ran"][2][1]


def test_a_fork_bomb_is_ended(tmp_path: Path) -> None:
    bomb = (
        "import os, time\nfor _ in range(400):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n"
        "time.sleep(60)"
    )
    told = run_in_draft(tmp_path, bomb, timeout_s=30.0)
    assert told["ran"][0][0] in ("ended", "error")
    assert told["left"] == []


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ("import sys, types; sys.modules['jax'] = types.ModuleType('jax')", "loaded jax"),
        ("import sys, types; m = types.ModuleType('t'); m._initialized = True; sys.modules['torch.cuda'] = m", "CUDA"),
        (
            "import threading, time\nfor _ in range(40):\n"
            "    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            "threads",
        ),
    ],
)
def test_a_kernel_that_can_not_be_copied_says_why(tmp_path: Path, setup: str, reason: str) -> None:
    assert reason in run_in_draft(tmp_path, setup=setup)["unsafe"]


def test_what_a_killed_kernel_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    for name in ("agent-draft-4194305-x", f"agent-draft-{os.getpid()}-x", "agent-drafts"):
        (tmp_path / name).mkdir()
    with unittest.mock.patch.dict(os.environ, env):
        run_in_draft(tmp_path, "1")
    left = {path.name for path in tmp_path.glob("agent-draft*")}
    assert left == {f"agent-draft-{os.getpid()}-x", "agent-drafts"}


def test_a_draft_ends_with_its_kernel_however_that_ends(tmp_path: Path) -> None:
    setup = "import os, signal, threading\nthreading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()"
    with pytest.raises(AssertionError):
        run_in_draft(
            tmp_path, "import time\nopen(__import__('tempfile').mktemp(), 'w')\ntime.sleep(271828)", setup=setup
        )
    deadline = time.monotonic() + 30
    while str(DRIVER) in (last_words := _last_words_of_processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert str(DRIVER) not in last_words


def _last_words_of_processes() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines() if line.split()]


START_LATE = """
from IPython.core.interactiveshell import InteractiveShell
from agent_kernel.notebook.draft import draft, draft_process
drafts = draft.Drafts(InteractiveShell.instance())
draft_process.START_S, usual = 0, draft_process.START_S
print(drafts.unfit())
draft_process.START_S = usual
print(repr(drafts.unfit()))
drafts.drop()
"""


def test_a_copy_that_started_too_late_is_tried_again_for_the_next_turn() -> None:
    done = subprocess.run([sys.executable, "-c", START_LATE], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["the copy of the kernel did not start", "''"]
