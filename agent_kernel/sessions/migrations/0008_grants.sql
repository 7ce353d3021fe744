-- What a person decided for the rest of a session: a tool of a kind may run, or may not. It goes with its session, and is
-- never exported or imported.

CREATE TABLE grants (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT NOT NULL,
    decision TEXT NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (namespace, session, kind, tool)
) WITHOUT ROWID;
