CREATE TABLE IF NOT EXISTS agent_kernel_version (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS agent_kernel_namespaces (name text PRIMARY KEY, position bigint NOT NULL);
CREATE TABLE IF NOT EXISTS agent_kernel_entries (
    namespace text NOT NULL,
    position bigint NOT NULL,
    session text NOT NULL,
    replaces boolean NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (namespace, position)
);
CREATE INDEX IF NOT EXISTS agent_kernel_streams ON agent_kernel_entries (namespace, session, position);
CREATE TABLE IF NOT EXISTS agent_kernel_commits (
    id text PRIMARY KEY, positions bigint[] NOT NULL, time timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS agent_kernel_commits_by_time ON agent_kernel_commits (time);
CREATE TABLE IF NOT EXISTS agent_kernel_blobs (
    namespace text NOT NULL,
    digest text NOT NULL,
    stored timestamptz NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (namespace, digest)
);
-- The row of a namespace is locked until the commit, so its positions become visible in their order. The result is NULL
-- when a stream has a later entry than the writer expects. Ids are kept for a day.
CREATE OR REPLACE FUNCTION agent_kernel_commit(
    given text, names text[], sessions text[], expected bigint[], bodies bytea[], replacing boolean[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    place bigint;
    places bigint[] := '{}';
BEGIN
    INSERT INTO agent_kernel_namespaces SELECT DISTINCT name, 0 FROM unnest(names) AS name ORDER BY name
    ON CONFLICT DO NOTHING;
    PERFORM 1 FROM agent_kernel_namespaces WHERE name = ANY (names) ORDER BY name FOR UPDATE;
    SELECT positions INTO places FROM agent_kernel_commits WHERE id = given;
    IF FOUND THEN RETURN places; END IF;
    places := '{}';
    FOR i IN 1 .. cardinality(names) LOOP
        SELECT coalesce(max(position), 0) INTO place FROM agent_kernel_entries
        WHERE namespace = names[i] AND session = sessions[i];
        IF place <> expected[i] THEN RETURN NULL; END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(names) LOOP
        place := 0;
        IF bodies[i] IS NOT NULL THEN
            UPDATE agent_kernel_namespaces SET position = position + 1 WHERE name = names[i]
            RETURNING position INTO place;
            IF replacing[i] THEN
                DELETE FROM agent_kernel_entries WHERE namespace = names[i] AND session = sessions[i];
                DELETE FROM agent_kernel_commits WHERE time < now() - interval '1 day';
            END IF;
            INSERT INTO agent_kernel_entries VALUES (names[i], place, sessions[i], replacing[i], bodies[i]);
        END IF;
        places := places || place;
    END LOOP;
    INSERT INTO agent_kernel_commits VALUES (given, places, now());
    RETURN places;
END $$;
