"""Defines the string formats that a grammar can enforce.

Dates are real dates of the years 1000 to 2999; of the years that end in 00, none counts as a leap year. Times have
whole seconds or up to 6 decimals, in UTC or with an offset, as in RFC 3339.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

YEAR, LEAP = "[12]\\d{3}", "[12]\\d(?:[2468][048]|0[48]|[13579][26])"
DAYS = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])",
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)",
    "02-(?:0[1-9]|1\\d|2[0-8])",
)
DATE = f"(?:{YEAR}-(?:{'|'.join(DAYS)})|{LEAP}-02-29)"
TIME = "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
HEX = "[0-9a-fA-F]"
MAILBOX = "[a-zA-Z0-9_+-]{1,30}(?:\\.[a-zA-Z0-9_+-]{1,30}){0,2}"
LABEL = "[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?"

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "date": DATE,
        "time": TIME,
        "date-time": f"{DATE}T{TIME}",
        "uuid": f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",
        "email": f"{MAILBOX}@{LABEL}(?:\\.{LABEL}){{0,2}}\\.[a-z]{{2,10}}",
    }
)
"""Maps the name of each format to a pattern for the whole string."""
