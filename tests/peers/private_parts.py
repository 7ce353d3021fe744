"""Marks tests of other projects that cannot pass with one of our classes, because they read private attributes of their
own class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest


def expect_failures(items: Sequence[pytest.Item], private: Mapping[str, str]) -> None:
    """Mark tests whose id contains a key of ``private`` as expected failures, with the value as reason. A marked test
    that passes is an error.
    """
    for item in items:
        for name, reason in private.items():
            if name in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
