"""``agent-kernel sessions export`` and ``import``: write a session as a document, and read a document as a session."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path

from agent_kernel.cli.base.command import Command, argument, settings_of
from agent_kernel.cli.base.output import facts
from agent_kernel.cli.base.store_access import namespace_of, run_with_store, store_arguments
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.export.import_export import (
    FORMATS,
    IMPORTED,
    MAX_BYTES,
    ImportPreview,
    export_session,
    import_session,
    preview,
)
from agent_kernel.sessions.export.transcript import Exported
from agent_kernel.sessions.redaction.redaction import Redactor

MAX_FILES = 1_000
"""Maximum number of media files that are read with a document."""


def sessions_export(args: argparse.Namespace) -> int:
    key = SessionKey(namespace_of(args), args.id)
    export = run_with_store(args, lambda store: export_session(store, key, args.format, branch=args.branch))
    if args.output is None:
        if export.files:
            raise InvalidRequest(
                f"{len(export.files)} media must be stored as files beside the document.", hint="Use -o FILE."
            )
        sys.stdout.buffer.write(export.document)
        return 0
    try:
        _write(args.output, export, force=args.force)
    except OSError as error:
        raise InvalidRequest(f"{args.output} cannot be written: {error.strerror}.") from error
    if args.json:
        where = {"path": str(args.output), "files": sorted(export.files), "left_out": dict(export.left_out)}
        print(json.dumps(where, indent=2))
        return 0
    print(args.output)
    for what, count in export.left_out.items():
        print(f"left out, because {args.format} cannot represent it: {count} {what}", file=sys.stderr)
    return 0


def _write(output: Path, export: Exported, *, force: bool) -> None:
    """Write an exported document and its media. The media are written first, so that a document never names a missing
    file. Raises InvalidRequest if the document exists and ``force`` is false, and OSError."""
    if output.exists() and not force:
        raise InvalidRequest(f"{output} exists already.", hint="Add --force to overwrite it.")
    for name, data in export.files.items():
        path = output.parent / name if "/" in name else beside(output) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    partial = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(export.document)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def beside(document: Path) -> Path:
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
    done = run_with_store(args, lambda store: import_session(store, namespace_of(args), document, **options))
    return _show_import(args, done.preview, done.session.key.id)


def read_document(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return the bytes of a document, and of the media in the directory beside it, by name. Raises InvalidRequest if
    they are too large, and OSError."""
    if path.stat().st_size > MAX_BYTES:
        raise InvalidRequest(f"{path} is too large: a document can have at most {MAX_BYTES} bytes.")
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    media = sorted(beside(path).iterdir())[:MAX_FILES] if beside(path).is_dir() else []
    for medium in media:
        if not medium.is_file():
            continue
        left -= medium.stat().st_size
        if left < 0:
            raise InvalidRequest(f"The media beside {path} can have at most {MAX_BYTES} bytes in all.")
        files[medium.name] = medium.read_bytes()
    return path.read_bytes(), files


def _show_import(args: argparse.Namespace, preview: ImportPreview, id: str) -> int:
    values = dataclasses.asdict(preview) | {"left_out": dict(preview.left_out)}
    if args.json:
        print(json.dumps({"session": id or None} | values, indent=2))
        return 0
    left_out = ", ".join(f"{count} {what}" for what, count in preview.left_out.items())
    facts({"session": id or "(not created: --dry-run)"} | values | {"left_out": left_out or "nothing"}, as_json=False)
    return 0


EXPORT_ARGUMENTS = (
    argument("id", help="a session id from 'agent-kernel sessions list'"),
    argument("--format", choices=tuple(FORMATS), default="agent-kernel", help="format of the document"),
    argument("--branch", help="branch to export in a format with a single branch (default: the current one)"),
    argument("-o", "--output", type=Path, help="write to a file instead of stdout; large media go to files beside it"),
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
EXCHANGE_COMMANDS = (
    Command("export", "write a session as a document", sessions_export, EXPORT_ARGUMENTS),
    Command("import", "read a document as a new session", sessions_import, IMPORT_ARGUMENTS),
)
