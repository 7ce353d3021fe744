"""Parses the HTTP header Retry-After, in which a server states when a request may be repeated."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable


def parse_retry_after(header: str, now: Callable[[], float] = time.time) -> float | None:
    """Return how many seconds to wait. The header states them as a number, or as a date, which is compared with
    ``now``. None if the header is empty or invalid."""
    header = header.strip()
    if header.replace(".", "", 1).isdigit() and header.isascii():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None
