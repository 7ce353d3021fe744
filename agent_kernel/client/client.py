"""Implements the async client of an agent server."""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Unpack, cast

from agent_kernel.client.approval import Approve
from agent_kernel.client.client_functions import ClientFunctions, upload_file
from agent_kernel.client.discovery import ServerAddress, find
from agent_kernel.client.file import File
from agent_kernel.client.http import PAUSES_S, TIMEOUT_S, ServerConnection, json_of
from agent_kernel.client.input_file import Given, InputFile, input_file
from agent_kernel.client.multipart_form import MultipartForm
from agent_kernel.client.output_schema import shape_of
from agent_kernel.client.result import Result
from agent_kernel.client.sessions_client import SessionsClient
from agent_kernel.client.turn import RESUME_S, FollowOptions, StartedTurn, Turn
from agent_kernel.client.turn_options import TurnOptions, body_of, check_options
from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.protocols import Tool
from agent_kernel.core.session import new_id
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.notebook.server_client import route

PRIVATE = "private:"
"""Prefix of the ids of sessions that the server keeps only in memory."""
USER_DATA = "user_data"


class Client:
    """An async client. Use it in one event loop and close it: ``async with Client() as client``.

    ``url`` and ``token`` select the server. Without them the client uses AGENT_KERNEL_URL and AGENT_KERNEL_TOKEN, else
    (in a kernel) the server that started this kernel, else a running Jupyter server of this user on this machine.
    ``defaults`` are options of every turn (``TurnOptions``). ``retries`` is the number of times that a failed request
    is repeated (see ServerConnection). After a lost connection, the client tries for ``resume_s`` seconds to follow the
    turn again. ``verify`` is an SSL context with your own certificates, or a bool that says whether certificates are
    verified at all.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: int = len(PAUSES_S),
        resume_s: float = RESUME_S,
        verify: ssl.SSLContext | bool | None = None,
        **defaults: Unpack[TurnOptions],
    ) -> None:
        check_options(defaults)
        self._place = find(url, token)
        self._connection = ServerConnection(self._place, timeout_s=timeout_s, retries=retries, verify=verify)
        self._defaults = defaults
        self._resume_s = resume_s
        self._name = f"python-{secrets.token_hex(4)}"
        self.sessions = SessionsClient(self._connection)
        self.files = FilesClient(self._connection)
        self.skills = SkillsClient(self._connection)

    @property
    def place(self) -> ServerAddress:
        """The server that the client uses."""
        return self._place

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Turns that run on the server continue."""
        await self._connection.aclose()

    async def run(self, prompt: str, **options: Unpack[TurnOptions]) -> Result:
        """Run one turn to its end and return its result. Cancelling the task stops the turn.

        Raises the error with which a failed turn ended, OutputInvalid, and with ``busy="raise"`` SessionBusy. If
        somebody else stops the turn, returns a result with the state ``cancelled``.
        """
        turn = self.stream(prompt, **options)
        result = await turn.result()
        if result.error is not None:
            result.error.details.setdefault("turn", result.turn)
            result.error.details.setdefault("session", result.session)
            raise result.error
        return result

    def stream(self, prompt: str, **options: Unpack[TurnOptions]) -> Turn:
        """Return a turn that yields all its events when it is iterated. The turn begins when it is iterated or entered
        (``async with``)."""
        chosen = self._options(options)
        functions = ClientFunctions(chosen.get("functions") or (), self._name)
        return Turn(self._connection, partial(self._begin, prompt, chosen, functions), self._terms(chosen, functions))

    def follow(
        self,
        turn: str,
        *,
        session: str = "",
        after: int = 0,
        approve: Approve | None = None,
        functions: Sequence[Tool | Callable[..., Any]] = (),
        stop_when_left: bool = False,
    ) -> Turn:
        """Follow a running or finished turn. The first event is the one after event number ``after``.

        After a restart the server has only the stored messages of a turn, without event numbers. The whole turn is then
        yielded again, with new event numbers that continue from ``after``.
        """
        options: TurnOptions = {"approve": approve, "leave_running": not stop_when_left}

        async def attach() -> StartedTurn:
            return StartedTurn(turn, session, attached=True)

        terms = self._terms(options, ClientFunctions(functions, self._name), after)
        return Turn(self._connection, attach, terms)

    async def cancel(self, turn: str, reason: str = STOPPED_BY_USER) -> str:
        """Stop a turn and return the state that it ends with. ``reason`` is stored with the turn. Raises
        TurnNotFound."""
        reply = await self._connection.call("POST", route("turns", turn, "cancel"), {"reason": reason})
        return str(reply["state"])

    async def approvals(self) -> list[dict[str, Any]]:
        """Return the approvals that wait for an answer, oldest first."""
        return list((await self._connection.call("GET", "agent/approvals"))["approvals"])

    async def models(self) -> dict[str, Any]:
        """Return the models of the catalog of the server, and which of them are installed or loaded."""
        return await self._connection.call("GET", "models")

    async def health(self) -> dict[str, Any]:
        """Return the state of the server: version, engine, store and sandbox."""
        return await self._connection.call("GET", "health")

    async def usage(self, session: str) -> dict[str, Any]:
        """Return the tokens and seconds that the turns of a session used, and how full the model's context is."""
        return await self.sessions.usage(session)

    async def tools(self) -> dict[str, Any]:
        """Return the tools that the server offers to a turn."""
        return await self._connection.call("POST", "tools", {})

    # These methods have the names that they have in the SDK of mistral.rs.

    async def list_session_ids(self) -> list[str]:
        """Return the session ids, newest first."""
        return [session.id for session in await self.sessions.list()]

    async def export_session(self, session_id: str) -> str | None:
        """Return the session with its files as JSON for ``import_session``; None if it does not exist."""
        try:
            return (await self.sessions.export(session_id)).decode()
        except NotFound:
            return None

    async def import_session(self, session_id: str, serialized: str) -> None:
        """Replace the session of this id with a session that agent-kernel or mistral.rs exported. Raises
        InvalidRequest."""
        await self.sessions.replace(session_id, serialized)

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session; return False if it did not exist."""
        return await self.sessions.delete(session_id)

    async def fork_session(self, src: str, dest: str, num_turns: int | None = None) -> None:
        """Copy the first ``num_turns`` turns (None: all; 0: none) of ``src`` to the new session ``dest``. Raises
        SessionNotFound, and Conflict if ``dest`` exists."""
        await self.sessions.fork(src, num_turns, dest)

    def _options(self, options: TurnOptions) -> TurnOptions:
        check_options(options)
        return cast("TurnOptions", {**self._defaults, **options})

    def _terms(self, options: TurnOptions, functions: ClientFunctions, after: int = 0) -> FollowOptions:
        output = options.get("output")
        return FollowOptions(
            functions,
            options.get("approve"),
            None if output is None else shape_of(output),
            options.get("leave_running", False),
            self._resume_s,
            after,
        )

    async def _begin(self, prompt: str, options: TurnOptions, functions: ClientFunctions) -> StartedTurn:
        body = await asyncio.to_thread(body_of, prompt, options, functions.to_json())
        session = self._session(options)
        if files := options.get("files"):
            body["inputs"] = [await self._file(file, session) for file in files]
        path = route("sessions", session, "turns") if session else "turns"
        key = {"Idempotency-Key": f"turn-{secrets.token_hex(16)}"}
        reply = await self._connection.call("POST", path, body, headers=key, repeatable=True)
        return StartedTurn(str(reply["turn"]), str(reply["session"]))

    def _session(self, options: TurnOptions) -> str:
        """Return the id of the turn's session. A new id is chosen here if files must be uploaded to the session before
        the turn. Returns "" if the server chooses the session.

        The server creates the session at the first request that names its id. The client needs no request that lists or
        creates sessions, so a token without that right works too.
        """
        if session := options.get("session", ""):
            return session
        session_id = new_id("session") + secrets.token_hex(5)
        if options.get("private"):
            return PRIVATE + session_id
        return (
            session_id if options.get("files") and not self._place.kernel else ""
        )  # the session of the kernel's notebook

    async def _file(self, source: Given | File, session: str) -> str:
        if isinstance(source, File):
            if source.error is not None or not source.id:
                raise InvalidRequest(
                    f"The server has no content of the file {source.name!r}, so a turn cannot use it.",
                    hint="Upload the file again.",
                )
            return source.id
        return (await self.files.upload(source, session)).id


# Uploads, lists, reads and deletes the files of the caller.


class FilesClient:
    """The files that the caller has on a server. Methods that take the id of a file raise FileNotFound if there is no
    such file."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def upload(self, file: Given, session: str = "", *, name: str = "", purpose: str = USER_DATA) -> File:
        """Stream a file to the server. The session is created if it does not exist.

        Without a session, the file can later be given to a turn of any session. Raises FileTooLarge, QuotaExceeded,
        InvalidRequest.
        """
        upload_input = input_file(file)
        if name:
            upload_input = type(upload_input)(name, upload_input.source, upload_input.mime)
        return await upload_file(self._connection, upload_input, session, purpose)

    async def list(self, session: str = "", limit: int | None = None) -> Sequence[File]:
        """Return all files of the caller, newest first, or the files of one session, oldest first."""
        reply = await self._connection.call("GET", "files", query={"session": session or None, "limit": limit})
        return [self._file(file) for file in reply["data"]]

    async def get(self, id: str, session: str = "") -> File:
        return self._file(await self._connection.call("GET", route("files", id), query={"session": session or None}))

    async def delete(self, id: str, session: str = "") -> None:
        """Delete the file from the session ``session``. Without ``session``, delete it from all sessions that have
        it."""
        await self._connection.call("DELETE", route("files", id), query={"session": session or None})

    def _file(self, wire: dict[str, Any]) -> File:
        return File.from_json(wire, connection=self._connection)


# Adds, lists and removes the skills of the caller.


@dataclass(frozen=True, slots=True)
class Skill:
    """An installed skill; a turn names it by ``id`` or ``id@version``."""

    id: str
    name: str
    description: str
    latest_version: str
    created_at: int = 0

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Skill:
        return cls(
            str(wire["id"]),
            str(wire["name"]),
            str(wire["description"]),
            str(wire["latest_version"]),
            int(wire.get("created_at", 0)),
        )


class SkillsClient:
    """The skills of a server. Adding and removing requires a user's token; a kernel's credential is refused."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def add(self, path: str | os.PathLike[str], *, version_of: str = "") -> Skill:
        """Upload a skill: a folder with a ``SKILL.md``, or a zip file of such a folder. Symbolic links in the folder
        are left out. ``version_of`` is the id of the skill of which this is a new version. Raises InvalidRequest,
        QuotaExceeded."""
        with tempfile.TemporaryFile() as packed:
            form = MultipartForm({}, await asyncio.to_thread(_package, path, packed), field="files")
            target = route("skills", version_of, "versions") if version_of else "skills"
            response = await self._connection.send("POST", target, form.pieces(), headers=form.headers)
        reply = json_of(response)
        return await self.get(version_of) if version_of else Skill.from_json(reply)

    async def list(self) -> Sequence[Skill]:
        return [Skill.from_json(skill) for skill in (await self._connection.call("GET", "skills"))["data"]]

    async def get(self, id: str) -> Skill:
        return Skill.from_json(await self._connection.call("GET", route("skills", id)))

    async def delete(self, id: str) -> None:
        await self._connection.call("DELETE", route("skills", id))


def _package(path: str | os.PathLike[str], packed: BinaryIO) -> InputFile:
    """Return the file at ``path`` if it is a zip. A folder is packed into the file ``packed``."""
    source = Path(path).expanduser()
    if not source.is_dir():
        return InputFile.from_path(source, mime="application/zip")
    _zip(source, packed)
    return InputFile.from_file(packed, f"{source.resolve().name}.zip", "application/zip")


def _zip(folder: Path, into: BinaryIO) -> None:
    if not (folder / "SKILL.md").is_file():
        raise InvalidRequest(f"{str(folder)!r} has no SKILL.md.", hint="A skill is a folder with this file.")
    root = folder.resolve()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(root):
                archive.write(path, Path(root.name, path.relative_to(root)).as_posix())
    into.seek(0)
