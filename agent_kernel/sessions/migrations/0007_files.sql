-- Files of a session: what tools made and what people brought. Bytes are blobs, named by hash; a file that does not exist
-- has an error and no hash.

CREATE TABLE files (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    mime TEXT NOT NULL,
    size INTEGER NOT NULL,
    created REAL NOT NULL,
    format TEXT NOT NULL,
    purpose TEXT NOT NULL,
    tool TEXT NOT NULL,
    round INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    hash TEXT NOT NULL,
    preview TEXT NOT NULL,
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (namespace, session, id)
) WITHOUT ROWID;

CREATE INDEX files_by_id ON files (namespace, id);
CREATE INDEX files_by_hash ON files (namespace, hash);
