from __future__ import annotations

from tests.jupyter_ext.conftest import server

__all__ = ["server"]
