"""A FAKE MongoDB: it speaks the wire protocol of MongoDB (OP_MSG) to the real client, with collections of mongomock.

It has no replica set, no disk, no users and no TTL thread, and runs one command at a time.
AGENT_KERNEL_TEST_MONGODB=mongodb://... tests a real server (``servers.py``).
"""

from __future__ import annotations

import itertools
import socket
import socketserver
import struct
import threading
from datetime import UTC, datetime
from typing import Any

import bson
import mongomock

LIMITS = {"maxBsonObjectSize": 16 * 1024 * 1024, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000}
HELLO = {"isWritablePrimary": True, "helloOk": True, "minWireVersion": 0, "maxWireVersion": 21, **LIMITS}
OP_MSG, OP_QUERY, OP_REPLY = 2013, 2004, 1


class FakeMongo:
    """The server, on a port of this machine, and its data. ``lose_replies`` is the number of replies to commands of the
    name ``losing`` that are lost: the command runs, and the connection ends.
    """

    def __init__(self) -> None:
        self.kept: Any = mongomock.MongoClient()
        self.losing, self.lose_replies = "", 0
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: set[socket.socket] = set()
        self._start(0)

    def _start(self, port: int) -> None:
        fake = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                fake._open.add(self.request)
                try:
                    while fake._answer(self.request):
                        pass
                except OSError:
                    pass  # the client went away, or ``stop`` closed the connection
                finally:
                    fake._open.discard(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        self._server = Server(("127.0.0.1", port), Connection)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def fresh(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/chats{next(self._numbers)}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for one in list(self._open):
            one.close()

    def restart(self) -> None:
        self._start(self.port)

    # ------------------------------------------------------------------------------------------- the wire

    def _answer(self, connection: socket.socket) -> bool:
        head = _receive(connection, 16)
        if not head:
            return False
        length, request, _, kind = struct.unpack("<iiii", head)
        body = _receive(connection, length - 16)
        command = _read_message(body) if kind == OP_MSG else _read_query(body)
        name = next(iter(command))
        with self._lock:
            try:
                reply = {**self._run(name, command), "ok": 1.0}
            except Exception as error:  # noqa: BLE001  # the client gets every error
                reply = {"ok": 0.0, "errmsg": f"{type(error).__name__}: {error}", "code": getattr(error, "code", 1)}
            if name == self.losing and self.lose_replies:
                self.lose_replies -= 1
                return False
        document = bson.encode(reply)
        if kind == OP_MSG:
            packed, answers = struct.pack("<IB", 0, 0) + document, OP_MSG
        else:
            packed, answers = struct.pack("<iqii", 8, 0, 0, 1) + document, OP_REPLY
        connection.sendall(struct.pack("<iiii", 16 + len(packed), 0, request, answers) + packed)
        return True

    # ------------------------------------------------------------------------------------------- the commands

    def _run(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        if name.lower() in ("hello", "ismaster"):
            return {**HELLO, "localTime": datetime.now(UTC), "logicalSessionTimeoutMinutes": 30}
        if name in ("ping", "endSessions", "killCursors"):
            return {}
        if name == "dropDatabase":
            self.kept.drop_database(command["$db"])
            return {}
        collection = self.kept[command["$db"]][command[name]]
        ran: dict[str, Any] = getattr(self, f"_{name}")(collection, command)
        return ran

    def _find(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        found = collection.find(command["filter"], command.get("projection"))
        if "sort" in command:
            found = found.sort(list(command["sort"].items()))
        documents = [*found.limit(abs(command.get("limit", 0)))]
        # All at once: what the log reads in one call fits into one message.
        return {"cursor": {"id": 0, "ns": f"{command['$db']}.{command['find']}", "firstBatch": documents}}

    def _insert(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        for number, document in enumerate(command["documents"]):
            try:
                collection.insert_one(document)
            except mongomock.DuplicateKeyError as error:
                return {"n": number, "writeErrors": [{"index": number, "code": 11000, "errmsg": f"{error}"}]}
        return {"n": len(command["documents"])}

    def _update(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        matched, upserted = 0, list[dict[str, Any]]()
        for number, one in enumerate(command["updates"]):
            change = collection.update_many if one.get("multi") else collection.update_one
            done = change(one["q"], one["u"], upsert=one.get("upsert", False))
            if done.upserted_id is not None:
                upserted.append({"index": number, "_id": done.upserted_id})
            matched += done.matched_count or done.upserted_id is not None
        return {"n": matched, "nModified": matched - len(upserted), **({"upserted": upserted} if upserted else {})}

    def _delete(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        gone = 0
        for one in command["deletes"]:
            remove = collection.delete_one if one.get("limit") else collection.delete_many
            gone += remove(one["q"]).deleted_count
        return {"n": gone}

    def _findAndModify(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        found = collection.find_one_and_update(command["query"], command["update"], command.get("fields"))
        return {"value": found, "lastErrorObject": {"updatedExisting": found is not None, "n": int(found is not None)}}

    def _createIndexes(self, collection: Any, command: dict[str, Any]) -> dict[str, Any]:
        return {}


def _receive(connection: socket.socket, count: int) -> bytes:
    """Receive exactly ``count`` bytes; return no bytes if the client has closed the connection."""
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _read_message(body: bytes) -> dict[str, Any]:
    """Decode a command together with the document sequences of its message."""
    at, command = 4, dict[str, Any]()
    while at < len(body):
        kind, (size,) = body[at], struct.unpack_from("<i", body, at + 1)
        section = body[at + 1 : at + 1 + size]
        if kind == 0:
            command |= bson.decode(section)
        else:
            name, _, documents = section[4:].partition(b"\0")
            command[name.decode()] = bson.decode_all(documents)
        at += 1 + size
    return command


def _read_query(body: bytes) -> dict[str, Any]:
    """Decode the first command of a connection, which has the older format."""
    document = body[body.index(b"\0", 4) + 1 + 8 :]
    return {**bson.decode(document), "$db": "admin"}
