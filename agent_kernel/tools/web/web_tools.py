"""Offers the web tools to a turn, if the setting ``web`` is on. A request that comes neither from a cell nor from a
notebook gets them only if it has web options, as those of programs, terminal commands and the panel may have."""

from __future__ import annotations

import importlib.util

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.events import Notice
from agent_kernel.core.net.fetch import Fetcher
from agent_kernel.core.net.guard import Guard
from agent_kernel.core.protocols import Tool
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.web.article_reader import ArticleReader
from agent_kernel.tools.web.fetch_page import FetchPage
from agent_kernel.tools.web.search_providers import DuckDuckGo, provider_of
from agent_kernel.tools.web.web_options import WebOptions
from agent_kernel.tools.web.web_search import WebSearch

OFF = "This server has no web search: it is off in its configuration."
MISSING = "The web tools need {names}. Install agent-kernel[web] where the server runs."


class WebTools:
    """Offers the web tools. ``web`` is the value of the setting ``web``; ``guard`` restricts what may be fetched.
    Raises InvalidRequest for an unknown provider."""

    def __init__(self, web: str, guard: Guard, egress: EgressPolicy) -> None:
        self._provider = provider_of(web, egress)
        self._fetcher = Fetcher(guard, egress)
        self._reader = ArticleReader()
        self._libraries = ("trafilatura", "ddgs") if isinstance(self._provider, DuckDuckGo) else ("trafilatura",)

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        """Return the tools. Raises InvalidRequest for invalid options."""
        request = occasion.request
        options = WebOptions.of(request.web or {})
        if self._provider is None:
            if request.web is not None and options.external:
                occasion.emit(Notice("warning", OFF))
            return OfferedTools()
        if not options.external or not (request.web is not None or _is_from_notebook(occasion)):
            return OfferedTools()
        if missing := [name for name in self._libraries if importlib.util.find_spec(name) is None]:
            occasion.emit(Notice("warning", MISSING.format(names=" and ".join(missing))))
            return OfferedTools()
        page = FetchPage(self._fetcher, self._reader, options)
        tools: list[Tool] = [WebSearch(self._provider, page, options), page]
        return OfferedTools(tuple(tool for tool in tools if occasion.wants("web", tool.spec.name)))

    async def aclose(self) -> None:
        await self._reader.aclose()


def _is_from_notebook(occasion: ToolSourceContext) -> bool:
    """Return whether the request seems to come from a cell or from the panel. This is derived from the contents of the
    request, so a client can claim it."""
    request = occasion.request
    return bool(occasion.notebook or occasion.notebook_dir or request.cell or request.where in ("live", "draft"))
