from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.memory import MemoryStore
from jupyter_ext.notebooks.bindings import Notebooks, is_notebook, new_session_title


class Documents:
    """A stand-in for Jupyter's session manager."""

    def __init__(self, **kernels: str) -> None:
        self.kernels = kernels
        self.kind = "notebook"

    async def list_sessions(self) -> list[dict[str, Any]]:
        return [{"path": path, "type": self.kind, "kernel": {"id": id}} for id, path in self.kernels.items()]


def desk(**kernels: str) -> Notebooks:
    return Notebooks(MemoryStore(), Documents(**kernels), "/root")


async def test_a_kernel_is_placed_at_its_notebook_or_at_itself() -> None:
    notebooks = desk(k1="dir/a.ipynb")
    assert await notebooks.place("k1") == "dir/a.ipynb"
    assert await notebooks.place("k2") == "kernel:k2"


async def test_a_console_is_no_notebook() -> None:
    documents = Documents(k1="a.ipynb")
    documents.kind = "console"
    assert await Notebooks(MemoryStore(), documents, "/root").place("k1") == "kernel:k1"


@pytest.mark.parametrize(
    "path", ["../a.ipynb", "a/../../b.ipynb", "a.txt", "", "a//b.ipynb", "a\\..\\b.ipynb", "kernel:k1"]
)
async def test_what_names_no_notebook_below_the_root_is_no_place_for_files(path: str) -> None:
    assert not is_notebook(path)
    assert await desk(k1=path).place("k1") == "kernel:k1"


async def test_two_cells_that_start_together_share_the_new_session() -> None:
    notebooks = desk()
    made = await asyncio.gather(*(notebooks.ensure_session("ns", "a.ipynb") for _ in range(5)))
    assert len({key for key, _ in made}) == 1
    assert sorted(created for _, created in made) == [False, False, False, False, True]


async def test_a_rename_takes_the_session_along_also_when_the_client_tells_jupyter_late() -> None:
    notebooks = desk(k1="a.ipynb", k2="dir/b.ipynb")
    first, _ = await notebooks.ensure_session("ns", "a.ipynb")
    second, _ = await notebooks.ensure_session("ns", "dir/b.ipynb")
    await notebooks.on_renamed("a.ipynb", "c.ipynb")
    await notebooks.on_renamed("dir", "other")
    assert await notebooks.place("k1") == "c.ipynb"
    assert await notebooks.place("k2") == "other/b.ipynb"
    assert await notebooks.bound_session("ns", "c.ipynb") == first
    assert await notebooks.bound_session("ns", "other/b.ipynb") == second
    assert await notebooks.bound_session("ns", "a.ipynb") is None


async def test_the_title_of_a_session_is_the_name_of_its_notebook_until_the_user_renames_it() -> None:
    store = MemoryStore()
    notebooks = Notebooks(store, Documents(), "/root")
    titled: list[SessionKey] = []
    notebooks.on_title = titled.append
    key, _ = await notebooks.ensure_session("ns", "Untitled.ipynb")
    for old, new, title in [
        ("Untitled.ipynb", "rain.ipynb", "rain"),
        ("rain.ipynb", "dir/rain.ipynb", "rain"),
        ("dir/rain.ipynb", "snow.ipynb", "My rain"),
    ]:
        if title == "My rain":
            await store.rename(key, title)
        await notebooks.on_renamed(old, new)
        await notebooks.follow_name("ns", old, new)
        session = await store.info(key)
        assert session is not None
        assert session.title == title
    assert titled == [key]


async def test_a_rename_forth_and_back_ends_where_it_began() -> None:
    notebooks = desk(k1="a.ipynb")
    key, _ = await notebooks.ensure_session("ns", "a.ipynb")
    await notebooks.on_renamed("a.ipynb", "b.ipynb")
    await notebooks.on_renamed("b.ipynb", "a.ipynb")
    assert await notebooks.place("k1") == "a.ipynb"
    assert await notebooks.bound_session("ns", "a.ipynb") == key


async def test_a_new_file_under_an_old_name_is_another_notebook() -> None:
    notebooks = desk(k1="a.ipynb")
    await notebooks.ensure_session("ns", "a.ipynb")
    await notebooks.on_renamed("a.ipynb", "b.ipynb")
    notebooks.on_created("a.ipynb")
    assert await notebooks.place("k1") == "a.ipynb"
    assert await notebooks.bound_session("ns", "a.ipynb") is None


async def test_a_notebook_made_after_a_deletion_gets_no_old_session() -> None:
    notebooks = desk()
    key, _ = await notebooks.ensure_session("ns", "Untitled.ipynb")
    await notebooks.on_deleted("Untitled.ipynb")
    assert await notebooks.bound_session("ns", "Untitled.ipynb") is None
    assert await notebooks.paths(key) == []


async def test_paths_of_a_session_are_notebooks_only() -> None:
    notebooks = desk()
    key = SessionKey("ns", "s")
    for place in ("a.ipynb", "kernel:k1", "dir/b.ipynb"):
        await notebooks._store.create(key)
        await notebooks.bind(key, place)
    assert await notebooks.paths(key) == ["a.ipynb", "dir/b.ipynb"]


def test_a_session_is_called_like_its_notebook_or_like_what_was_said_first() -> None:
    assert new_session_title("dir/My analysis.ipynb", "x") == "My analysis"
    assert new_session_title("kernel:k1", "plot the data") == "plot the data"
