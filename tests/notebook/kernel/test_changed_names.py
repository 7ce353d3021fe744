"""Tests which variables a piece of code created or changed."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.notebook.kernel.changed_names import NameChanges, NamespaceSnapshot, StrongMark
from agent_kernel.notebook.kernel.variable_fingerprints import WeakMark


def changes(code: str, mark: Any = StrongMark, **namespace: Any) -> NameChanges:
    before = NamespaceSnapshot(namespace, (), mark)
    exec(code, namespace)  # of this test itself
    namespace.pop("__builtins__", None)
    return before.changes(namespace, code)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("y = 1", NameChanges(new=("y",))),
        ("x = 2", NameChanges(changed=("x",))),
        ("print(x)", NameChanges()),
        ("_hidden = 1", NameChanges()),
        ("import json", NameChanges()),
        ("def f(): return x", NameChanges(new=("f",))),
        ("items[0] = 5", NameChanges(changed=("items",))),
        ("items.append(1)", NameChanges(changed=("items",))),
        ("items.sort()", NameChanges(changed=("items",))),
        ("items[0]", NameChanges()),
        ("book['a'] = 1", NameChanges(changed=("book",))),
        ("del items[0]", NameChanges(changed=("items",))),
        ("del x", NameChanges(deleted=("x",))),
        ("array[0] = 5", NameChanges(changed=("array",))),
        ("array + 1", NameChanges()),
        ("df['b'] = 1", NameChanges(changed=("df",))),
        ("df.loc[0, 'a'] = 9", NameChanges(changed=("df",))),
        ("book.fix(inplace=True) if hasattr(book, 'fix') else 0", NameChanges(changed=("book",))),
        ("df.rename(columns={'a': 'z'})", NameChanges()),
        ("df.insert(0, 'c', 1)", NameChanges(changed=("df",))),
        ("x += 1", NameChanges(changed=("x",))),
        ("for n in items: pass", NameChanges(new=("n",))),
    ],
)
@pytest.mark.parametrize("mark", [StrongMark, WeakMark])
def test_what_code_made_or_changed(code: str, expected: NameChanges, mark: Any) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    assert changes(code, mark, x=1, items=[3, 1], book={}, array=np.zeros(3), df=frame, math=math) == expected


def test_a_mark_keeps_nothing_alive() -> None:
    namespace: dict[str, Any] = {"array": np.zeros(3)}
    before, gone = NamespaceSnapshot(namespace, (), WeakMark), weakref.ref(namespace["array"])
    del namespace["array"]
    assert (gone(), before.changes(namespace, "del array")) == (None, NameChanges(deleted=("array",)))


def test_a_new_object_at_an_old_address_is_another_one() -> None:
    assert changes("x = [0]\nx = [1]", x=[0]) == NameChanges(changed=("x",))


def test_an_object_that_raises_at_every_touch_counts_by_its_identity() -> None:
    class Rude:
        shape = property(lambda self: 1 / 0)
        dtype = property(lambda self: 1 / 0)

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]  # on purpose

    assert changes("y = 1", x=Rude()) == NameChanges(new=("y",))
