"""Serves the page at the root of ``agent-kernel serve``, and the files that the page loads. They are the same for all
users and contain no user's data: the page gets its data from the API, which authenticates each request.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import html
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from jupyter_ext.auth.serve_identity import LoginLink

LINK_SETTING = "agent_kernel_login_link"
TOKEN_PLACE_SETTING = "agent_kernel_token_place"
CODE = "code"
"""The query parameter with the secret of a login link. Jupyter's log does not show the values of this parameter."""
OWN = "jupyter_ext.api.webapp"
PANEL = "agent_kernel.notebook.panel"
TYPES = {
    "webapp.js": (OWN, "text/javascript; charset=utf-8"),
    "webapp.css": (OWN, "text/css; charset=utf-8"),
    "icon.svg": (OWN, "image/svg+xml"),
    "widget.js": (PANEL, "text/javascript; charset=utf-8"),
    "widget.css": (PANEL, "text/css; charset=utf-8"),
}
"""Maps the name of each file of the page to the package that contains the file, and to its media type."""
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class PageFile:
    type: str
    body: bytes
    compressed: bytes


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files of the page. ``version`` is a hash of their content and part of the address of each file, so that a
    browser can cache files forever and never mixes files of two versions.
    """

    version: str
    page: bytes
    files: Mapping[str, PageFile]


@functools.cache
def page_files() -> PageFiles:
    """Read the files. Blocking at the first call."""
    found: dict[str, PageFile] = {}
    for name, (package, kind) in TYPES.items():
        body = files(package).joinpath("static", name).read_bytes()
        found[name] = PageFile(kind, body, gzip.compress(body, 6, mtime=0))
    page = files(OWN).joinpath("static", "page.html").read_bytes()
    version = hashlib.sha256(b"".join([page, *(file.body for file in found.values())])).hexdigest()[:12]
    return PageFiles(version, page.replace(b"VERSION", version.encode()), found)


class PageHandler(JupyterHandler):
    """The handler of the page. For a request with the code of a login link, it sets the login cookie and redirects to
    the address without the code."""

    @property
    def content_security_policy(self) -> str:
        return POLICY

    @allow_unauthenticated
    async def get(self) -> None:
        if self.request.method == "GET" and (code := self.get_query_argument(CODE, "")):
            self._log_in(code)
            return
        place = html.escape(self.settings[TOKEN_PLACE_SETTING]).encode()
        body = (await asyncio.to_thread(page_files)).page.replace(b"TOKEN_PLACE", place)
        _ = self.xsrf_token  # reading it sets the cookie that the page sends back as a header
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Cross-Origin-Opener-Policy", "same-origin")
        self.set_header("Referrer-Policy", "same-origin")
        self.finish(body)

    head = get

    def _log_in(self, code: str) -> None:
        """Set the cookie if the code is valid. Otherwise the page asks for a token."""
        link: LoginLink | None = self.settings[LINK_SETTING]
        if link is not None and link.use(code):
            provider = self.identity_provider
            provider.set_login_cookie(self, provider.generate_anonymous_user(self))
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.redirect(self.base_url)


class SlashHandler(JupyterHandler):
    """Redirects an address without a trailing slash to the one with it; without the slash, relative addresses in the
    page would be wrong.
    """

    @allow_unauthenticated
    def get(self) -> None:
        self.redirect(self.base_url, permanent=False)


class PageFileHandler(JupyterHandler):
    @property
    def content_security_policy(self) -> str:
        return "default-src 'none'; style-src 'unsafe-inline'; sandbox"

    @allow_unauthenticated
    async def get(self, version: str, name: str) -> None:
        page = await asyncio.to_thread(page_files)
        file = page.files.get(name)
        if file is None or version != page.version:
            raise HTTPError(404)
        self.set_header("Content-Type", file.type)
        self.set_header("Cache-Control", FOREVER)
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Vary", "Accept-Encoding")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.finish(file.compressed)
        else:
            self.finish(file.body)

    head = get
