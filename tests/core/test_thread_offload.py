from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from agent_kernel.core.thread_offload import run_in_own_thread

WORD = contextvars.ContextVar("WORD", default="nothing")


async def test_a_call_runs_in_a_thread_with_its_name_and_context() -> None:
    WORD.set("something")
    found = await run_in_own_thread(lambda: (threading.current_thread().name, WORD.get()), "a call")
    assert found == ("a call", "something")


async def test_what_it_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_own_thread(lambda: 1 / 0, "a call")


async def test_an_exit_or_a_stop_iteration_in_a_thread_is_an_ordinary_error() -> None:
    with pytest.raises(RuntimeError, match="SystemExit: 2"):
        await run_in_own_thread(lambda: sys.exit(2), "a call")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_own_thread(lambda: next(iter(())), "a call")


async def test_who_is_cancelled_does_not_wait_for_the_thread() -> None:
    free = threading.Event()
    task = asyncio.create_task(run_in_own_thread(lambda: free.wait(60), "a call"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()


def test_a_thread_that_hangs_does_not_hold_the_end_of_the_process() -> None:
    code = """
import asyncio, threading
from agent_kernel.core.thread_offload import run_in_own_thread
async def main():
    asyncio.create_task(run_in_own_thread(threading.Event().wait, "hangs"))
    await asyncio.sleep(0.05)
asyncio.run(main())
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "ended\n"
