CREATE TABLE spent (
    user TEXT NOT NULL,
    token TEXT NOT NULL,
    minute INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (user, token, minute)
) WITHOUT ROWID;
