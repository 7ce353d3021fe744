"""Tests which folder may import which, and where a slow library may be imported: two tables, checked against every
file.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent_kernel", "jupyter_ext", "demo")

HEAVY = {"accelerate", "bitsandbytes", "gguf", "matplotlib", "numpy", "openvino", "openvino_genai", "pandas", "torch"}
HEAVY |= {
    "PIL",
    "botocore",
    "cryptography",
    "ddgs",
    "httpx",
    "mcp",
    "postgrest",
    "psycopg",
    "pymongo",
    "ray",
    "redis",
    "regex",
}
HEAVY |= {"trafilatura", "transformers", "xgrammar"}

# folder: (the folders of ours that it may import, the libraries). A module may always import its own folder and the
# standard library. Folders of agent_kernel are named without it; the folder "agent_kernel" is its __init__.py, whose
# imports are for type checkers: the names are loaded at their first use. Imports for type checkers count like others.
# A notebook's kernel loads ``notebook`` and what it imports; the sandbox loads ``sandbox.worker`` and ``sandbox.jail``.
LAYERS: dict[str, tuple[str, str]] = {
    "agent_kernel": (
        "cli client core core.seams engines notebook.panel permissions sessions.store tools.base turn",
        "",
    ),
    "cli": (
        "cli.base cli.replaying core core.net core.seams core.wire engines engines.local.catalog "
        "engines.openai_api evaluation jupyter_ext.api jupyter_ext.api.responses "
        "jupyter_ext.headless jupyter_ext.services permissions sandbox.host sessions sessions.adapters "
        "sessions.export sessions.redaction sessions.retention sessions.store tools.base tools.code tools.skills turn",
        "",
    ),
    "cli.replaying": (
        "core core.seams core.wire permissions sessions.store tools.base tools.code turn turn.number_check",
        "",
    ),
    "cli.base": ("core core.seams", ""),
    "cli.terminal": ("cli.base core core.file_facts permissions turn", ""),
    "client": ("core core.wire notebook tools.base", ""),
    "core": ("", "filelock platformdirs"),
    "core.file_facts": ("", ""),
    "core.net": ("core", ""),
    "core.programs": ("core", ""),
    "core.seams": ("core core.programs", ""),
    "core.wire": ("core", ""),
    "core.wire.framing": ("", ""),
    "engines": ("core engines.local engines.local.catalog engines.openai_api", "filelock"),
    "engines.local.catalog": ("core engines.local", "filelock tqdm"),
    "engines.local.decoding": (
        "core engines.local engines.local.grammar engines.local.media",
        "jsonschema referencing",
    ),
    "engines.local.grammar": ("core engines.local", "jsonschema"),
    "engines.local.media": ("core engines.local", ""),
    "engines.local.openvino": (
        "core engines.local engines.local.catalog engines.local.grammar engines.local.tool_calling",
        "",
    ),
    "engines.local.tool_calling": (
        "core core.file_facts core.programs engines.local engines.local.decoding engines.local.grammar",
        "",
    ),
    "engines.local.torch": ("core engines.local engines.local.catalog engines.local.media", ""),
    "engines.local.worker": (
        "core core.wire.framing engines.local engines.local.catalog engines.local.decoding engines.local.media "
        "engines.local.openvino engines.local.tool_calling engines.local.torch",
        "",
    ),
    "engines.openai_api": ("core core.wire", ""),
    "evaluation": ("core engines.local.tool_calling notebook.draft", ""),
    "notebook": ("core core.wire", ""),
    "notebook.display": ("core notebook notebook.kernel", ""),
    "notebook.draft": (
        "core core.programs core.wire core.wire.framing notebook.display notebook.kernel sandbox.jail sandbox.worker",
        "",
    ),
    "notebook.kernel": ("core core.file_facts core.programs sandbox.worker", "IPython"),
    "notebook.magic": (
        "core core.programs core.wire notebook notebook.display notebook.draft notebook.kernel notebook.turn "
        "sandbox.worker",
        "IPython",
    ),
    "notebook.panel": ("core notebook", "IPython anywidget traitlets"),
    "notebook.turn": (
        "core core.file_facts core.programs core.wire notebook notebook.display notebook.draft notebook.kernel "
        "sandbox.worker",
        "",
    ),
    "permissions": ("core core.seams", ""),
    "sandbox.host": ("core core.net core.wire.framing sandbox.jail sandbox.worker", ""),
    "sandbox.jail": ("", ""),
    "sandbox.worker": ("core.wire.framing sandbox.jail", ""),
    "sessions": ("core core.seams", ""),
    "sessions.__init__": ("sessions.adapters", ""),
    "sessions.adapters": ("core core.seams sessions sessions.export sessions.export.formats sessions.store", ""),
    "sessions.contract_tests": ("core core.seams", "pytest pytest_asyncio"),
    "sessions.export": (
        "core core.seams core.wire sandbox.host sessions sessions.export.formats sessions.redaction sessions.store",
        "",
    ),
    "sessions.export.formats": ("core core.wire sessions", ""),
    "sessions.log": ("core", "botocore cryptography httpx postgrest psycopg pymongo redis"),
    "sessions.redaction": ("core", ""),
    "sessions.retention": ("core core.seams sessions", ""),
    "sessions.search": ("core core.seams", ""),
    "sessions.store": ("core core.seams sessions sessions.log sessions.tables", "filelock keyring"),
    "sessions.tables": ("core sessions sessions.search", ""),
    "tools.base": ("core core.net core.programs core.wire", "jsonschema referencing regex"),
    "tools.code": ("core core.programs core.seams sessions tools.base", ""),
    "tools.files": ("core core.file_facts core.seams sessions tools.base tools.code", ""),
    "tools.mcp": ("core tools.base", "jsonschema"),
    "tools.memory": ("core core.seams tools.base", ""),
    "tools.notebook": ("core core.wire permissions tools.base", ""),
    "tools.skills": ("core core.seams sessions.log tools.base", ""),
    "tools.web": ("core core.net core.wire.framing tools.base tools.files", ""),
    "turn": (
        "core core.programs core.net core.seams engines engines.local engines.local.catalog engines.local.worker "
        "engines.openai_api permissions sandbox.host sandbox.jail sessions sessions.export sessions.redaction "
        "sessions.retention sessions.search sessions.store sessions.tables tools.base tools.code tools.files "
        "tools.mcp tools.memory tools.notebook tools.skills tools.web turn.number_check",
        "",
    ),
    "turn.number_check": ("core", ""),
    "demo": ("jupyter_ext.headless", "nbformat"),
    "jupyter_ext": (
        "core jupyter_ext.api jupyter_ext.services",
        "jupyter_server traitlets",
    ),
    "jupyter_ext.api": (
        "core jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.api.webapp jupyter_ext.auth "
        "jupyter_ext.services",
        "jupyter_server tornado traitlets",
    ),
    "jupyter_ext.api.anthropic": (
        "core core.net jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.api.schemas jupyter_ext.services "
        "jupyter_ext.turns sandbox.host tools.web",
        "pydantic",
    ),
    "jupyter_ext.api.chat_completions": (
        "core jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.api.schemas jupyter_ext.turns",
        "pydantic",
    ),
    "jupyter_ext.api.dialects": (
        "core core.net jupyter_ext.api.http jupyter_ext.api.schemas jupyter_ext.turns tools.base tools.web",
        "pydantic",
    ),
    "jupyter_ext.api.http": (
        "core jupyter_ext.api.schemas jupyter_ext.auth jupyter_ext.notebooks jupyter_ext.services "
        "sessions.export.formats",
        "jupyter_core jupyter_server pydantic python_multipart tornado",
    ),
    "jupyter_ext.api.mcp": (
        "core jupyter_ext.api.http jupyter_ext.api.schemas jupyter_ext.auth jupyter_ext.notebooks "
        "jupyter_ext.services jupyter_ext.turns permissions tools.notebook turn",
        "pydantic",
    ),
    "jupyter_ext.api.native": (
        "core core.wire engines engines.local engines.local.catalog engines.local.worker engines.openai_api "
        "jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.api.responses jupyter_ext.api.schemas "
        "jupyter_ext.auth jupyter_ext.notebooks jupyter_ext.push jupyter_ext.services jupyter_ext.turns "
        "notebook.display notebook.turn permissions sessions sessions.export sessions.store tools.base tools.code "
        "tools.mcp tools.skills turn",
        "jupyter_core jupyter_server pydantic tornado",
    ),
    "jupyter_ext.api.openapi": (
        "core jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.api.native jupyter_ext.api.schemas tools.base",
        "pydantic",
    ),
    "jupyter_ext.api.responses": (
        "core core.net core.seams jupyter_ext.api.dialects jupyter_ext.api.http "
        "jupyter_ext.api.schemas jupyter_ext.auth jupyter_ext.notebooks jupyter_ext.services jupyter_ext.turns "
        "sessions sessions.adapters sessions.log sessions.store sessions.tables",
        "pydantic",
    ),
    "jupyter_ext.api.schemas": ("core sessions sessions.export tools.code", "pydantic typing_extensions"),
    "jupyter_ext.api.webapp": ("core jupyter_ext.auth jupyter_ext.services", "jupyter_server tornado"),
    "jupyter_ext.auth": ("core jupyter_ext.notebooks", "jupyter_server tornado traitlets"),
    "jupyter_ext.headless": (
        "core evaluation jupyter_ext.api.http jupyter_ext.api.native",
        "jupyter_server nbformat tornado",
    ),
    "jupyter_ext.monitoring": (
        "core engines engines.local engines.local.catalog engines.local.worker jupyter_ext.notebooks "
        "jupyter_ext.push jupyter_ext.quotas jupyter_ext.turns sandbox.host tools.base turn",
        "prometheus_client",
    ),
    "jupyter_ext.notebooks": (
        "core core.file_facts core.programs core.seams core.wire notebook.display notebook.draft notebook.kernel "
        "sandbox.worker sessions sessions.export sessions.store tools.base",
        "filelock jupyter_client jupyter_core jupyter_events jupyter_server tornado",
    ),
    "jupyter_ext.push": ("core core.seams jupyter_ext.notebooks jupyter_ext.turns tools.code turn", ""),
    "jupyter_ext.quotas": ("core engines sessions.log sessions.store", ""),
    "jupyter_ext.ray_serve": (
        "core jupyter_ext.api.chat_completions jupyter_ext.api.dialects jupyter_ext.api.http jupyter_ext.turns turn",
        "",
    ),
    "jupyter_ext.services": (
        "core jupyter_ext.auth jupyter_ext.monitoring jupyter_ext.notebooks jupyter_ext.push jupyter_ext.quotas "
        "jupyter_ext.turns sandbox.host turn",
        "jupyter_server",
    ),
    "jupyter_ext.turns": (
        "core core.seams engines engines.local.worker engines.openai_api jupyter_ext.auth jupyter_ext.notebooks "
        "jupyter_ext.quotas notebook.kernel permissions sessions sessions.log sessions.store tools.base turn "
        "turn.number_check",
        "",
    ),
}

MODULES = {"agent_kernel.core.wire.framing", "jupyter_ext.services"}
"""Modules with a row of their own. The sandbox worker may import the framing and nothing else of the core. The request
handlers import the services, and ``app`` beside it the routes."""
PUBLIC = "agent_kernel.sessions"
"""A package whose ``__init__.py`` has a row of its own: its imports are for type checkers, and the names are loaded at
their first use."""

FORWARDING = {
    "agent_kernel/contracts/session_files.py",
    "agent_kernel/contracts/session_grants.py",
    "agent_kernel/contracts/session_store.py",
    "agent_kernel/errors.py",
    "agent_kernel/events.py",
    "agent_kernel/net/fetch.py",
    "agent_kernel/net/guard.py",
    "agent_kernel/peers/openai_agents.py",
    "agent_kernel/peers/selectools.py",
    "agent_kernel/protocols.py",
    "agent_kernel/sandbox/pool.py",
    "agent_kernel/sessions/account.py",
    "agent_kernel/sessions/checkpoint.py",
    "agent_kernel/sessions/exchange.py",
    "agent_kernel/sessions/matching.py",
    "agent_kernel/sessions/model.py",
    "agent_kernel/sessions/observers.py",
    "agent_kernel/settings.py",
}
"""Paths that the documentation named before the modules moved; each does nothing but import from the new path."""

# file: the libraries that it imports inside a function, at their first use. Nothing else is imported inside functions.
LAZY: dict[str, set[str]] = {
    # Ctrl-C during the import of the command is handled like any other.
    "agent_kernel/__main__.py": {"agent_kernel"},
    # Only a store that several servers share needs the log and the library of its database.
    "agent_kernel/sessions/store/store_url.py": {"agent_kernel", "keyring"},
    "agent_kernel/sessions/log/postgresql.py": {"psycopg"},
    "agent_kernel/sessions/log/redis.py": {"redis"},
    "agent_kernel/sessions/log/mongodb.py": {"pymongo"},
    "agent_kernel/sessions/log/dynamodb_connection.py": {"botocore"},
    "agent_kernel/sessions/log/supabase.py": {"httpx", "postgrest"},
    "agent_kernel/sessions/log/namespace_cipher.py": {"cryptography"},
    # Where everything is put together: what is not asked for is not loaded.
    "agent_kernel/turn/server_runtime.py": {"agent_kernel"},
    "agent_kernel/engines/registry.py": {"agent_kernel"},
    # A model worker imports torch's backends only for its models.
    "agent_kernel/engines/local/worker/backends.py": {"agent_kernel"},
    "agent_kernel/turn/tool_sources.py": {"agent_kernel"},
    # A kernel loads the magics when it starts, and may run neither a turn nor a command.
    "agent_kernel/notebook/magic/magic.py": {"agent_kernel"},
    # Every Jupyter command imports it to list extensions; the parts are for a server that loads it.
    "jupyter_ext/app.py": {"jupyter_ext"},
    "jupyter_ext/auth/hub_identity.py": {"jupyterhub"},
    # Ray loads the module on the nodes of a cluster; Ray Serve brings starlette.
    "jupyter_ext/ray_serve/application.py": {"ray"},
    "jupyter_ext/ray_serve/replica.py": {"starlette"},
    "agent_kernel/cli/serve.py": {"jupyter_ext"},
    "agent_kernel/cli/eval.py": {"jupyter_ext"},
    "agent_kernel/cli/purge.py": {"jupyter_ext"},
    "agent_kernel/evaluation/figure_data.py": {"matplotlib"},
    # A program of its own, in which the SDK is all that runs.
    "agent_kernel/evaluation/shop_server.py": {"mcp"},
    "agent_kernel/cli/base/jupyter_configuration.py": {"jupyter_core"},
    "agent_kernel/cli/base/output.py": {"rich"},
    "agent_kernel/cli/completion.py": {"agent_kernel", "shtab"},
    "agent_kernel/cli/docs.py": {"rich"},
    "agent_kernel/cli/terminal/line_reader.py": {"prompt_toolkit"},
    "agent_kernel/client/http.py": {"httpx"},
    "agent_kernel/client/discovery.py": {"jupyter_core"},
    "agent_kernel/client/output_schema.py": {"pydantic"},
    "agent_kernel/engines/local/tool_calling/chat_template.py": {"transformers"},
    "agent_kernel/engines/local/tool_calling/template_response_parser.py": {"transformers"},
    "agent_kernel/engines/local/catalog/hub_download.py": {"httpx"},
    "agent_kernel/engines/local/catalog/hub_listing.py": {"huggingface_hub"},
    "agent_kernel/engines/openai_api/endpoint_client.py": {"httpx"},
    "agent_kernel/engines/openai_api/api_keys.py": {"keyring"},
    # A model worker checks few answers against a schema, and imports jsonschema as long as everything else of ours.
    "agent_kernel/engines/local/decoding/output_format.py": {"jsonschema", "referencing"},
    "agent_kernel/engines/local/grammar/json_schema.py": {"jsonschema"},
    "agent_kernel/engines/local/openvino/backend.py": {"numpy", "openvino", "openvino_genai"},
    "agent_kernel/engines/local/media/images.py": {"PIL"},
    "agent_kernel/engines/local/catalog/gguf_to_q8_0.py": {"gguf"},
    "agent_kernel/engines/local/torch/grammar.py": {"xgrammar"},
    "agent_kernel/engines/local/torch/load.py": {"torch", "transformers"},
    "agent_kernel/engines/local/torch/sampler.py": {"transformers"},
    "agent_kernel/engines/local/media/video_worker.py": {"PIL", "av"},
    "agent_kernel/core/net/fetch.py": {"httpx"},
    "agent_kernel/core/net/guard.py": {"idna"},
    "agent_kernel/sessions/adapters/selectools.py": {"selectools"},
    "agent_kernel/notebook/display/rich_screen.py": {"rich"},
    "agent_kernel/notebook/turn/file_previews.py": {"openpyxl", "pyarrow"},
    "agent_kernel/notebook/turn/result_type.py": {"pydantic"},
    "agent_kernel/sessions/export/formats/notebook.py": {"nbformat"},
    "agent_kernel/sessions/store/row_changes.py": {"pydantic_core"},
    "agent_kernel/sessions/redaction/redaction.py": {"regex"},
    "agent_kernel/tools/base/argument_check.py": {"regex"},
    "agent_kernel/tools/base/dispatch.py": {"httpx"},
    "agent_kernel/tools/files/document_worker.py": {"docx", "nbformat", "openpyxl", "pyarrow", "pypdf"},
    "agent_kernel/tools/web/search_providers.py": {"ddgs"},
    "agent_kernel/tools/web/article_worker.py": {"trafilatura"},
    "agent_kernel/tools/base/time_limited_call.py": {"pydantic_core"},
    "agent_kernel/tools/base/functions.py": {"docstring_parser", "pydantic", "pydantic_core", "typing_extensions"},
    "agent_kernel/tools/skills/package.py": {"yaml"},
    "jupyter_ext/api/mcp/endpoint.py": {"mcp", "mcp_types"},
    "jupyter_ext/api/native/turns.py": {"agent_kernel"},
    "agent_kernel/tools/mcp/sdk.py": {"anyio", "httpx2", "mcp", "mcp_types"},
}


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    level: int
    inside_function: bool
    for_types: bool

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {'.' * self.level}{self.module}"


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return every import of a file, also those inside functions. Several tests call it, so results are cached."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nested: dict[ast.AST, tuple[bool, bool]] = {tree: (False, False)}
    for node in ast.walk(tree):
        function, types = nested[node]
        function |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        types |= isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for child in ast.iter_child_nodes(node):
            nested[child] = (function, types)
        where = (path.relative_to(ROOT).as_posix(), getattr(node, "lineno", 0))
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(*where, name.name, 0, function, types)
        elif isinstance(node, ast.ImportFrom):
            for module in _from(node):
                yield Import(*where, module, node.level, function, types)


def _from(node: ast.ImportFrom) -> list[str]:
    """Return the modules that a ``from`` import names: ``from agent_kernel import settings`` imports a module, ``from
    agent_kernel import Agent`` a name.
    """
    base = node.module or ""
    below = [f"{base}.{name.name}" for name in node.names]
    modules = [name for name in below if _is_module(name)]
    return modules if len(modules) == len(below) else [base, *modules]


@functools.cache
def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def folder_of(module: str) -> str:
    """Return the folder of a module as LAYERS names it, or the module itself if it has its own row."""
    if module == PUBLIC:
        return "sessions.__init__"
    if module in MODULES:
        return module.removeprefix("agent_kernel.")
    is_package = ROOT.joinpath(*module.split("."), "__init__.py").exists()
    folder = module if is_package else module.rpartition(".")[0]
    return folder.removeprefix("agent_kernel.")


def is_forwarding(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix() in FORWARDING


def test_a_module_imports_only_what_its_folder_may() -> None:
    wrong = []
    for path in sources():
        if is_forwarding(path):
            continue
        folder = folder_of(module_name(path))
        ours, libraries = (set(names.split()) for names in LAYERS.get(folder, ("", "")))
        for found in imports(path):
            if found.library in PACKAGES:
                allowed = folder_of(found.module) in ours | {folder}
            else:
                lazy = LAZY.get(found.file, set()) if found.inside_function or found.for_types else set()
                allowed = found.library in sys.stdlib_module_names | libraries | lazy
            if not allowed:
                wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_every_entry_of_the_table_is_still_needed() -> None:
    used: dict[str, tuple[set[str], set[str]]] = {folder: (set(), set()) for folder in LAYERS}
    for path in sources():
        folder = folder_of(module_name(path))
        if folder not in LAYERS:
            continue
        for found in imports(path):
            if found.library in PACKAGES:
                used[folder][0].add(folder_of(found.module))
            else:
                used[folder][1].add(found.library)
    unused = {
        folder: (set(ours.split()) - used[folder][0], set(libraries.split()) - used[folder][1])
        for folder, (ours, libraries) in LAYERS.items()
    }
    assert not {folder: names for folder, names in unused.items() if any(names)}


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    try:
        graphlib.TopologicalSorter({folder: ours.split() for folder, (ours, _) in LAYERS.items()}).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_folder_holds_at_most_25_modules() -> None:
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in sources() if path.name != "__init__.py")
    assert not {folder: size for folder, size in sizes.items() if size > 25}


@pytest.mark.parametrize("file", sorted(FORWARDING))
def test_a_forwarding_module_only_imports(file: str) -> None:
    first, *imported = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    assert isinstance(first, ast.Expr)
    assert len(imported) == 1
    assert all(isinstance(node, ast.ImportFrom) for node in imported)


def test_imports_are_absolute_and_at_the_top() -> None:
    wrong = [
        str(found)
        for path in sources()
        for found in imports(path)
        if found.level
        or (
            found.inside_function
            and not found.for_types
            and found.library not in LAZY.get(path.relative_to(ROOT).as_posix(), set())
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_every_lazy_import_of_the_table_is_still_there() -> None:
    real = {
        file: {found.library for found in imports(ROOT / file) if found.inside_function}
        for file in LAZY
        if (ROOT / file).exists()
    }
    assert real == LAZY


def test_the_core_knows_no_server() -> None:
    servers = {"tornado", "jupyter_server", "jupyter_client", "ipykernel"}
    wrong = [str(found) for path in (ROOT / "agent_kernel").rglob("*.py") for found in imports(path)]
    assert not [line for line in wrong if line.split()[-1].partition(".")[0] in servers]


IMPORT_ALL = """
import importlib.util
import sys
sys.dont_write_bytecode = True
for library in {libraries!r}:
    if importlib.util.find_spec(library):  # a library of an extra that is not installed cannot be loaded by our modules
        __import__(library)
loaded = set(sys.modules)
writing, asked = [], ("socket.connect", "socket.bind", "subprocess.Popen", "os.mkdir", "os.remove", "sqlite3.connect")
def watch(event, arguments):
    if event in asked or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
        writing.append((event, str(arguments[:2])))
sys.addaudithook(watch)
for module in {modules!r}:
    __import__(module)
heavy = {heavy!r} & (set(sys.modules) - loaded)
assert not writing, writing
assert not heavy, heavy
"""


def package_of(folder: str) -> str:
    package = folder.partition(".")[0]
    return package if package in PACKAGES else "agent_kernel"


@pytest.mark.parametrize("package", ["agent_kernel", "jupyter_ext"])
def test_importing_every_module_does_no_io_and_loads_nothing_heavy(package: str) -> None:
    modules = [module_name(path) for path in sources() if path.relative_to(ROOT).parts[0] == package]
    modules = [name for name in modules if not name.endswith("__main__")]
    libraries = sorted(
        {library for folder, (_, names) in LAYERS.items() for library in names.split() if package in package_of(folder)}
    )
    code = IMPORT_ALL.format(libraries=libraries, modules=modules, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_magic_brings_nothing_of_the_core_into_a_kernel() -> None:
    modules = [module_name(path) for path in (ROOT / "agent_kernel" / "notebook").rglob("*.py")]
    code = (
        f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name.startswith('agent_kernel')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if (ROOT / f"{name.replace('.', '/')}.py").exists()}
    names = (
        "errors events file_facts.binary_table file_facts.column_types file_facts.delimited_text file_facts.json_table "
        "file_facts.log_lines file_facts.quoted_text file_facts.computed_columns file_facts.table_keys "
        "file_facts.text_columns file_facts.text_file file_facts.wide_table file_facts.workbook "
        "files invisible_characters messages programs.program_outcome programs.syntax_tree "
        "recent_entries version wire.framing wire.agent_cells wire.export_format wire.server_sent_events "
        "wire.sidecar_rows wire.turn_end wire.turn_follower"
    )
    core = {f"agent_kernel.core.{name}" for name in names.split()}
    others = {name for name in loaded if not name.startswith(("agent_kernel.notebook.", "agent_kernel.sandbox."))}
    assert others <= core


LOAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "agent_kernel")
print(*(name for name in sys.modules if name.startswith("agent_kernel")))
"""


def test_loading_the_magics_does_not_load_what_runs_a_turn_or_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=ROOT,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    unused = "core.events notebook.magic.cell_turns notebook.magic.commands notebook.turn.cell_turn"
    assert "agent_kernel.notebook.magic.magic" in loaded
    assert not loaded & {f"agent_kernel.{name}" for name in unused.split()}
