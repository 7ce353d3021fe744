"""A server extension for tests that replaces the server's token, and with it the cookies."""

from __future__ import annotations

from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado.web import authenticated


class ChangeHandler(APIHandler):
    @authenticated
    def post(self) -> None:
        self.identity_provider.token = "another"
        self.application.settings["cookie_secret"] = b"another"
        self.finish("{}")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.jupyter_ext.probe_login"}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    path = f"{serverapp.base_url}probe/change-login"
    serverapp.web_app.add_handlers(".*$", [(path, ChangeHandler)])
