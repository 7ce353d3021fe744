-- The turns of a session are a tree. A segment is a piece of it that grew at one end: its own items, behind those of
-- ``parent`` up to ``since``, which is an item of ``parent`` (0: none before). A branch is a name for the segment at its
-- end; rows of branches stand in the order in which they were made. Segment 0 needs no row.

CREATE TABLE segments (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    id INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (namespace, session, id)
) WITHOUT ROWID;

CREATE INDEX segments_by_parent ON segments (namespace, session, parent, since);

CREATE TABLE branches (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    segment INTEGER NOT NULL,
    parent TEXT NOT NULL,
    created REAL NOT NULL,
    PRIMARY KEY (namespace, session, name)
);

-- The names of dropped branches are never assigned again, so that a client that still uses the name of a dropped branch
-- cannot read or continue another one.
CREATE TABLE dropped_branches (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (namespace, session, name)
) WITHOUT ROWID;

ALTER TABLE sessions ADD COLUMN branch TEXT NOT NULL DEFAULT 'main';
ALTER TABLE sessions ADD COLUMN segment INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN accessed REAL NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN context TEXT NOT NULL DEFAULT 'null';

UPDATE sessions SET accessed = updated;

INSERT INTO branches (namespace, session, name, segment, parent, created)
SELECT namespace, id, 'main', 0, '', created FROM sessions;

ALTER TABLE items ADD COLUMN segment INTEGER NOT NULL DEFAULT 0;
DROP INDEX items_in_order;
CREATE UNIQUE INDEX items_in_order ON items (namespace, session, segment, seq);
CREATE INDEX media_by_item ON media (namespace, session, seq);

-- since: the head of the session when the turn was opened.
ALTER TABLE turns ADD COLUMN segment INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN since INTEGER NOT NULL DEFAULT 0;

UPDATE turns SET since = first.seq - 1
FROM (SELECT namespace, session, turn, min(seq) AS seq FROM items GROUP BY namespace, session, turn) AS first
WHERE turns.namespace = first.namespace AND turns.session = first.session AND turns.id = first.turn;

-- A turn without items began after the items of the turns before it; a turn that is still open continues there.
UPDATE turns SET since = (
    SELECT coalesce(max(i.seq), 0) FROM turns AS t JOIN items AS i
    ON i.namespace = t.namespace AND i.session = t.session AND i.turn = t.id
    WHERE t.namespace = turns.namespace AND t.session = turns.session AND t.ordinal < turns.ordinal
)
WHERE NOT EXISTS (
    SELECT 1 FROM items WHERE namespace = turns.namespace AND session = turns.session AND turn = turns.id
);

CREATE INDEX turns_by_segment ON turns (namespace, session, segment, since, ordinal);
CREATE INDEX failed_turns ON turns (namespace, session, id) WHERE state = 'failed';
CREATE INDEX turns_by_id ON turns (namespace, id);
CREATE INDEX turns_by_cell ON turns (namespace, session, cell) WHERE cell <> '';
CREATE INDEX open_turns ON turns (state) WHERE state = 'open';
