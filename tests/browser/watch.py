"""Detects forbidden effects of a page: scripts that ran, dialogs, requests to other servers, event handlers, dangerous
links.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Dialog, Page, Request

from tests.browser.lab import Lab

LINKS = ("http:", "https:", "mailto:")
FOUND = """(root) => {
    const inside = [...document.querySelectorAll(root)].flatMap(place => [...place.querySelectorAll('*')]);
    const told = node => node.outerHTML.slice(0, 300);
    const handlers = inside.filter(node => [...node.attributes].some(one => /^on/i.test(one.name)));
    const links = inside.filter(node => node.hasAttribute('href') || node.hasAttribute('xlink:href'))
        .map(node => node.getAttribute('href') ?? node.getAttribute('xlink:href'));
    const images = inside.filter(node => node.tagName === 'IMG' && !/^(data:|blob:)/.test(node.src));
    return {handlers: handlers.map(told), links, images: images.map(told)};
}"""


@dataclass
class Watch:
    """Records the forbidden effects of one page."""

    page: Page
    origin: str
    dialogs: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", self._on_request)
        try:
            yield
        finally:
            self.page.remove_listener("dialog", self._on_dialog)
            self.page.remove_listener("request", self._on_request)

    def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":  # JupyterLab's own, before it leaves an unsaved notebook
            dialog.accept()
            return
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob", "about") and f"{where.scheme}://{where.netloc}/" != self.origin:
            self.strangers.append(request.url)

    def check(self, shown: object, root: str = "body") -> None:
        """Check that the page had no forbidden effect. ``root`` selects the elements that contain our texts; elements
        of the front end outside of it are not checked.
        """
        told = f"\nshown: {shown!r}"[:6000]
        assert self.page.evaluate("window.pwned") is None, "a script ran" + told
        assert not self.dialogs, f"{self.dialogs}{told}"
        assert not self.strangers, f"{self.strangers}{told}"
        found = self.page.evaluate(FOUND, root)
        assert not found["handlers"], f"{found['handlers']}{told}"
        assert not found["images"], f"{found['images']}{told}"
        bad = [link for link in found["links"] if not harmless(link)]
        assert not bad, f"{bad}{told}"


def notices(lab: Lab) -> None:
    """Check that the watch detects each kind of forbidden effect."""
    for bad in (
        "<script>window.pwned = 1</script>",
        "<img src='https://evil.example/pixel.png'>",
        "<a href='java\tscript:1'>x</a>",
        "<p onclick='1'>x</p>",
        "<script>alert(1)</script>",
    ):
        watch = Watch(lab.page, "http://127.0.0.1:1/")
        with watch.watching():
            lab.page.goto("about:blank")
            lab.page.set_content(f"<body>{bad}</body>", wait_until="load")
            with pytest.raises(AssertionError):
                watch.check(bad)
    lab.page.goto("about:blank")


def harmless(link: str) -> bool:
    """Return True if a browser opens the link without risk. Like a browser, ignores white space and control
    characters.
    """
    plain = "".join(char for char in link if char > " ").lower()
    scheme, colon, _ = plain.partition(":")
    return not colon or not scheme.replace("+", "").replace(".", "").replace("-", "").isalnum() or f"{scheme}:" in LINKS
