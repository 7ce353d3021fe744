"""Tests how code behaves inside the sandbox: as in a notebook cell, with its errors and figures as a user would see
them.
"""

from __future__ import annotations

import ast
import struct
import sys
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.sandbox.conftest import Make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")


def size(media: Media) -> tuple[int, int]:
    assert media.data is not None
    assert media.data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", media.data[16:24])
    return int(width), int(height)


async def test_an_error_shows_the_frames_and_lines_of_the_code_itself(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "def half(x):\n    return x / 0")
    result = await sandbox.run(KEY, "a = 1\nhalf(a)")
    assert result.status == "error"
    lines = [line.strip() for line in str(result.error).splitlines() if "^" not in line]
    assert lines == [
        "Traceback (most recent call last):",
        'File "<run 2>", line 2, in <module>',
        "half(a)",
        'File "<run 1>", line 2, in half',
        "return x / 0",
        "ZeroDivisionError: division by zero",
    ]


async def test_an_error_in_a_library_shows_no_frames_of_the_library(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "json.loads('{')")
    assert "json.loads('{')" in str(result.error)
    assert "JSONDecodeError" in str(result.error)
    assert "decoder.py" not in str(result.error)


async def test_an_error_in_a_module_of_the_work_directory_shows_its_line(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "open('mine.py', 'w').write('def f():\\n    return missing\\n')")
    result = await sandbox.run(KEY, "import mine\nmine.f()")
    assert "return missing" in str(result.error)


async def test_code_that_does_not_parse_shows_where(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "x = (1,\ny = 2")
    assert "SyntaxError" in str(result.error)
    assert "line 1" in str(result.error)


async def test_endless_recursion_is_an_error_and_the_session_goes_on(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "def f(): return f()\nf()")
    assert "RecursionError" in str(result.error)
    assert (await sandbox.run(KEY, "1 + 1")).value == "2"


async def test_exit_leaves_the_session_alive(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "x = 1")
    assert (await sandbox.run(KEY, "import sys; sys.exit(2)")).status == "error"
    assert (await sandbox.run(KEY, "exit()")).status == "success"
    assert (await sandbox.run(KEY, "x")).value == "1"


async def test_input_is_refused_with_the_reason(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "input('name? ')")
    assert "nobody can type an answer" in str(result.error)


@pytest.mark.parametrize(
    "code",
    ["np.arange(3).sum()", "pd.Series([1]).sum()", "math.pi", "json.dumps(1)", "re.escape('a')", "os.getcwd()", "csv",
     "datetime.date(2020, 1, 1)", "def f():\n    return math.pi\nf()", "(lambda: math.pi)()"],
)  # fmt: skip
async def test_usual_names_need_no_import(sandbox: LinuxSandbox, code: str) -> None:
    result = await sandbox.run(KEY, code)
    assert (result.status, result.error) == ("success", None)


async def test_a_name_that_the_code_binds_itself_is_its_own(sandbox: LinuxSandbox) -> None:
    assert (await sandbox.run(KEY, "re = 5\nre")).value == "5"
    assert (await sandbox.run(KEY, "re + 1")).value == "6"
    assert (await sandbox.run(KEY, "from datetime import datetime\ndatetime(2020, 1, 1).year")).value == "2020"


async def test_pandas_is_not_loaded_before_it_is_used(sandbox: LinuxSandbox) -> None:
    assert (await sandbox.run(KEY, "import sys\n'pandas' in sys.modules, 'numpy' in sys.modules")).value == (
        "(False, False)"
    )


async def test_a_data_frame_is_shown_short_and_wide(sandbox: LinuxSandbox) -> None:
    code = "pd.DataFrame({f'column_{i}': range(500) for i in range(9)})"
    value = str((await sandbox.run(KEY, code)).value)
    assert "column_8" in value.splitlines()[0]
    assert value.count("\n") < 40
    assert "500 rows x 9 columns" in value


async def test_a_long_value_is_cut_and_says_so(make: Make) -> None:
    value = str((await make(SandboxPolicy(warm=0, value_chars=100)).run(KEY, "'z' * 100_000")).value)
    assert len(value) < 200
    assert "characters left out" in value


async def test_open_figures_are_shown_at_the_end_also_when_the_code_fails(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "plt.plot([1, 2])\nplt.figure()\nplt.plot([2, 1])\n1 / 0")
    assert result.status == "error"
    assert len(result.media) == 2
    assert all(300 < side < 800 for media in result.media for side in size(media))
    assert (await sandbox.run(KEY, "plt.get_fignums()")).value == "[]"


async def test_show_hands_over_what_was_drawn_so_far(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "plt.plot([1])\nplt.show()\nplt.plot([2])\nplt.show()")
    assert (len(result.media), result.stderr, result.error) == (2, "", None)


async def test_a_backend_chosen_by_the_code_loses_no_figure(sandbox: LinuxSandbox) -> None:
    code = "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as p\np.plot([1])\np.show()"
    result = await sandbox.run(KEY, code)
    assert (len(result.media), result.stderr) == (1, "")


async def test_display_shows_values_and_figures(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "f, a = plt.subplots()\ndisplay(f)\ndisplay({'a': 1})")
    assert (len(result.media), result.stdout) == (1, "{'a': 1}\n")


async def test_an_image_as_the_last_value_is_shown(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "import PIL.Image\nPIL.Image.new('RGB', (7, 9))")
    assert [size(media) for media in result.media] == [(7, 9)]


async def test_more_figures_than_the_limit_are_left_out_and_said(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, figures=2))
    result = await sandbox.run(KEY, "for i in range(4): plt.plot([i]); plt.show()")
    assert len(result.media) == 2
    assert "not shown" in result.stderr


async def test_a_figure_that_can_not_be_drawn_is_told_and_fails_nothing(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "plt.title('$\\\\badmacro$')\n5")
    assert (result.status, result.value) == ("success", "5")
    assert "could not be drawn" in result.stderr


async def test_classes_of_the_session_can_be_pickled_and_be_data_classes(sandbox: LinuxSandbox) -> None:
    code = (
        "import pickle\nfrom dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n"
        "pickle.loads(pickle.dumps(Point(3))), Point.__module__"
    )
    assert (await sandbox.run(KEY, code)).value == "(Point(x=3), '__main__')"


async def test_processes_and_threads_of_the_standard_library_work(sandbox: LinuxSandbox) -> None:
    code = (
        "import multiprocessing, threading, tempfile, asyncio\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "q = multiprocessing.get_context('fork').SimpleQueue(); q.put(1)\n"
        "asyncio.run(asyncio.sleep(0)), q.get(), tempfile.mkdtemp() != ''"
    )
    result = await sandbox.run(KEY, code)
    assert (result.error, result.value, result.stdout) == (None, "(None, 1, True)", "thread\n")


async def test_a_thread_left_behind_does_not_disturb_later_runs(sandbox: LinuxSandbox) -> None:
    code = "import threading, time\ndef late():\n    time.sleep(0.3); print('late'); plt.figure(); plt.show()\n"
    await sandbox.run(KEY, code + "threading.Thread(target=late).start()")
    result = await sandbox.run(KEY, "time.sleep(1.5)\n'fine'")
    assert (result.value, result.lost) == ("'fine'", "")


async def test_broken_streams_are_whole_again_in_the_next_run(sandbox: LinuxSandbox) -> None:
    await sandbox.run(KEY, "import sys\nsys.stdout.close()\nos.close(1)\nsys.stderr = None")
    assert (await sandbox.run(KEY, "print('back')")).stdout == "back\n"


async def test_a_value_whose_repr_fails_is_an_error_of_the_code(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "class Bad:\n    def __repr__(self): raise ValueError('no')\nBad()")
    assert "ValueError: no" in str(result.error)


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        (
            "'<style>th {}</style><table><tr><th>a</th><th>b</th></tr><tr><td>41</td><td>x &lt; y</td></tr></table>'",
            "a\tb\n41\tx < y",
        ),
        ("'<script>x</script>'", "<Only object at 0x"),
        ("1 / 0", "<Only object at 0x"),
        ("None", "<Only object at 0x"),
    ],
)
async def test_a_value_that_has_only_html_is_shown_as_its_text(sandbox: LinuxSandbox, html: str, shown: str) -> None:
    code = f"class Only:\n    __module__ = 'builtins'\n    def _repr_html_(self): return {html}\nOnly()"
    value = str((await sandbox.run(KEY, code)).value)
    assert value.replace("builtins.", "").startswith(shown)
    assert value == shown or " object at 0x" in value


async def test_text_that_is_no_unicode_does_not_break_the_result(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "os.write(1, bytes([255, 10]))\nprint('\\ud800')\n'\\ud800'")
    result.stdout.encode()
    str(result.value).encode()
    assert result.status == "success"


def test_the_jailed_side_uses_the_standard_library_only() -> None:
    ours = Path(__file__).parents[3] / "agent_kernel"
    todo, seen = ["sandbox/worker/supervisor"], set[str]()
    while todo:
        name = todo.pop()
        seen.add(name)
        for node in ast.walk(ast.parse((ours / f"{name}.py").read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            for module in modules:
                parts = module.split(".")
                if parts[:4] == ["agent_kernel", "core", "wire", "framing"]:
                    todo += {"core/wire/framing"} - seen - set(todo)
                elif parts[:2] == ["agent_kernel", "sandbox"]:
                    todo += {"/".join(parts[1:4])} - seen - set(todo)
                else:
                    assert parts[0] in sys.stdlib_module_names, f"{name} imports {module}"
    names = ("jail/jail", "jail/landlock", "jail/seccomp", "worker/code_worker")
    assert {"core/wire/framing", *(f"sandbox/{name}" for name in names)} <= seen
