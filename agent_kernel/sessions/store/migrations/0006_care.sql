-- bytes: of the bodies of a session's items, and of the media that they name. Kept by triggers, in a row that is written
-- with every item anyway, so that a quota costs an append no further page.

ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE sessions SET bytes = (
    SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM items AS i
    WHERE i.namespace = sessions.namespace AND i.session = sessions.id
) + (
    SELECT coalesce(sum(b.size), 0) FROM media AS m JOIN blobs AS b ON b.namespace = m.namespace AND b.hash = m.hash
    WHERE m.namespace = sessions.namespace AND m.session = sessions.id
);

CREATE TRIGGER item_takes_space AFTER INSERT ON items BEGIN
    UPDATE sessions SET bytes = bytes + length(CAST(NEW.body AS BLOB))
    WHERE namespace = NEW.namespace AND id = NEW.session;
END;

CREATE TRIGGER item_gives_space AFTER DELETE ON items BEGIN
    UPDATE sessions SET bytes = bytes - length(CAST(OLD.body AS BLOB))
    WHERE namespace = OLD.namespace AND id = OLD.session;
END;

CREATE TRIGGER item_changes_space AFTER UPDATE OF body ON items BEGIN
    UPDATE sessions SET bytes = bytes - length(CAST(OLD.body AS BLOB)) + length(CAST(NEW.body AS BLOB))
    WHERE namespace = NEW.namespace AND id = NEW.session;
END;

CREATE TRIGGER medium_takes_space AFTER INSERT ON media BEGIN
    UPDATE sessions SET bytes = bytes + coalesce(
        (SELECT size FROM blobs WHERE namespace = NEW.namespace AND hash = NEW.hash), 0
    ) WHERE namespace = NEW.namespace AND id = NEW.session;
END;

CREATE TRIGGER medium_gives_space AFTER DELETE ON media BEGIN
    UPDATE sessions SET bytes = bytes - coalesce(
        (SELECT size FROM blobs WHERE namespace = OLD.namespace AND hash = OLD.hash), 0
    ) WHERE namespace = OLD.namespace AND id = OLD.session;
END;

-- The quarantine: what repair removed, rows as JSON and bytes unchanged. It is deleted with its session.
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    origin TEXT NOT NULL,
    row TEXT NOT NULL,
    data BLOB,
    why TEXT NOT NULL,
    time REAL NOT NULL
);

CREATE INDEX quarantine_by_session ON quarantine (namespace, session);
