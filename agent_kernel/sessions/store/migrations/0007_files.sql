-- Files of a session: produced by tools and uploaded by users. Bytes are blobs, named by hash; a file that is missing
-- has an error, no hash and no size. round and turn count from 0.

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
);

CREATE INDEX files_by_id ON files (namespace, id);
CREATE INDEX files_by_hash ON files (namespace, hash);

-- Files count towards the quota, once for each session that has them.
CREATE TRIGGER file_takes_space AFTER INSERT ON files BEGIN
    UPDATE sessions SET bytes = bytes + NEW.size WHERE namespace = NEW.namespace AND id = NEW.session;
END;

CREATE TRIGGER file_gives_space AFTER DELETE ON files BEGIN
    UPDATE sessions SET bytes = bytes - OLD.size WHERE namespace = OLD.namespace AND id = OLD.session;
END;

CREATE TRIGGER file_changes_space AFTER UPDATE OF size ON files BEGIN
    UPDATE sessions SET bytes = bytes - OLD.size + NEW.size WHERE namespace = NEW.namespace AND id = NEW.session;
END;
