-- The messages of users and models in the form in which they are searched (sessions/search/text_matching.py), copied
-- from the items in batches: ``folded`` is the seq up to which a session is copied. The index of these texts is created
-- by the first process whose SQLite has the FTS5 module, so the file can also be used without the module.

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

-- Texts that were copied by a process without the index module.
CREATE TABLE search_unindexed (
    id INTEGER PRIMARY KEY
);

-- Pending work on the index.
CREATE TABLE search_chores (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
