"""Defines the configuration of one model on an OpenAI-compatible server. A configuration contains names of secrets,
never a secret."""

from __future__ import annotations

import dataclasses
import math
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_kernel.core.egress import is_here
from agent_kernel.core.errors import InvalidRequest

OURS = frozenset({"messages", "model", "stream", "stream_options", "tools", "tool_choice", "n"})
SERVER_OWNED = frozenset({"store", "previous_response_id", "conversation"})
"""Fields by which a server stores a conversation. They are refused: each request contains the whole conversation, and a
stored one could contradict it."""
SECRETS = frozenset({"api_key", "key", "token", "password", "authorization", "headers"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and the options of one model on a server. ``url`` is the base of ``chat/completions`` and commonly
    ends in ``/v1``. An empty ``model`` means the only one that the server has. The key is looked up at each request:
    ``api_key_env`` names an environment variable of this process, ``api_key_keyring`` an entry ``SERVICE/USER`` of the
    system's keyring, ``api_key_file`` a file that only the user can read.

    ``context_length`` is in tokens; 0 means the length that the server states. There are three time limits in seconds:
    ``connect_s``, ``first_token_s``, and ``between_tokens_s`` from one token to the next. ``tries`` is the maximum
    number of times that the requests for one answer are sent. ``continues`` means that the server continues an answer
    that has broken off, although its list of models does not say so. The fields in ``extra`` are added
    to each request unchanged. Raises InvalidRequest.
    """

    url: str
    model: str = ""
    api_key_env: str = ""
    api_key_keyring: str = ""
    api_key_file: str = ""
    vision: bool = False
    continues: bool = False
    context_length: int = 0
    connect_s: float = 10.0
    first_token_s: float = 300.0
    between_tokens_s: float = 120.0
    tries: int = 4
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check_types(self)
        _check_url(self.url)
        object.__setattr__(self, "url", self.url.rstrip("/"))
        if sum(map(bool, self._key_places)) > 1:
            raise InvalidRequest(
                "An engine can have one of api_key_env, api_key_keyring and api_key_file, not several of them."
            )
        if self.api_key_keyring and not all(self.api_key_keyring.partition("/")):
            raise InvalidRequest(
                "api_key_keyring must have the form SERVICE/USER, with the names of the keyring entry."
            )
        if owned := sorted(SERVER_OWNED & set(self.extra)):
            raise InvalidRequest(
                f"extra cannot contain {', '.join(owned)}: agent-kernel stores the conversation, not the server."
            )
        if ours := sorted(OURS & set(self.extra)):
            raise InvalidRequest(
                f"extra cannot contain {', '.join(ours)}: agent-kernel sets these fields for each request."
            )

    @classmethod
    def of_url(cls, text: str) -> Endpoint:
        """Parse ``URL`` or ``URL#MODEL``. Raises InvalidRequest."""
        url, _, model = text.partition("#")
        return cls(url, urllib.parse.unquote(model))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Endpoint:
        """Parse a configuration. Raises InvalidRequest for an unknown field. The error does not contain the field's
        value, which may be a secret."""
        field_names = {item.name for item in dataclasses.fields(cls)}
        for name in body:
            if name in field_names:
                continue
            if str(name).lower() in SECRETS:
                raise InvalidRequest(
                    f"An engine cannot have {name}: keys do not belong in a configuration.",
                    hint="Put the key into an environment variable, and that variable's name into api_key_env.",
                )
            raise InvalidRequest(
                f"An engine has no setting {str(name)[:40]!r}; its settings are {', '.join(sorted(field_names))}."
            )
        if "url" not in body:
            raise InvalidRequest("An engine needs the url of a server, or a model of this machine and no other field.")
        return cls(**body)

    @property
    def host(self) -> str:
        """The host to which conversations are sent, with the port if there is one."""
        return urllib.parse.urlsplit(self.url).netloc.lower()

    @property
    def has_key(self) -> bool:
        return any(self._key_places)

    @property
    def _key_places(self) -> tuple[str, str, str]:
        return self.api_key_env, self.api_key_keyring, self.api_key_file

    @property
    def local(self) -> bool:
        """Whether the address belongs to this machine. A server at such an address may still forward what it receives
        to another machine."""
        return is_here(self.url)


def is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _check_url(url: str) -> None:
    """Raise InvalidRequest if the URL is not valid. Errors never contain the URL, since the text before an @ may be a
    password."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidRequest(
            "The URL of a model server is not valid.",
            hint="Use the form http://HOST:PORT/v1, with a port from 1 to 65535.",
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidRequest("The URL of a model server must have the form http://HOST/v1 or https://HOST/v1.")
    if "@" in parts.netloc:
        raise InvalidRequest(
            "The URL of a model server cannot contain a name or a password.",
            hint="Put the key into an environment variable, and that variable's name into api_key_env.",
        )
    if parts.query or parts.fragment or "?" in url:
        raise InvalidRequest("The URL of a model server cannot have a query; the model is a separate setting.")
    if not url.isascii() or any(char.isspace() or not char.isprintable() or char == "\\" for char in url):
        raise InvalidRequest("The URL of a model server can contain only ASCII characters.")


def _check_types(endpoint: Endpoint) -> None:
    kinds: dict[str, tuple[type, str]] = dict.fromkeys(
        ("url", "model", "api_key_env", "api_key_keyring", "api_key_file"), (str, "text")
    )
    kinds |= {"vision": (bool, "true or false"), "continues": (bool, "true or false"), "extra": (Mapping, "an object")}
    for name, (kind, description) in kinds.items():
        if not isinstance(getattr(endpoint, name), kind):
            raise InvalidRequest(f"{name} of an engine must be {description}.")
    for name in ("connect_s", "first_token_s", "between_tokens_s"):
        value = getattr(endpoint, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InvalidRequest(f"{name} of an engine must be a number of seconds above 0.")
    for name, least in (("context_length", 0), ("tries", 1)):
        value = getattr(endpoint, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidRequest(f"{name} of an engine must be a number of {least} or more.")
