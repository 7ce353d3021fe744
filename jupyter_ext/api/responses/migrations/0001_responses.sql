CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    created REAL NOT NULL,
    bytes INTEGER NOT NULL,
    facts TEXT NOT NULL,
    input TEXT NOT NULL,
    body TEXT,
    frames BLOB
);
CREATE INDEX responses_by_age ON responses (namespace, created, bytes);
CREATE INDEX responses_by_session ON responses (namespace, session);
