"""Reads the web options of a request: OpenAI's ``web_search_options``, with the size limits of mistral.rs."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import InvalidRequest

BUDGETS: Mapping[str, int] = MappingProxyType({"low": 4_096, "medium": 8_192, "high": 16_384})
UNLIMITED = 16_384
"""Maximum tokens of a search result if the request sets ``return_token_budget`` to ``unlimited``. This is the highest
limit in BUDGETS."""
MAX_DOMAINS = 100
"""Maximum number of domains in the list of allowed domains. The list of blocked domains has the same maximum."""
PLACE = ("city", "region", "country", "timezone")


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Options of the web tools.

    ``tokens`` limits the length of a result. ``allowed`` and ``blocked`` are domains, which include their subdomains;
    if ``allowed`` is empty, all domains are allowed. ``location`` is the user's location, with the keys of PLACE.
    ``search`` and ``page``, if not empty, replace the descriptions of the two tools.
    """

    tokens: int = BUDGETS["medium"]
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    location: Mapping[str, str] = field(default_factory=dict)
    search: str = ""
    page: str = ""
    external: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> WebOptions:
        """Read the options. Unknown keys are ignored. Raises InvalidRequest for an invalid or unsupported value."""
        size = options.get("search_context_size") or "medium"
        if not isinstance(size, str) or size not in BUDGETS:
            raise InvalidRequest(f"search_context_size must be one of {', '.join(BUDGETS)}, not {size!r:.40}.")
        budget = options.get("return_token_budget") or "default"
        if budget not in ("default", "unlimited"):
            raise InvalidRequest("return_token_budget must be 'default' or 'unlimited'.")
        if (options.get("search_content_types") or ["text"]) not in (["text"], ("text",)):
            raise InvalidRequest(
                "search_content_types can only be ['text'], because this server searches for text only."
            )
        filters = _mapping(options, "filters")
        return cls(
            UNLIMITED if budget == "unlimited" else BUDGETS[size],
            _domains(filters, "allowed_domains"),
            _domains(filters, "blocked_domains"),
            _location(_mapping(options, "user_location")),
            str(options.get("search_description") or ""),
            str(options.get("extract_description") or ""),
            options.get("external_web_access") is not False,
        )

    def lets(self, url: str) -> bool:
        """Return whether the allowed and blocked domains permit this URL."""
        host = domain_of(url)
        inside = not self.allowed or any(_is_in_domain(host, domain) for domain in self.allowed)
        return bool(host) and inside and not any(_is_in_domain(host, domain) for domain in self.blocked)


def domain_of(url: str) -> str:
    """Return the domain in lower case without ``www.``; empty for an invalid URL."""
    try:
        return (urllib.parse.urlsplit(url).hostname or "").rstrip(".").removeprefix("www.")
    except ValueError:
        return ""


def _is_in_domain(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _mapping(options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = options.get(key) or {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{key} must be an object.")
    return value


def _domains(filters: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Read a list of domains; ``https://www.example.org/`` is read as example.org."""
    domains = filters.get(key) or []
    if not isinstance(domains, list) or not all(isinstance(domain, str) for domain in domains):
        raise InvalidRequest(f"{key} must be a list of domains.")
    if len(domains) > MAX_DOMAINS:
        raise InvalidRequest(f"{key} can have at most {MAX_DOMAINS} domains.")
    plain = [domain_of(domain if "//" in domain else f"//{domain.strip()}") for domain in domains]
    if not all(plain):
        raise InvalidRequest(f"{key} must be a list of domains; {domains[plain.index('')]!r:.100} is not a domain.")
    return tuple(plain)


def _location(location: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the fields of ``user_location``. In chat completions they are in the object ``approximate``, in responses
    beside ``type``."""
    if location.get("type", "approximate") != "approximate":
        raise InvalidRequest("The type of user_location must be 'approximate'.")
    place = _mapping(location, "approximate") or location
    return {key: str(place[key])[:100] for key in PLACE if place.get(key)}
