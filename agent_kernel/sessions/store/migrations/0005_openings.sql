-- The beginnings of sessions: hashes of the visible conversation up to an item, so that a lookup reads no conversation.

CREATE TABLE openings (
    namespace TEXT NOT NULL,
    scope TEXT NOT NULL,
    hash TEXT NOT NULL,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (namespace, scope, hash, session, seq)
) WITHOUT ROWID;

CREATE INDEX openings_by_item ON openings (namespace, session, seq);
