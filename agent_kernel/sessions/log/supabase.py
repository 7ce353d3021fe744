"""The log of several servers in a Supabase project: the tables of ``postgresql.py``, used through the project's API.

The log calls only one SQL function. ``supabase.sql`` contains this function and the permissions. A person runs that
file, with the SQL of ``postgresql.py`` in it, in the project's SQL editor: ``python -m
agent_kernel.sessions.log.supabase`` prints it.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agent_kernel.core.errors import InvalidRequest, StoreError
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder, NamedClient
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail, map_positions
from agent_kernel.sessions.log.postgresql import COMMIT_AFTER, TABLES, read_sql

VERSION = 1
FUNCTION = "agent_kernel_log"
TIMEOUT_S = 60.0
_MISSING = {"PGRST202", "42883", "42P01"}
"""Codes of errors that a missing function or table causes."""
_HERE = {"127.0.0.1", "localhost", "::1"}


class SupabaseLog(NamedClient):
    """A LogStore in the project that ``url`` names (supabase://SECRET_KEY@PROJECT.supabase.co). It uses TLS, except on
    this machine, where the local stack of Supabase has none. Raises InvalidRequest for a URL that cannot be read, or if
    postgrest is not installed, the part of supabase-py that calls functions.

    ``compares`` (see LogStore) is false until the log has reached the project. It stays false if the project still has
    the SQL function of an earlier version.
    """

    def __init__(self, url: str) -> None:
        try:
            import httpx
            import postgrest
        except ImportError:
            raise log_errors.missing_package("supabase", "postgrest", "supabase") from None
        self._httpx, self._postgrest = httpx, postgrest
        self._url = url
        try:
            self._place, self._key, self._schema = _read_url(url)
        except ValueError:
            raise InvalidRequest(
                "The URL of the Supabase store cannot be read.",
                hint="Use supabase://SECRET_KEY@PROJECT.supabase.co; the query may have schema=NAME.",
            ) from None
        self.name = f"The Supabase store at {urlsplit(self._place).netloc}"
        self._client = ClientHolder(self._connect, self._check, lambda client: client.session.close())
        self.compares = False

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        if among is None or not self.compares:
            reply = self._call("read", seen=dict(after))
        else:
            reply = self._call("read_among", seen={name: after.get(name, 0) for name in among})
        entries = [
            Entry(namespace, position, session, replaces, base64.b64decode(body))
            for namespace, position, session, replaces, body in reply["entries"]
        ]
        return Tail(float(reply["now"]), entries, reply["more"])

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        given = [
            {
                "namespace": append.namespace,
                "session": append.session,
                "expect": append.expect,
                "body": None if append.body is None else _to_text(append.body),
                "replaces": append.replaces,
            }
            for append in appends
        ]
        compared = {"after": dict(after)} if after and self.compares else {}
        positions = self._call("commit", id=id, appends=given, **compared)["positions"]
        if positions is None:
            raise LogConflict
        return map_positions(appends, positions)

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        self._call("put_blob", namespace=namespace, digest=digest, data=_to_text(data))

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        data = self._call("get_blob", namespace=namespace, digest=digest)["data"]
        return None if data is None else base64.b64decode(data)

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._call("touch_blobs", namespace=namespace, digests=[*digests])

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        return int(self._call("drop_blobs", named=[[*place] for place in referenced], grace=grace)["freed"])

    def bus(self) -> None:
        """Return None: servers of this database cannot send each other messages."""

    def close(self) -> None:
        self._client.close()

    def _call(self, operation: str, **given: Any) -> Any:
        """Call the function, on a new connection if the old one broke. Raises StoreError."""
        broken = self._httpx.TransportError
        try:
            return self._client.use(
                lambda client: self._send(client, operation, given), lambda error: isinstance(error, broken)
            )
        except broken as error:
            raise self._to_store_error(str(error) or type(error).__name__) from None
        except self._postgrest.APIError as error:
            self.close()
            # A gateway that refuses the key may send an error in a form that the library does not know.
            refused = str(error.code) in ("401", "403")
            cause = "the project refused the secret key" if refused else f"{error.message}"
            raise self._to_store_error(cause, error.code) from None

    def _send(self, client: Any, operation: str, arguments: Mapping[str, Any]) -> Any:
        return client.rpc(FUNCTION, {"operation": operation, "given": arguments}).execute().data

    def _connect(self) -> Any:
        return self._postgrest.SyncPostgrestClient(
            f"{self._place}/rest/v1",
            schema=self._schema,
            headers={"apikey": self._key, "Authorization": f"Bearer {self._key}"},
            http_client=self._httpx.Client(timeout=TIMEOUT_S),
        )

    def _check(self, client: Any) -> None:
        answer = self._send(client, "version", {})
        if answer["version"] != VERSION:
            raise log_errors.newer_format(self.name, answer["version"], VERSION, "project or schema")
        self.compares = answer.get("compares", False)

    def _to_store_error(self, cause: str, code: str | None = None) -> StoreError:
        # Only the first line is shown, because the others may quote values.
        line = next(iter(cause.strip().splitlines()), "no reason was given")
        if code in _MISSING:
            hint = "Run what `python -m agent_kernel.sessions.log.supabase` prints in the SQL editor of the project."
        else:
            hint = "Check the project and its secret key. The store works again as soon as the project can be reached."
        return log_errors.unusable(self.name, line[:300].replace(self._key, "..."), hint)


def project_sql() -> str:
    """Return the SQL that a person runs in the SQL editor of the project: ``supabase.sql``, in which the comments that
    name other files are replaced by these files."""
    sql = read_sql("supabase.sql")
    for name in (TABLES, COMMIT_AFTER):
        sql = sql.replace(f"-- {name}\n", read_sql(name))
    return sql


def _read_url(url: str) -> tuple[str, str, str]:
    """Return the address of the project, the secret key, and the schema. Raises ValueError if the URL has another form
    or an unknown option."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    key, host, schema = unquote(parts.username or ""), parts.hostname or "", options.pop("schema", "public")
    if options or parts.fragment or parts.password is not None or parts.path not in ("", "/"):
        raise ValueError("option")
    if not re.fullmatch(r"[\w.-]+", key, re.ASCII) or not re.fullmatch(r"\w{1,63}", schema, re.ASCII):
        raise ValueError("key or schema")
    if not re.fullmatch(r"[\w.:-]+", host, re.ASCII):
        raise ValueError("host")
    address = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{'http' if host in _HERE else 'https'}://{address}{port}", key, schema


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    sys.stdout.write(project_sql())
