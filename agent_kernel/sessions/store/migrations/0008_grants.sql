-- A user's decisions for the rest of a session: calls of a tool are allowed or denied. They are deleted with their
-- session, and are never exported or imported.

CREATE TABLE grants (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT NOT NULL,
    decision TEXT NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (namespace, session, kind, tool)
) WITHOUT ROWID;

-- Each call that a user was asked about, and the answer: an answer counts once, also after a restart of the server.

CREATE TABLE questions (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    turn TEXT NOT NULL,
    call TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT NOT NULL,
    shown TEXT NOT NULL,
    outcome TEXT NOT NULL,
    remember TEXT NOT NULL,
    message TEXT NOT NULL,
    asked REAL NOT NULL,
    answered REAL,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

CREATE INDEX questions_of_turns ON questions (namespace, session, turn);
