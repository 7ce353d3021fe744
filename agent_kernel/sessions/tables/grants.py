"""SQL for the decisions of people about tool calls: questions, answers, and grants for the rest of a session."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, replace

from agent_kernel.core.approval import UNANSWERED, ApprovalQuestion, Grant
from agent_kernel.core.messages import Message, Text
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.tables import sessions
from agent_kernel.sessions.tables.rows import HERE, count_changes, insert_row, pair

QUESTION = "id, turn, call, kind, tool, shown, outcome, remember, message, asked, answered, edited"


def select_grants(db: sqlite3.Connection, key: SessionKey) -> list[Grant]:
    rows = db.execute(f"SELECT kind, tool, decision, time FROM grants WHERE {HERE} ORDER BY kind, tool", pair(key))
    return [Grant(*row) for row in rows]


def insert_grant(db: sqlite3.Connection, key: SessionKey, grant: Grant) -> None:
    sessions.require_session(db, key)
    serialization.text(grant.kind, "kind")
    serialization.text(grant.tool, "tool")
    insert_row(db, "grants", key, or_replace=True, **asdict(grant))


def delete_grants(db: sqlite3.Connection, key: SessionKey, kind: str | None, tool: str | None) -> int:
    where, parameters = [HERE], [*pair(key)]
    for name, value in (("kind", kind), ("tool", tool)):
        if value is not None:
            where.append(f"{name} = ?")
            parameters.append(value)
    db.execute(f"DELETE FROM grants WHERE {' AND '.join(where)}", parameters)
    return count_changes(db)


def insert_question(db: sqlite3.Connection, question: ApprovalQuestion) -> None:
    sessions.require_session(db, question.key)
    insert_row(db, "questions", question.key, **{name: getattr(question, name) for name in QUESTION.split(", ")})


def store_answer(db: sqlite3.Connection, question: ApprovalQuestion, grant: Grant | None) -> ApprovalQuestion:
    """Store the answer in ``question``, and the grant, unless the question is already answered. Returns the question
    with the answer that is stored now."""
    db.execute(
        "UPDATE questions SET outcome = ?, remember = ?, message = ?, answered = ?, edited = ?"
        " WHERE namespace = ? AND id = ? AND outcome = 'waiting'",
        (
            *(question.outcome, question.remember, question.message, question.answered, question.edited),
            *(question.key.namespace, question.id),
        ),
    )
    if count_changes(db) and grant is not None:
        insert_grant(db, question.key, grant)
    return select_question(db, question.key.namespace, question.id) or question


def select_question(db: sqlite3.Connection, namespace: str, id: str) -> ApprovalQuestion | None:
    row = db.execute(
        f"SELECT session, {QUESTION} FROM questions WHERE namespace = ? AND id = ?", (namespace, id)
    ).fetchone()
    return ApprovalQuestion(row[1], SessionKey(namespace, row[0]), *row[2:]) if row else None


def close_questions(
    db: sqlite3.Connection, turn: Turn, pending: Mapping[str, str], state: str, reason: str
) -> list[Message]:
    """Close the open questions of a turn that is being closed, and return a result for each call in ``pending``.

    If the turn was interrupted, the result of a call that still waited for permission says that it did not run.
    """
    turn_key = (*pair(turn.key), turn.id)
    rows = db.execute(
        f"SELECT call FROM questions WHERE {HERE} AND turn = ? AND outcome = 'waiting'", turn_key
    ).fetchall()
    waiting = {call for (call,) in rows}
    if waiting:
        outcome = "interrupted" if state == "interrupted" else "cancelled"
        db.execute(
            f"UPDATE questions SET outcome = '{outcome}' WHERE {HERE} AND turn = ? AND outcome = 'waiting'", turn_key
        )
    results = call_pairs.interrupted_results(pending, reason)
    if state != "interrupted":
        return results
    return [replace(result, parts=(Text(UNANSWERED),)) if result.call_id in waiting else result for result in results]
