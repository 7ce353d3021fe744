-- When a file goes by itself, in seconds since the epoch; 0: with its session only.

ALTER TABLE files ADD COLUMN expires REAL NOT NULL DEFAULT 0;
