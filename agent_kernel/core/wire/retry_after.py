"""Parses the HTTP header Retry-After, in which a server states when a request may be repeated."""

from __future__ import annotations

import email.utils
import time


def parse_retry_after(header: str) -> float | None:
    """Return how many seconds to wait. The header states them as a number, or as a date, which is compared with
    the present time. None if the header is empty or invalid."""
    header = header.strip()
    if header.replace(".", "", 1).isdigit() and header.isascii():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
