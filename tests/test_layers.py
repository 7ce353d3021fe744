"""Who may import whom, and where a heavy library may be imported: two tables, checked against every file."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent_kernel", "jupyter_ext", "demo")

HEAVY = {"accelerate", "bitsandbytes", "gguf", "matplotlib", "numpy", "openvino", "openvino_genai", "pandas", "torch"}
HEAVY |= {"PIL", "ddgs", "httpx", "mcp", "regex", "trafilatura", "transformers", "xgrammar"}

VALUES = (
    "agent_kernel.core.errors",
    "agent_kernel.core.messages",
    "agent_kernel.core.events",
    "agent_kernel.core.files",
    "agent_kernel.core.invisible_characters",
)
SEAMS = (
    *VALUES,
    "agent_kernel.core.permission_grant",
    "agent_kernel.core.seams.grant_store",
    "agent_kernel.core.session",
    "agent_kernel.core.process_identity",
    "agent_kernel.core.seams.file_store",
    "agent_kernel.core.seams.session_store",
    "agent_kernel.core.session_tree",
    "agent_kernel.core.protocols",
)
CORE = (
    *SEAMS,
    "agent_kernel.core.token_estimate",
    "agent_kernel.core.egress",
    "agent_kernel.core.settings",
    "agent_kernel.permissions",
)
PARTS = (
    *CORE,
    "agent_kernel.turn.agent",
    "agent_kernel.turn.context",
    "agent_kernel.turn.history",
    "agent_kernel.engines",
    "agent_kernel.sessions.file_registry",
    "agent_kernel.core.spool",
    "agent_kernel.net",
    "agent_kernel.numbers",
    "agent_kernel.core.request",
    "agent_kernel.sandbox",
    "agent_kernel.sessions",
    "agent_kernel.skills",
    "agent_kernel.core.api_tokens",
    "agent_kernel.turn.toolbox",
    "agent_kernel.tools",
    "agent_kernel.core.trusted_folders",
)

JAIL = tuple(
    f"agent_kernel.sandbox.{name}" for name in ("credentials", "landlock", "limits", "seccomp", "syscalls", "view")
)
WARNINGS = "agent_kernel.sandbox.worker.library_warnings"

# part: (what it may import of ours, which libraries). The longest name that fits a module is its part; a part may
# always import itself. The standard library is free for all.
LAYERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    # Its public names are loaded at their first use; a checker of types sees them at once.
    "agent_kernel": ((*PARTS, "agent_kernel.turn.runtime", "agent_kernel.client", "agent_kernel.panel"), set()),
    "agent_kernel.core.errors": ((), set()),
    "agent_kernel.core.messages": ((), set()),
    "agent_kernel.core.events": (VALUES, set()),
    "agent_kernel.core.invisible_characters": ((), set()),
    "agent_kernel.core.files": ((), set()),
    "agent_kernel.core.process_identity": ((), set()),
    "agent_kernel.core.session": ((*VALUES, "agent_kernel.core.process_identity"), set()),
    "agent_kernel.core.permission_grant": ((*VALUES, "agent_kernel.core.session"), set()),
    "agent_kernel.core.session_tree": ((*VALUES, "agent_kernel.core.session"), set()),
    "agent_kernel.core.seams.grant_store": (
        (*VALUES, "agent_kernel.core.permission_grant", "agent_kernel.core.session"),
        set(),
    ),
    "agent_kernel.core.seams.file_store": ((*VALUES, "agent_kernel.core.session"), set()),
    "agent_kernel.core.seams.session_store": (
        (
            *VALUES,
            "agent_kernel.core.seams.grant_store",
            "agent_kernel.core.session",
            "agent_kernel.core.seams.file_store",
            "agent_kernel.core.session_tree",
        ),
        set(),
    ),
    "agent_kernel.core.protocols": ((*VALUES, "agent_kernel.core.session"), set()),
    "agent_kernel.core.token_estimate": (VALUES, set()),
    "agent_kernel.numbers": (VALUES, set()),
    "agent_kernel.core.egress": (VALUES, set()),
    "agent_kernel.core.settings": (VALUES, {"platformdirs"}),
    "agent_kernel.permissions": ((*SEAMS, "agent_kernel.core.settings"), set()),
    "agent_kernel.sessions": (CORE, {"filelock"}),
    # The check of charts that leave the sandbox, for those of a document: pure.
    "agent_kernel.sessions.export.imported_charts": ((*VALUES, "agent_kernel.sandbox.host.chart_validation"), set()),
    # For tests, of ours and of others: imported by nothing else.
    "agent_kernel.contracts": ((*SEAMS, "agent_kernel.sessions"), {"pytest"}),
    # Other frameworks' protocols; nothing of theirs is needed to import it.
    "agent_kernel.peers": ((*CORE, "agent_kernel.sessions"), set()),
    "agent_kernel.core.safe_path": (("agent_kernel.core.errors",), set()),
    "agent_kernel.core.spool": (VALUES, set()),
    "agent_kernel.sessions.file_registry": ((*SEAMS, "agent_kernel.core.safe_path", "agent_kernel.core.spool"), set()),
    "agent_kernel.tools": (
        (
            *CORE,
            "agent_kernel.core.safe_path",
            "agent_kernel.core.egress",
            "agent_kernel.sessions.file_registry",
            "agent_kernel.net",
            "agent_kernel.core.request",
            "agent_kernel.skills",
            "agent_kernel.core.thread_offload",
        ),
        set(),
    ),
    "agent_kernel.core.thread_offload": ((), set()),
    "agent_kernel.skills": ((*VALUES, "agent_kernel.core.safe_path"), set()),
    "agent_kernel.core.trusted_folders": (VALUES, {"filelock"}),
    "agent_kernel.core.api_tokens": ((*VALUES, "agent_kernel.core.session"), set()),
    "agent_kernel.tools.mcp": (
        (
            *CORE,
            "agent_kernel.core.request",
            "agent_kernel.core.thread_offload",
            "agent_kernel.tools.base.tool_source",
            "agent_kernel.core.trusted_folders",
        ),
        {"jsonschema"},
    ),
    "agent_kernel.net": ((*VALUES, "agent_kernel.core.egress", "agent_kernel.core.thread_offload"), set()),
    "agent_kernel.sandbox": ((*CORE, "agent_kernel.net", "agent_kernel.core.thread_offload"), set()),
    "agent_kernel.engines": (CORE, {"filelock", "jsonschema", "referencing", "tqdm"}),
    "agent_kernel.turn.context": ((*CORE, "agent_kernel.sessions.export.responses_items"), set()),
    "agent_kernel.core.request": ((*CORE, "agent_kernel.sessions.history_merge"), set()),
    "agent_kernel.turn.history": ((*CORE, "agent_kernel.core.request", "agent_kernel.sessions"), set()),
    "agent_kernel.turn.work_time": (VALUES, set()),
    "agent_kernel.turn.toolbox": ((*CORE, "agent_kernel.turn.work_time"), {"jsonschema", "referencing"}),
    "agent_kernel.tools.base.declared_schema": (VALUES, {"jsonschema"}),
    "agent_kernel.turn.reply": (CORE, set()),
    "agent_kernel.turn.turn_state": (
        (
            *CORE,
            "agent_kernel.turn.history",
            "agent_kernel.numbers",
            "agent_kernel.core.request",
            "agent_kernel.sessions.usage_report",
            "agent_kernel.turn.turn_annotations",
            "agent_kernel.turn.changed_cells",
            "agent_kernel.turn.turn_writer",
            "agent_kernel.turn.work_time",
        ),
        set(),
    ),
    "agent_kernel.turn.model_call": (
        (*CORE, "agent_kernel.turn.reply", "agent_kernel.turn.turn_state", "agent_kernel.sessions.redaction.redaction"),
        set(),
    ),
    "agent_kernel.turn.agent": (
        (
            *CORE,
            "agent_kernel.turn.context",
            "agent_kernel.turn.history",
            "agent_kernel.turn.model_call",
            "agent_kernel.numbers",
            "agent_kernel.core.request",
            "agent_kernel.turn.turn_state",
            "agent_kernel.sessions.export.import_sanitizer",
            "agent_kernel.turn.post_turn_tasks",
            "agent_kernel.turn.turn_annotations",
            "agent_kernel.turn.changed_cells",
            "agent_kernel.turn.input_hook",
            "agent_kernel.turn.turn_writer",
            "agent_kernel.turn.observers",
            "agent_kernel.turn.redacted_events",
            "agent_kernel.turn.toolbox",
            "agent_kernel.tools.base.notebook_access",
            "agent_kernel.tools.base.callbacks",
            "agent_kernel.tools.base.caller_tools",
            "agent_kernel.tools.base.functions",
            "agent_kernel.tools.base.tool_source",
        ),
        set(),
    ),
    "agent_kernel.turn.runtime": ((*PARTS, "agent_kernel.turn.toolset"), set()),
    "agent_kernel.turn.toolset": ((*PARTS, "agent_kernel"), set()),
    "agent_kernel.core.storage_locations": (CORE, set()),
    "agent_kernel.__main__": (("agent_kernel.cli",), set()),
    "agent_kernel.cli": (
        (
            *PARTS,
            "agent_kernel",
            "agent_kernel.turn.runtime",
            "agent_kernel.core.storage_locations",
            "agent_kernel.replay",
        ),
        set(),
    ),
    # The server that it is: loaded when it is asked to be one.
    "agent_kernel.cli.serve": ((*PARTS, "agent_kernel", "agent_kernel.cli", "jupyter_ext"), set()),
    "agent_kernel.replay": (PARTS, set()),
    # Runs in a person's kernel: the standard library, IPython, and values that need nothing else.
    "agent_kernel.notebook": ((*VALUES, "agent_kernel"), {"IPython"}),
    # The same kernel's end of a widget; loaded when one is made.
    "agent_kernel.panel": (
        (*VALUES, "agent_kernel.notebook.server_client"),
        {"IPython", "anywidget", "traitlets"},
    ),
    # Speaks to a server over HTTP; of the core it has values, and how a typed function is a tool.
    "agent_kernel.client": (
        (
            *VALUES,
            "agent_kernel.notebook.server_client",
            "agent_kernel.core.protocols",
            "agent_kernel.core.session",
            "agent_kernel.core.thread_offload",
            "agent_kernel.tools.base.functions",
        ),
        set(),
    ),
    # In a fork of that kernel: what jails a process, which is standard library as well.
    "agent_kernel.notebook.draft.jail": (JAIL, set()),
    "agent_kernel.notebook.draft.keeper": ((*JAIL, "agent_kernel.notebook"), set()),
    "agent_kernel.notebook.kernel.variable_transfer": (
        ("agent_kernel.notebook", "agent_kernel.sandbox.worker.variable_transfer"),
        set(),
    ),
    "agent_kernel.notebook.kernel.capture": (("agent_kernel.notebook", WARNINGS), set()),
    "agent_kernel.notebook.kernel.live_execution": (("agent_kernel.notebook", *VALUES, WARNINGS), set()),
    "jupyter_ext": (
        (
            *PARTS,
            "agent_kernel",
            "agent_kernel.turn.runtime",
            "agent_kernel.core.thread_offload",
            # Sent into kernels as they are.
            "agent_kernel.notebook.kernel.inspection",
            "agent_kernel.notebook.kernel.variables",
            # Which names a piece of code changes where they are.
            "agent_kernel.notebook.kernel.changed_names",
            # How the server asks a kernel to run code in a draft, and the medium that keeps what a cell shows.
            "agent_kernel.notebook.draft.request",
            "agent_kernel.notebook.display.media_bundle",
            # What a cell would show of a turn that ended without one.
            "agent_kernel.notebook.turn.detached_outputs",
            "agent_kernel.notebook.display.render",
        ),
        {"filelock", "jupyter_client", "jupyter_core", "jupyter_events", "jupyter_server", "pydantic", "tornado"}
        | {"typing_extensions"}
        | {"prometheus_client", "python_multipart", "traitlets"},
    ),
    "demo": ((), {"httpx", "nbformat", "tornado"}),
}

# file: the libraries that it imports inside a function, at their first use. Nothing else is imported inside functions.
LAZY: dict[str, set[str]] = {
    # Where everything is put together: what is not asked for is not loaded.
    "agent_kernel/turn/runtime.py": {"agent_kernel"},
    "agent_kernel/engines/registry.py": {"agent_kernel"},
    "agent_kernel/turn/toolset.py": {"agent_kernel"},
    # Every Jupyter command imports it to list extensions; the parts are for a server that loads it.
    "jupyter_ext/app.py": {"jupyter_ext"},
    "agent_kernel/cli/serve.py": {"jupyter_ext"},
    "agent_kernel/cli/output.py": {"rich"},
    "agent_kernel/client/http.py": {"httpx"},
    "agent_kernel/client/discovery.py": {"jupyter_core"},
    "agent_kernel/client/output_schema.py": {"pydantic"},
    "agent_kernel/engines/local/tool_calling/chat_template.py": {"transformers"},
    "agent_kernel/engines/local/tool_calling/template_response_parser.py": {"transformers"},
    "agent_kernel/engines/local/catalog/hub_download.py": {"httpx"},
    "agent_kernel/engines/local/catalog/hub_listing.py": {"huggingface_hub"},
    "agent_kernel/engines/openai_api/http.py": {"httpx"},
    "agent_kernel/engines/openai_api/api_keys.py": {"keyring"},
    "agent_kernel/engines/local/openvino/backend.py": {"numpy", "openvino", "openvino_genai"},
    "agent_kernel/engines/local/media/images.py": {"PIL"},
    "agent_kernel/engines/local/catalog/gguf_requantize.py": {"gguf"},
    "agent_kernel/engines/local/torch/grammar.py": {"xgrammar"},
    "agent_kernel/engines/local/torch/load.py": {"torch", "transformers"},
    "agent_kernel/engines/local/torch/sampler.py": {"transformers"},
    "agent_kernel/engines/local/media/video_frames.py": {"PIL", "av"},
    "agent_kernel/core/net/fetch.py": {"httpx"},
    "agent_kernel/core/net/guard.py": {"idna"},
    "agent_kernel/sessions/adapters/selectools.py": {"selectools"},
    "agent_kernel/notebook/display/rich_screen.py": {"rich"},
    "agent_kernel/sessions/export/formats/notebook.py": {"nbformat"},
    "agent_kernel/sessions/redaction/redaction.py": {"regex"},
    "agent_kernel/tools/base/dispatch.py": {"httpx"},
    "agent_kernel/tools/files/document_reader.py": {"docx", "nbformat", "openpyxl", "pyarrow", "pypdf"},
    "agent_kernel/tools/web/providers.py": {"ddgs"},
    "agent_kernel/tools/web/article_process.py": {"trafilatura"},
    "agent_kernel/tools/base/function_result.py": {"pydantic_core"},
    "agent_kernel/tools/base/signature.py": {"docstring_parser", "pydantic", "pydantic_core", "typing_extensions"},
    "agent_kernel/tools/skills/front_matter.py": {"yaml"},
    "jupyter_ext/api/mcp/endpoint.py": {"mcp", "mcp_types"},
    "jupyter_ext/api/native/outputs.py": {"agent_kernel"},
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
    """Every import of a file, also those inside functions. Several tests ask, so the answer is kept."""
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
    """``from agent_kernel import settings`` imports a module, ``from agent_kernel import Agent`` a name."""
    base = node.module or ""
    below = [f"{base}.{name.name}" for name in node.names]
    modules = [name for name in below if _is_module(name)]
    return modules if len(modules) == len(below) else [base, *modules]


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The longest entry of the table; the entry ``agent_kernel`` is for that one module only."""
    fitting = [part for part in LAYERS if within(module, part) and (part != "agent_kernel" or module == part)]
    assert fitting, f"{module} has no row in LAYERS."
    return max(fitting, key=len)


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def covers(entry: str, module: str) -> bool:
    """The entry ``agent_kernel`` is that module, not what lies below it."""
    return module == entry if entry == "agent_kernel" else within(module, entry)


def test_a_module_imports_only_what_its_part_may() -> None:
    wrong = []
    for path in sources():
        part = part_of(module_name(path))
        ours, libraries = LAYERS[part]
        for found in imports(path):
            if found.library in PACKAGES:
                allowed = any(covers(other, found.module) for other in (part, *ours))
            else:
                lazy = LAZY.get(found.file, set()) if found.inside_function or found.for_types else set()
                allowed = found.library in sys.stdlib_module_names | libraries | lazy
            if not allowed:
                wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


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


def test_every_row_of_the_table_is_still_needed() -> None:
    parts = {part_of(module_name(path)) for path in sources()}
    assert parts == set(LAYERS)


def test_the_core_knows_no_server() -> None:
    servers = {"tornado", "jupyter_server", "jupyter_client", "ipykernel"}
    wrong = [str(found) for path in (ROOT / "agent_kernel").rglob("*.py") for found in imports(path)]
    assert not [line for line in wrong if line.split()[-1].partition(".")[0] in servers]


IMPORT_ALL = """
import sys
sys.dont_write_bytecode = True
for library in {libraries!r}:
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


@pytest.mark.parametrize("package", ["agent_kernel", "jupyter_ext"])
def test_importing_every_module_does_no_io_and_loads_nothing_heavy(package: str) -> None:
    modules = [module_name(path) for path in sources() if path.relative_to(ROOT).parts[0] == package]
    modules = [name for name in modules if not name.endswith("__main__")]
    libraries = sorted({lib for part, (_, libs) in LAYERS.items() for lib in libs if within(part, package)})
    code = IMPORT_ALL.format(libraries=libraries, modules=modules, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_magic_brings_nothing_of_the_core_into_a_kernel() -> None:
    modules = [module_name(path) for path in (ROOT / "agent_kernel" / "notebook").rglob("*.py")]
    code = (
        f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name.startswith('agent_kernel')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    allowed = {
        "agent_kernel",
        "agent_kernel.sandbox",
        "agent_kernel.sandbox.worker.variable_transfer",
        WARNINGS,
        *JAIL,
        *VALUES,
    }
    assert not {name for name in done.stdout.split() if not name.startswith("agent_kernel.notebook")} - allowed
