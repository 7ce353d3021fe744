-- A summary stands for all of its branch up to ``last``; the items stay. One at a time: summary_claims.

CREATE TABLE summaries (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    segment INTEGER NOT NULL,
    last INTEGER NOT NULL,
    text TEXT NOT NULL,
    model TEXT NOT NULL,
    usage TEXT NOT NULL,
    reason TEXT NOT NULL,
    time REAL NOT NULL
);

CREATE INDEX summaries_by_session ON summaries (namespace, session, last);

CREATE TABLE summary_claims (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    instance TEXT NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (namespace, session)
) WITHOUT ROWID;
