"""Defines the settings of the server extension, and starts and stops it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Float, Int, TraitType, Unicode, default

from agent_kernel.core.setting_declaration import variable
from agent_kernel.core.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from jupyter_ext.services import Services


def _setting_traits() -> dict[str, TraitType[Any, Any]]:
    """Return one trait for each setting of agent-kernel, by name. A trait with the value None is not set."""
    kinds: dict[type, Callable[..., TraitType[Any, Any]]] = {bool: Bool, int: Int, float: Float, dict: Dict}
    return {
        name: kinds.get(setting.kind, Unicode)(None, allow_none=True, config=True, help=setting.help)
        for name, setting in SETTINGS.items()
    }


class AgentKernel(ExtensionApp):
    """The server extension.

    A setting is given as the trait ``c.AgentKernel.NAME`` or as the environment variable ``AGENT_KERNEL_NAME``. If the
    trait is not set, the variable applies, and without a variable the default of ``agent_kernel.core.settings``.
    """

    name = "agent_kernel"
    services: Services | None = None
    """The services of the server; None until the extension is loaded. This module imports them only when it builds
    them, because every Jupyter command imports this module to list the extensions."""

    # The traits must belong to this class and not to a base class, because ``c.AgentKernel`` lists only those of the
    # class.
    vars().update(_setting_traits())

    @default("data_dir")
    def _no_data_dir(self) -> None:
        """Return None, so that the setting ``data_dir`` is not set. JupyterApp has a trait of the same name, whose
        default is Jupyter's own data directory."""
        return None

    def initialize_settings(self) -> None:
        """Build the services. Raises InvalidRequest for invalid settings: Jupyter then does not load the extension, and
        logs the reason."""
        from jupyter_ext.services import SETTING, build_services

        assert self.serverapp is not None
        settings = Settings.from_env(**{name: getattr(self, name) for name in SETTINGS})
        if "://" in settings.store:
            # The URL may contain a password; kernels, terminals and subprocesses inherit this environment.
            os.environ.pop(variable("store"), None)
        self.services = build_services(settings, self.serverapp)
        self.settings[SETTING] = self.services

    def initialize_handlers(self) -> None:
        from jupyter_ext.api.routes import RULES

        self.handlers.extend(RULES)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        assert self.services is not None
        await self.services.start()
        settings = self.services.runtime.settings
        where = settings.data_dir if settings.store in ("sqlite", "files") else settings.store_name
        self.log.info("agent-kernel: engine %s, sessions in %s", settings.engine, where)

    def current_activity(self) -> list[str] | None:
        """Return the ids of the running turns; None if there are none. While there are some, a server with
        ``shutdown_no_activity_timeout`` does not shut down."""
        return [turn.id for turn in self.services.turns.running] or None if self.services is not None else None

    async def stop_extension(self) -> None:
        """Stop the services. Jupyter calls this also for an extension that could not be loaded."""
        if self.services is not None:
            await self.services.aclose()
