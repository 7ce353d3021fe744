from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from agent_kernel.notebook.display.safe_markdown import safe_markdown

PIECES = [
    *("```", "~~~", "`", "``", "```py x\n", "~~~ a b\n", "<script>", "<b>", "</b>", "<x onclick=a>", "<!--", "-->"),
    *("$$\n", "\n$$\n", "```\n", "~~~\n", "<script>\n", "]: a\n", "\\end{a}\n"),
    *("\n", "\n\n", "    ", "  ", "\t", "- ", "1. ", "> ", "---\n", "|", "*", "_", "\\", '"', "'", "text", "python"),
    *("$$", "$", "\\begin{a}", "\\end{a}", "\\(", "\\[", "[x]", "[", "]", "(", ")", "(javascript:a)", "&lt;"),
    *("![i](http://q)", "]: javascript:a", "[x]: ", "<javascript:a>", "java&#115;cript:a"),
]


class Dangers(HTMLParser):
    """Collects the tags, event handlers and links that came from the model's text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "img", "b", "x"}:
            self.found.append(tag)
        for name, value in attrs:
            target = re.sub(r"[\x00-\x20]", "", value or "").lower()
            if name.startswith("on") or (name == "href" and target.startswith("javascript:")):
                self.found.append(f"{tag} {name}")


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=18).map("".join))
def test_no_text_becomes_a_tag_a_handler_or_a_script_link_in_nbconvert(text: str) -> None:
    assert Dangers(markdown2html_mistune(safe_markdown(text))).found == []


def test_the_check_itself_finds_what_is_not_escaped() -> None:
    assert Dangers(markdown2html_mistune("<b>x</b> [a](javascript:a) ![i](http://q)")).found


@pytest.mark.parametrize("text", ["plain **bold**", "a `code` b", "```python\nx = 1\n```", "1 > 0", "- [x] done"])
def test_harmless_text_stays_as_it_was(text: str) -> None:
    assert safe_markdown(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("if `a<b`:", "<code>a&lt;b</code>"),
        ("```python\nif a < b:\n    pass\n```", '<span class="o">&lt;</span>'),
        ("1. x\n   ```python\n   a < b\n   ```", '<span class="o">&lt;</span>'),
        ("a <b>c</b>", "a &lt;b&gt;c&lt;/b&gt;"),
        ("so $a < b$ holds", r"$a \lt  b$"),
        ("it costs $5 < $6", "it costs $5 &lt; $6"),
        ("see <https://example.org/x>", '<a href="https://example.org/x">https://example.org/x</a>'),
        ("[docs](https://example.org) <i>", '<a href="https://example.org">docs</a>'),
        ("![chart](https://example.org/x.png)", '<a href="https://example.org/x.png">chart</a>'),
    ],
)
def test_what_looks_like_markup_is_shown_as_it_was_written(text: str, shown: str) -> None:
    assert shown in markdown2html_mistune(safe_markdown(text))


def test_code_keeps_its_own_indentation() -> None:
    assert "\n    deep < 1\n" in safe_markdown("```\n    deep < 1\n```")


@pytest.mark.parametrize("piece", ["[", "](&amp;", "`a", "$a", "- ", "```\n", "$$\na\n", "<", " ", "[a]:"])
def test_a_long_text_that_means_harm_takes_no_longer_than_another(piece: str) -> None:
    """A quadratic pattern would hit the time limit of the test."""
    assert safe_markdown(piece * (200_000 // len(piece)) + "<")
