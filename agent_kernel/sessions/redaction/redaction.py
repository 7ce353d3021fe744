"""Removes keys and passwords from text before it is stored or shown; ``[REDACTED:label]`` replaces them.

During the turn the model receives the user's text unchanged. The store, the search index, the sidecar, transcripts and
the turn's events get the text without secrets. A removed secret cannot be restored.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, Text, ToolCall
from agent_kernel.core.settings import Settings

if TYPE_CHECKING:
    import regex

TIMEOUT_S = 0.25
"""Maximum seconds for one pattern on one text. If the search takes longer, the whole text is replaced."""
MAX_CHARS = 2_000_000
"""Maximum characters that are checked at once. A longer text is checked in pieces, each with its own time limit."""
MAX_SECRET = 24_000
"""Characters of the longest secret that is recognized: a private key."""
MAX_PATTERN = 2_000
WITHHELD = "[REDACTED:unchecked]"
SECRET = "secret"
"""Name of the regular expression group that is replaced, for patterns that match more than the secret itself."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of secret. ``expression`` is a regular expression that matches it, and ``label`` names it in the
    replacement. ``hints`` are case-sensitive texts: a text that contains none of them is not searched (empty: every
    text is searched)."""

    label: str
    expression: str
    hints: tuple[str, ...] = ()


# The patterns follow the documentation of the issuers. Every repetition is bounded, so that a search takes linear time.
# More specific patterns come first, because the first match counts.
PATTERNS = (
    Pattern(
        "private_key",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s:,.\\()]|-(?!-)){16,20000}+"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
        ("PRIVATE KEY",),
    ),
    Pattern("jwt", r"\beyJ[\w-]{8,4000}\.[\w-]{8,8000}\.[\w-]{8,2000}", ("eyJ",)),
    Pattern("anthropic_key", r"\bsk-ant-[\w-]{16,256}", ("sk-ant-",)),
    Pattern("openai_key", r"\bsk-(?:proj-|svcacct-|admin-|or-v1-)?[\w-]{16,256}", ("sk-",)),
    Pattern("github_token", r"\b(?:gh[pousr]_\w{20,255}|github_pat_\w{22,255})", ("gh", "github_pat_")),
    Pattern("huggingface_token", r"\b(?:hf|api_org)_[A-Za-z0-9]{20,128}", ("hf_", "api_org_")),
    Pattern("agent_kernel_token", r"\bak_[0-9a-f]{12}_[0-9a-f]{64}\b", ("ak_",)),
    Pattern("aws_access_key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", ("AKIA", "ASIA")),
    Pattern(
        "aws_secret_key",
        r"(?i)\baws[\w .-]{0,20}secret[\w .-]{0,20}[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        ("aws", "AWS", "Aws"),
    ),
    Pattern("google_key", r"\bAIza[\w-]{35}", ("AIza",)),
    Pattern("google_token", r"\bya29\.[\w-]{20,1024}", ("ya29.",)),
    Pattern("slack_token", r"\b(?:xox[abeoprs]-[\w-]{10,256}|xapp-[\w-]{10,256})", ("xox", "xapp-")),
    Pattern("slack_webhook", r"hooks\.slack\.com/services/(?P<secret>[\w/]{20,128})", ("hooks.slack.com",)),
    Pattern("bearer_token", r"(?i)\bbearer\s{1,4}(?P<secret>[\w.~+/=-]{20,4096})", ("earer", "EARER")),
    Pattern("url_password", r"://[^\s/:@\"']{0,128}:(?P<secret>[^\s/@\"']{1,256})@", ("://",)),
    Pattern(
        "labelled_secret",
        r"(?i)(?:api[_-]?key|secret|token|passw(?:or)?d|access[_-]?key)[\w-]{0,16}[\"']?\s{0,4}[=:]\s{0,4}"
        r"[\"']?(?P<secret>[0-9a-f]{32,256})\b",
        ("key", "KEY", "Key", "secret", "SECRET", "Secret", "token", "TOKEN", "Token", "pass", "PASS", "Pass"),
    ),
)

PREFIXES = (
    r"(?i)-----BEGIN |eyJ|sk-|gh[pousr]_|github_pat_|hf_|api_org_|ak_|AKIA|ASIA|aws|AIza|ya29|xox|xapp|hooks\.|bearer|://|"
    r"api[_-]?key|secret|token|passw|access[_-]?key"
)
"""Regular expression for the beginnings of all matches of PATTERNS."""


class Redactor:
    """Replaces secrets in texts and JSON values: matches of PATTERNS, and then of the ``extra`` patterns (label ->
    expression). If a pattern has a group named ``secret``, only that group is replaced. Raises InvalidRequest for an
    invalid expression."""

    def __init__(self, patterns: Sequence[Pattern] = PATTERNS, extra: Mapping[str, str] | None = None) -> None:
        self._patterns = patterns
        self._extra = [CompiledPattern.of(Pattern(label, text)) for label, text in (extra or {}).items()]

    @functools.cached_property
    def _searches(self) -> list[CompiledPattern]:
        """The compiled patterns. They are compiled when the first text is checked."""
        return [*(CompiledPattern.of(pattern) for pattern in self._patterns), *self._extra]

    @classmethod
    def off(cls) -> Redactor:
        return cls(())

    @classmethod
    def of(cls, settings: Settings) -> Redactor:
        """Return the redactor of these settings. Raises InvalidRequest for an invalid pattern, even when redaction is
        off."""
        redactor = cls(extra=settings.redaction_patterns)
        return redactor if settings.redaction == "on" else cls.off()

    @property
    def is_on(self) -> bool:
        return bool(self._patterns or self._extra)

    def text(self, text: str) -> str:
        """Return ``text`` without secrets. Takes at most TIMEOUT_S per pattern and MAX_CHARS characters."""
        if not self._searches or not text:
            return text
        clean, start = [], 0
        while len(text) - start > MAX_CHARS:  # a piece must end at a place across which no secret can extend
            piece = text[start : start + MAX_CHARS]
            end = self.held_from(piece)
            clean.append(self._clean(piece[:end]))
            start += end
        return "".join([*clean, self._clean(text[start:])])

    def _clean(self, text: str) -> str:
        # One search checks for the hints of all patterns, because most texts are short and contain none of them.
        for search in self._searches if self._hints.search(text) else self._extra:
            text = search.clean_text(text)
        return text

    @functools.cached_property
    def _hints(self) -> re.Pattern[str]:
        """The hints of all patterns as one expression. It matches every text if a pattern has no hints."""
        every = all(pattern.hints for pattern in self._patterns)
        return re.compile("|".join(re.escape(hint) for pattern in self._patterns for hint in pattern.hints if every))

    def value(self, value: Any) -> Any:
        """Return a JSON value with all texts redacted, including keys."""
        if not self._searches:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self._value_of_key(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _value_of_key(self, key: Any, item: Any) -> Any:
        """Return the redacted value. The patterns are applied to the text ``key=value``, since some of them recognize a
        secret only by the name before it, as in ``password=...``."""
        if isinstance(key, str) and isinstance(item, str):
            labelled = f"{key}={item}"
            if (clean := self.text(labelled)) != labelled and clean.startswith(f"{key}="):
                return clean[len(key) + 1 :]
        return self.value(item)

    def message(self, message: Message) -> Message:
        if not self._searches:
            return message
        return replace(
            message,
            parts=tuple(Text(self.text(part.text)) if isinstance(part, Text) else part for part in message.parts),
            calls=tuple(ToolCall(call.id, call.name, self.value(call.arguments)) for call in message.calls),
            reasoning=self.text(message.reasoning),
            extra=self.value(message.extra),
        )

    def held_from(self, text: str, shortest: int = 1) -> int:
        """Return the first index of ``text`` at which a secret may begin that continues beyond the end. The text before
        this index can be shown already. Beginnings of less than ``shortest`` characters may be overlooked."""
        start = max(0, len(text) - MAX_SECRET)
        end = text[start:]
        searches = self._searches if self._may_begin(end, shortest) else self._extra
        return start + min((search.held_from(end) for search in searches), default=len(end))

    def is_clean(self, text: str, shortest: int) -> bool:
        """Return True if ``text`` contains neither a secret nor a beginning of a secret that has at least ``shortest``
        characters. This takes one search. If the result is False, the caller has to call the methods ``text`` and
        ``held_from``, which search more exactly.

        Every secret of PATTERNS begins with one of PREFIXES, so a text without such a beginning has no secret.
        """
        return not self._extra and not self._may_begin(text, shortest)

    def _may_begin(self, text: str, shortest: int) -> bool:
        """Return whether a secret of PATTERNS might begin in the text, at least ``shortest`` characters before its end.
        This is one search instead of one for each pattern, and most texts contain no such beginning."""
        if self._patterns is not PATTERNS:
            return True
        match = self._prefixes.search(text, partial=True)
        # A partial match at the end always exists, although it may be empty. The first match is the leftmost one, so
        # all others begin even closer to the end.
        return match is not None and match.start() <= len(text) - shortest

    @functools.cached_property
    def _prefixes(self) -> regex.Pattern[str]:
        import regex

        return regex.compile(PREFIXES)


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A Pattern with its compiled regular expression."""

    pattern: Pattern
    compiled: regex.Pattern[str]

    @classmethod
    def of(cls, pattern: Pattern) -> CompiledPattern:
        import regex

        if len(pattern.expression) > MAX_PATTERN:
            raise InvalidRequest(f"The pattern {pattern.label!r} is longer than {MAX_PATTERN} characters.")
        try:
            compiled = regex.compile(pattern.expression)
        except regex.error as error:
            raise InvalidRequest(
                f"The pattern {pattern.label!r} is not a valid regular expression: {error}."
            ) from error
        if compiled.fullmatch("") is not None:
            raise InvalidRequest(f"The pattern {pattern.label!r} matches the empty string, and therefore every text.")
        return cls(pattern, compiled)

    def clean_text(self, text: str) -> str:
        hints = self.pattern.hints
        if hints and not any(hint in text for hint in hints):
            return text
        try:
            clean: str = self.compiled.sub(self._replacement, text, timeout=TIMEOUT_S)
        except TimeoutError:
            log.warning(
                "the pattern %s took too long; a text of %d characters is replaced as a whole", self.label, len(text)
            )
            return WITHHELD
        return clean

    def held_from(self, text: str) -> int:
        try:
            matches = self.compiled.finditer(text, partial=True, timeout=TIMEOUT_S)
            return min((match.start() for match in matches if match.end() == len(text)), default=len(text))
        except TimeoutError:
            return 0

    @property
    def label(self) -> str:
        return self.pattern.label

    def _replacement(self, match: regex.Match[str]) -> str:
        mark = f"[REDACTED:{self.label}]"
        if SECRET not in self.compiled.groupindex or match.group(SECRET) is None:
            return mark
        start, end = match.span(SECRET)
        whole: str = match.group()
        return whole[: start - match.start()] + mark + whole[end - match.start() :]
