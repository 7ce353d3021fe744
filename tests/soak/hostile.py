"""What a hostile client or model sends: strategies for JSON, text, and bytes made from valid ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.soak.conftest import Soak

Json: TypeAlias = Any
EXAMPLES = 200
ODD = (
    "", "\0", "..", "../../../etc/passwd", "%2e%2e%2f", "a/b", "a\\b", "\ud800", "\ufeff", "\u202e", "\u2028",
    "é" * 513, "x" * 100_000, "'; DROP TABLE sessions; --", "${jndi:ldap://x}", "{{7*7}}", "null", "NaN", "1e999", "-1",
    "kernel:", "deleted:", "*", "\r\nSet-Cookie: a=b", "<script>", "💥" * 300,
)  # fmt: skip

text = st.one_of(st.sampled_from(ODD), st.text(max_size=40))
scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from([float("nan"), float("inf"), 0, -1, 10**400]),
    text,
)
value = st.recursive(scalar, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5))


def mutated(right: Json) -> st.SearchStrategy[Json]:
    """Draw ``right`` with parts left out, added, or replaced by random values."""
    if isinstance(right, dict):
        whole = st.fixed_dictionaries({}, optional={key: mutated(inner) for key, inner in right.items()})
        more = st.dictionaries(text, value, max_size=1)
        return st.one_of(
            st.just(right),
            st.builds(lambda some: {**right, **some}, whole),
            whole,
            st.builds(lambda some, added: some | added, whole, more),
            value,
        )
    if isinstance(right, list):
        items = st.lists(st.one_of([mutated(inner) for inner in right] or [value]), max_size=4)
        return st.one_of(st.just(right), items, value)
    return st.one_of(st.just(right), st.just(right), value)


def damaged(right: bytes) -> st.SearchStrategy[bytes]:
    """Draw bytes with some replaced, removed, duplicated, or inserted."""
    places = st.lists(st.tuples(st.integers(0, len(right)), st.integers(0, 64), st.binary(max_size=24)), max_size=6)

    def damage(edits: list[tuple[int, int, bytes]], cut: int) -> bytes:
        body = bytearray(right)
        for at, length, new in edits:
            body[at : at + length] = new
        return bytes(body[:cut])

    return st.builds(damage, places, st.one_of(st.just(2 * len(right) + 200), st.integers(0, len(right))))


class Deep(bytes):
    """Deeply nested data with a short repr, so that failures stay readable."""

    def __repr__(self) -> str:
        return f"deep({len(self) // 2})"


def deep(levels: int) -> Deep:
    return Deep(b"[" * levels + b"]" * levels)


def until_over(
    soak: Soak, counted: str, strategies: Mapping[str, st.SearchStrategy[Any]], check: Callable[..., None], until: float
) -> None:
    """Run batches of EXAMPLES, each with its own seed, until ``until`` seconds of the soak test have passed."""
    batch = 0
    while soak.elapsed < until or not batch:

        def counting(**drawn: Any) -> None:
            soak.counts[counted] += 1
            check(**drawn)

        run = settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )(hypothesis.seed(f"{soak.seed} {counted} {batch}")(hypothesis.given(**strategies)(counting)))
        run()
        batch += 1
