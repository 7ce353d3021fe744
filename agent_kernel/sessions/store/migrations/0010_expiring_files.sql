-- When a file is deleted automatically, in seconds since the epoch; 0: only with its session.

ALTER TABLE files ADD COLUMN expires REAL NOT NULL DEFAULT 0;
