"""``agent-kernel sessions export``, ``import`` and ``merge-files``: writes a session as a document, reads a document as
a session, and merges two versions of a document."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from agent_kernel.cli.base.command import JSON, Command, argument, settings_of
from agent_kernel.cli.base.output import facts
from agent_kernel.cli.base.store_access import namespace_of, run_with_store, store_arguments
from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.core.wire.export_format import format_of_file
from agent_kernel.sessions.export.import_export import (
    FORMATS,
    IMPORTED,
    MAX_BYTES,
    ImportPreview,
    export_session,
    import_session,
    preview,
)
from agent_kernel.sessions.export.transcript import Exported, Transcript, export, parse
from agent_kernel.sessions.export.transcript_merge import merge_transcripts
from agent_kernel.sessions.redaction.redaction import Redactor

MAX_FILES = 1_000
"""Maximum number of media files that are read with a document."""


def sessions_export(args: argparse.Namespace) -> int:
    key = SessionKey(namespace_of(args), args.id)
    format = args.format or format_of_file(args.output)
    exported = run_with_store(args, lambda store: export_session(store, key, format, branch=args.branch))
    if args.output is None:
        if exported.files:
            raise InvalidRequest(
                (
                    f"The session has {len(exported.files)} media that must be stored as files beside "
                    "the document, so it cannot be written to stdout."
                ),
                hint="Use -o FILE.",
            )
        sys.stdout.buffer.write(exported.document)
        return 0
    try:
        _write(args.output, exported, force=args.force)
    except OSError as error:
        raise InvalidRequest(f"{args.output} cannot be written: {error.strerror}.") from error
    if args.json:
        where = {"path": str(args.output), "files": sorted(exported.files), "left_out": dict(exported.left_out)}
        print(json.dumps(where, indent=2))
        return 0
    print(args.output)
    for kind, count in exported.left_out.items():
        print(f"left out, because the format {format} cannot represent them: {count} {kind}", file=sys.stderr)
    return 0


def _write(output: Path, exported: Exported, *, force: bool) -> None:
    """Write an exported document and its media. The media are written first, so that a document never names a missing
    file. Raises InvalidRequest if the document exists and ``force`` is false, and OSError."""
    if output.exists() and not force:
        raise InvalidRequest(f"{output} exists already.", hint="Add --force to overwrite the file.")
    for name, data in exported.files.items():
        path = output.parent / name if "/" in name else media_directory(output) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    replace_file(output, exported.document, mode=0o666)


def media_directory(document: Path) -> Path:
    """Return the directory that contains the media of a document: NAME for NAME.json."""
    return document.with_suffix("")


def sessions_import(args: argparse.Namespace) -> int:
    try:
        document, files = read_document(args.file)
    except OSError as error:
        raise InvalidRequest(f"{args.file} cannot be read: {error.strerror}.") from error
    if args.dry_run:
        return _show_import(args, asyncio.run(preview(document, format=args.format, files=files)), "")

    options = {"id": args.id, "format": args.format, "files": files, "redactor": Redactor.of(settings_of(args))}
    result = run_with_store(args, lambda store: import_session(store, namespace_of(args), document, **options))
    return _show_import(args, result.preview, result.session.key.id)


def read_document(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return the bytes of a document, and of the media in the directory beside it, by name. Raises InvalidRequest if
    they are too large, and OSError."""
    document = _read_limited(path)
    files: dict[str, bytes] = {}
    bytes_left = MAX_BYTES
    media = sorted(media_directory(path).iterdir())[:MAX_FILES] if media_directory(path).is_dir() else []
    for medium in media:
        if not medium.is_file():
            continue
        bytes_left -= medium.stat().st_size
        if bytes_left < 0:
            raise InvalidRequest(f"The media beside {path} can have at most {MAX_BYTES} bytes in all.")
        files[medium.name] = medium.read_bytes()
    return document, files


def _read_limited(path: Path) -> bytes:
    """Return the bytes of a file. The limit holds for what is read, because devices and pipes have no size. Raises
    InvalidRequest if the file is larger, and OSError."""
    with path.open("rb") as file:
        body = file.read(MAX_BYTES + 1)
    if len(body) > MAX_BYTES:
        raise InvalidRequest(f"{path} is too large: a document can have at most {MAX_BYTES} bytes.")
    return body


def sessions_merge_files(args: argparse.Namespace) -> int:
    """Merge two versions of a document and write the result to the second file, as git expects of a merge driver.
    Print nothing, or with --json what the merged document contains. Return 0; raises InvalidRequest if they cannot be
    merged, and the files are then unchanged."""
    try:
        base, ours, theirs = (_read_version(path) for path in (args.base, args.ours, args.theirs))
        if ours is None or theirs is None:
            raise InvalidRequest("One of the two versions is empty, so there is nothing to merge.")
        # Media that are inside the documents stay there: git passes temporary paths, so the media directory beside the
        # document cannot be found.
        document = export(merge_transcripts(base, ours, theirs), inline_bytes=None).document
        merged = parse(document)
        replace_file(args.ours, document, mode=0o666)
    except OSError as error:
        raise InvalidRequest(f"{error.filename} cannot be read or written: {error.strerror}.") from error
    if args.json:
        branches = [branch.name for branch in merged.branches]
        counts = {"branches": branches, "turns": len(merged.turns), "items": len(merged.items)}
        print(json.dumps({"path": str(args.ours), "session": merged.session.key.id, **counts}, indent=2))
    return 0


def _read_version(path: Path) -> Transcript | None:
    """Return the session in a document; None for an empty file, which git passes where a version does not exist."""
    body = _read_limited(path)
    return parse(body) if body else None


def _show_import(args: argparse.Namespace, preview: ImportPreview, id: str) -> int:
    values = dataclasses.asdict(preview) | {"left_out": dict(preview.left_out)}
    if args.json:
        print(json.dumps({"session": id or None} | values, indent=2))
        return 0
    left_out = ", ".join(f"{count} {kind}" for kind, count in preview.left_out.items())
    facts({"session": id or "(not created: --dry-run)"} | values | {"left_out": left_out or "nothing"}, as_json=False)
    return 0


EXPORT_ARGUMENTS = (
    argument("id", help="a session id from 'agent-kernel sessions list'"),
    argument("--format", choices=FORMATS, help="format of the document (default: by the suffix of FILE)"),
    argument("--branch", help="branch to export in a format with a single branch (default: the current one)"),
    argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write to a file instead of stdout; large media go to files beside it",
    ),
    argument("--force", action="store_true", help="overwrite an existing file"),
    *store_arguments(),
)
IMPORT_ARGUMENTS = (
    argument("file", type=Path, help="a document from 'sessions export', OpenAI messages, or a mistral.rs session"),
    argument("--id", help="id of the new session, which must not exist yet (default: a generated one)"),
    argument("--format", choices=IMPORTED, help="format of the file (default: detected)"),
    argument("--dry-run", action="store_true", help="only show what would be imported"),
    *store_arguments(),
)
MERGE_ARGUMENTS = (
    argument("base", type=Path, help="the common ancestor of both versions (%%O of git); may be empty"),
    argument("ours", type=Path, help="the version that the result replaces (%%A of git)"),
    argument("theirs", type=Path, help="the other version (%%B of git)"),
    JSON,
)
EXCHANGE_COMMANDS = (
    Command("export", "write a session as a document", sessions_export, EXPORT_ARGUMENTS),
    Command("import", "read a document as a new session", sessions_import, IMPORT_ARGUMENTS),
    Command(
        "merge-files",
        "merge two versions of NAME.agent.json, as git's merge driver",
        sessions_merge_files,
        MERGE_ARGUMENTS,
    ),
)
