"""``agent-kernel docs``: lists, searches and shows the pages of the documentation, which the package contains."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from agent_kernel.cli.base.command import JSON, Command, argument
from agent_kernel.cli.base.output import Column, show
from agent_kernel.core.errors import InvalidRequest

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "docs", PACKAGE.parent / "docs")
"""Folders that may contain the pages: that of an installed package, and that of a checkout."""
HEADING = re.compile(r"#{1,3} +(.+)")
LIST_ALL = "agent-kernel docs lists the pages."


class DocsPage(NamedTuple):
    """One page. ``name`` is the name of its file without the ending."""

    name: str
    path: Path
    text: str

    @property
    def title(self) -> str:
        first_line = self.text.partition("\n")[0]
        return first_line.removeprefix("# ").strip()

    def section_with(self, words: Sequence[str]) -> str:
        """Return the heading of the section that contains most of the ``words``, which are in lower case; of several
        such sections, that of the first."""
        sections = [("", "")]
        for line in self.text.splitlines():
            found = HEADING.match(line)
            heading, lines = (found[1], "") if found else sections.pop()
            sections.append((heading, f"{lines}{line}\n".lower()))
        return max(sections, key=lambda section: sum(word in section[1] for word in words))[0]


def docs(args: argparse.Namespace) -> int:
    """Show the page that the words name. If they name none, list the pages that contain all of them; without words,
    list all pages. Raises InvalidRequest if no page has the words."""
    pages = read_pages()
    named = " ".join(args.words).removesuffix(".md").removeprefix("docs/")
    page = next((page for page in pages if named.lower() in {page.name, page.title.lower()}), None)
    if page is not None:
        show_page(page, as_json=args.json)
        return 0
    words = [word.lower() for word in args.words]
    found = [page for page in pages if all(word in page.text.lower() for word in words)]
    if not found:
        similar = get_close_matches(named, [page.name for page in pages], n=1)
        hint = f"Did you mean agent-kernel docs {similar[0]}? " if similar else ""
        raise InvalidRequest(f"No page of the documentation has {named!r}.", hint=f"{hint}{LIST_ALL}")
    rows = [
        {"page": page.name, "title": page.title, "path": str(page.path)}
        | ({"section": page.section_with(words)} if words else {})
        for page in found
    ]
    columns = {"page": Column("PAGE"), "title": Column("TITLE"), **({"section": Column("SECTION")} if words else {})}
    show(rows, columns, as_json=args.json)
    if not args.json:
        print("\nTo read a page: agent-kernel docs PAGE")
    return 0


def read_pages() -> list[DocsPage]:
    """Return the pages, ordered by name. Raises InvalidRequest if this installation has none."""
    folder = next((folder for folder in FOLDERS if (folder / "drafts.md").is_file()), None)
    if folder is None:
        raise InvalidRequest("This installation has no documentation.", hint="Install agent-kernel from its wheel.")
    return [
        DocsPage(path.stem, path, path.read_text("utf-8"))
        for path in sorted(folder.glob("*.md"), key=lambda path: path.stem)
    ]


def show_page(page: DocsPage, *, as_json: bool) -> None:
    """Print a page: formatted, and with a pager, if the output is a terminal; otherwise its Markdown."""
    if as_json:
        print(json.dumps({"page": page.name, "title": page.title, "path": str(page.path), "text": page.text}, indent=2))
        return
    if not sys.stdout.isatty():
        print(page.text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    # A terminal could not follow the links, which are relative to the page; without hyperlinks their targets are shown.
    rendered = Markdown(page.text, hyperlinks=False)
    with console.pager(styles=console.is_terminal and not console.no_color):
        console.print(rendered, width=min(console.width, 100))


DOCS = Command(
    "docs",
    "read the documentation: a page by its name, or the pages that contain your words",
    docs,
    (argument("words", nargs="*", metavar="PAGE or WORDS", help="a page, or words to search; none: all pages"), JSON),
)
