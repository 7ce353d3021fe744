-- Namespace and session are columns of every row, never one string, so that no id can be read as another's.
-- Tables keep their rowid: rows are larger than an index page holds well.

CREATE TABLE sessions (
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, id)
);

CREATE INDEX sessions_by_update ON sessions (namespace, updated);

-- pending: the calls of the turn that have no result yet, {id: name}; kept here so that an append reads no items.
-- owner, instance, heartbeat: the lease. location: Turn.where.
CREATE TABLE turns (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    cell TEXT NOT NULL,
    epoch TEXT NOT NULL,
    location TEXT NOT NULL,
    model TEXT NOT NULL,
    opened REAL NOT NULL,
    closed REAL,
    usage TEXT NOT NULL,
    record TEXT NOT NULL,
    pending TEXT NOT NULL,
    owner TEXT NOT NULL,
    instance TEXT NOT NULL,
    heartbeat REAL NOT NULL,
    PRIMARY KEY (namespace, session, id)
);

CREATE UNIQUE INDEX turns_in_order ON turns (namespace, session, ordinal);
CREATE UNIQUE INDEX one_open_turn ON turns (namespace, session) WHERE state = 'open';

-- body: Message.to_json. kind, call_id, cell and epoch repeat what body and turn say, for queries by cell and call.
CREATE TABLE items (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    turn TEXT NOT NULL,
    role TEXT NOT NULL,
    kind TEXT NOT NULL,
    call_id TEXT,
    body TEXT NOT NULL,
    cell TEXT NOT NULL,
    epoch TEXT NOT NULL,
    time REAL NOT NULL
);

CREATE UNIQUE INDEX items_in_order ON items (namespace, session, seq);

-- Bytes are stored once per namespace; the table media records which items refer to them. A blob to which no item
-- refers is deleted.
CREATE TABLE blobs (
    namespace TEXT NOT NULL,
    hash TEXT NOT NULL,
    mime TEXT NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (namespace, hash)
);

CREATE TABLE media (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    hash TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (namespace, session, hash, seq)
) WITHOUT ROWID;

CREATE INDEX media_by_hash ON media (namespace, hash);

CREATE TABLE bindings (
    namespace TEXT NOT NULL,
    root TEXT NOT NULL,
    path TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (namespace, root, path)
);

CREATE INDEX bindings_by_session ON bindings (namespace, session);
