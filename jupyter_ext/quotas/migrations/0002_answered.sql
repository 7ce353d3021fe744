CREATE TABLE answered (
    user TEXT NOT NULL,
    subject TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    turn TEXT NOT NULL,
    session TEXT NOT NULL,
    facts TEXT NOT NULL,
    began REAL NOT NULL,
    PRIMARY KEY (user, subject, key)
) WITHOUT ROWID;
CREATE INDEX answered_began ON answered (user, began);
