-- What the first version of the store wrote: turns with and without items, a failed one, media, a turn left open.
PRAGMA application_id = 1095191379;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE bindings (
    namespace TEXT NOT NULL,
    root TEXT NOT NULL,
    path TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (namespace, root, path)
);
INSERT INTO "bindings" VALUES('local','/r','a.ipynb','s');
CREATE TABLE blobs (
    namespace TEXT NOT NULL,
    hash TEXT NOT NULL,
    mime TEXT NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (namespace, hash)
);
INSERT INTO "blobs" VALUES('local','c44ae139fa18eb9eb89263b72b36d5090472272e660a6f80c2926ed68ab0d9a2','image/png',64,X'89504E47000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000');
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
INSERT INTO "items" VALUES('local','s',1,'t1','user','message',NULL,'{"role":"user","content":[{"type":"text","text":"u1"},{"type":"media","mime":"image/png","hash":"c44ae139fa18eb9eb89263b72b36d5090472272e660a6f80c2926ed68ab0d9a2","size":64}]}','cell-t1','',1700000003.0);
INSERT INTO "items" VALUES('local','s',2,'t1','assistant','calls',NULL,'{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"python","arguments":{"code":"1+1"}}}]}','cell-t1','',1700000003.0);
INSERT INTO "items" VALUES('local','s',3,'t1','tool','result','c1','{"role":"tool","content":"2","tool_call_id":"c1","name":"python","status":"success"}','cell-t1','',1700000003.0);
INSERT INTO "items" VALUES('local','s',4,'t1','assistant','message',NULL,'{"role":"assistant","content":"a1"}','cell-t1','',1700000003.0);
INSERT INTO "items" VALUES('local','s',5,'t3','user','message',NULL,'{"role":"user","content":"u3"}','cell-t3','',1700000008.0);
INSERT INTO "items" VALUES('local','s',6,'t3','assistant','message',NULL,'{"role":"assistant","content":"a3"}','cell-t3','',1700000008.0);
INSERT INTO "items" VALUES('local','s',7,'t4','user','message',NULL,'{"role":"user","content":"u4"}','cell-t4','',1700000011.0);
INSERT INTO "items" VALUES('local','s',8,'t4','assistant','message',NULL,'{"role":"assistant","content":"a4"}','cell-t4','',1700000011.0);
INSERT INTO "items" VALUES('other','open',1,'t1','user','message',NULL,'{"role":"user","content":"u1"}','cell-t1','',1700000018.0);
CREATE TABLE media (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    hash TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (namespace, session, hash, seq)
) WITHOUT ROWID;
INSERT INTO "media" VALUES('local','s','c44ae139fa18eb9eb89263b72b36d5090472272e660a6f80c2926ed68ab0d9a2',1);
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
INSERT INTO "sessions" VALUES('local','s','An older one',1700000001.0,1700000014.0,8,14,5);
INSERT INTO "sessions" VALUES('local','empty','',1700000015.0,1700000015.0,0,1,0);
INSERT INTO "sessions" VALUES('other','open','',1700000016.0,1700000020.0,1,5,2);
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
INSERT INTO "turns" VALUES('local','s','t1',1,'committed','why','cell-t1','','','',1700000000.0,1700000004.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000003.0);
INSERT INTO "turns" VALUES('local','s','t2',2,'cancelled','why','cell-t2','','','',1700000000.0,1700000006.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000005.0);
INSERT INTO "turns" VALUES('local','s','t3',3,'failed','why','cell-t3','','','',1700000000.0,1700000009.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000008.0);
INSERT INTO "turns" VALUES('local','s','t4',4,'committed','why','cell-t4','','','',1700000000.0,1700000012.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000011.0);
INSERT INTO "turns" VALUES('local','s','t5',5,'cancelled','why','cell-t5','','','',1700000000.0,1700000014.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000013.0);
INSERT INTO "turns" VALUES('other','open','t1',1,'committed','why','cell-t1','','','',1700000000.0,1700000019.0,'{"prompt_tokens":1,"completion_tokens":2,"reused_tokens":0,"first_token_s":0.0,"seconds":0.0,"decode_s":0.0,"tokens_per_s":0.0}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000018.0);
INSERT INTO "turns" VALUES('other','open','t2',2,'open','','cell-t2','','','',1700000000.0,NULL,'{}','{}','{}','{"instance": "elsewhere", "pid": 1, "boot": "another-boot", "machine": "another-machine", "pid_namespace": "", "started": ""}','elsewhere',1700000020.0);
CREATE INDEX sessions_by_update ON sessions (namespace, updated);
CREATE UNIQUE INDEX turns_in_order ON turns (namespace, session, ordinal);
CREATE UNIQUE INDEX one_open_turn ON turns (namespace, session) WHERE state = 'open';
CREATE UNIQUE INDEX items_in_order ON items (namespace, session, seq);
CREATE INDEX media_by_hash ON media (namespace, hash);
CREATE INDEX bindings_by_session ON bindings (namespace, session);
COMMIT;
