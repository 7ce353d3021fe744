-- What people and models said, in the form in which it is searched (sessions/search.py), taken over from the items in
-- batches: ``folded`` is how far a session is taken over. The index of these texts is made by the first process that
-- has the module for it, so this file can be used without.

ALTER TABLE sessions ADD COLUMN folded INTEGER NOT NULL DEFAULT 0;
CREATE INDEX unfolded_sessions ON sessions (namespace) WHERE folded < head;

-- number: a session's place in the order of texts; those of one namespace are neighbours.
CREATE TABLE search_places (
    number INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    UNIQUE (namespace, session)
);

-- id: of number, seq and role (tables/search.py).
CREATE TABLE search_texts (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    text TEXT NOT NULL
);

-- Texts that were taken over where there was no index.
CREATE TABLE search_unindexed (
    id INTEGER PRIMARY KEY
);

-- What is to be done to the index.
CREATE TABLE search_chores (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
