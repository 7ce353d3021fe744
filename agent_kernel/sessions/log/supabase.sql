-- The log of agent-kernel in a Supabase project. Run all of it in the SQL editor of the project: once, and again after
-- an upgrade of agent-kernel. Sessions stay, and servers of earlier versions can go on.
--
-- The tables are those of the store postgresql:, so both stores can be used with them. Only the function
-- agent_kernel_log is called through the API, and only with a secret key (the role service_role): row-level security is
-- on without any policy, and the roles of web pages (anon, authenticated) may neither use the tables nor call the
-- functions. To remove the log with all sessions: DROP the tables and functions whose names begin with agent_kernel_.

-- 1. The tables, and the function that commits.
-- postgresql_tables.sql
-- postgresql_commit_after.sql
INSERT INTO agent_kernel_version SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM agent_kernel_version);

-- 2. The function that the API calls. Bytes are in base64, because the API speaks JSON.
CREATE OR REPLACE FUNCTION agent_kernel_log(operation text, given jsonb) RETURNS jsonb LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    answer jsonb;
BEGIN
    CASE operation
    WHEN 'version' THEN
        SELECT jsonb_build_object('version', max(version), 'compares', true) INTO answer FROM agent_kernel_version;
    WHEN 'read', 'read_among' THEN
        -- One statement, so the entries are those of one moment. A page has about 4 MB, and at least one entry.
        -- read_among reads only the namespaces in seen.
        WITH wanted AS (
            SELECT name, coalesce((given -> 'seen' ->> name)::bigint, 0) AS seen FROM agent_kernel_namespaces
            WHERE operation = 'read' AND position > coalesce((given -> 'seen' ->> name)::bigint, 0)
            UNION ALL
            SELECT key, value::bigint FROM jsonb_each_text(given -> 'seen') WHERE operation = 'read_among'
        ), following AS (
            SELECT e.* FROM wanted AS n JOIN agent_kernel_entries AS e
            ON e.namespace = n.name AND e.position > n.seen
            ORDER BY e.namespace COLLATE "C", e.position LIMIT 1001
        ), counted AS (
            SELECT following.*, row_number() OVER places AS place, sum(octet_length(body)) OVER places AS size
            FROM following WINDOW places AS (ORDER BY namespace COLLATE "C", position)
        )
        SELECT jsonb_build_object(
            'now', extract(epoch FROM clock_timestamp()),
            'more', count(*) < (SELECT count(*) FROM following),
            'entries', coalesce(jsonb_agg(jsonb_build_array(
                namespace, position, session, replaces, translate(encode(body, 'base64'), E'\n', '')
            ) ORDER BY place), '[]')
        ) INTO answer FROM counted WHERE place = 1 OR (place <= 1000 AND size <= 4000000);
    WHEN 'commit' THEN
        -- Without after, no namespace is compared.
        SELECT jsonb_build_object('positions', agent_kernel_commit_after(
            ARRAY(SELECT key FROM jsonb_each_text(given -> 'after') ORDER BY key),
            ARRAY(SELECT value::bigint FROM jsonb_each_text(given -> 'after') ORDER BY key),
            given ->> 'id',
            coalesce(array_agg(a ->> 'namespace' ORDER BY i), '{}'),
            coalesce(array_agg(a ->> 'session' ORDER BY i), '{}'),
            coalesce(array_agg((a ->> 'expect')::bigint ORDER BY i), '{}'),
            coalesce(array_agg(decode(a ->> 'body', 'base64') ORDER BY i), '{}'),
            coalesce(array_agg((a ->> 'replaces')::boolean ORDER BY i), '{}')
        )) INTO answer FROM jsonb_array_elements(given -> 'appends') WITH ORDINALITY AS appends (a, i);
    WHEN 'put_blob' THEN
        INSERT INTO agent_kernel_blobs
        VALUES (given ->> 'namespace', given ->> 'digest', now(), decode(given ->> 'data', 'base64'))
        ON CONFLICT (namespace, digest) DO UPDATE SET stored = now();
        answer := '{}';
    WHEN 'get_blob' THEN
        SELECT jsonb_build_object('data', (
            SELECT translate(encode(data, 'base64'), E'\n', '') FROM agent_kernel_blobs
            WHERE namespace = given ->> 'namespace' AND digest = given ->> 'digest'
        )) INTO answer;
    WHEN 'touch_blobs' THEN
        UPDATE agent_kernel_blobs SET stored = now()
        WHERE namespace = given ->> 'namespace'
        AND digest IN (SELECT jsonb_array_elements_text(given -> 'digests'));
        answer := '{}';
    WHEN 'drop_blobs' THEN
        WITH dropped AS (
            DELETE FROM agent_kernel_blobs AS b
            WHERE stored <= now() - make_interval(secs => (given ->> 'grace')::float8) AND NOT EXISTS (
                SELECT 1 FROM jsonb_array_elements(given -> 'named') AS k
                WHERE k ->> 0 = b.namespace AND k ->> 1 = b.digest
            ) RETURNING octet_length(data) AS size
        )
        SELECT jsonb_build_object('freed', coalesce(sum(size), 0)) INTO answer FROM dropped;
    ELSE
        RAISE EXCEPTION 'agent_kernel_log has no operation %', operation;
    END CASE;
    RETURN answer;
END $$;

-- 3. Nobody but the secret key.
ALTER TABLE agent_kernel_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent_kernel_namespaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent_kernel_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent_kernel_commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE agent_kernel_blobs ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON agent_kernel_version, agent_kernel_namespaces, agent_kernel_entries, agent_kernel_commits,
    agent_kernel_blobs FROM PUBLIC, anon, authenticated;
GRANT SELECT, INSERT, UPDATE, DELETE ON agent_kernel_version, agent_kernel_namespaces, agent_kernel_entries,
    agent_kernel_commits, agent_kernel_blobs TO service_role;
REVOKE ALL ON FUNCTION agent_kernel_log(text, jsonb) FROM PUBLIC, anon, authenticated;
REVOKE ALL ON FUNCTION agent_kernel_commit(text, text[], text[], bigint[], bytea[], boolean[])
    FROM PUBLIC, anon, authenticated;
REVOKE ALL ON FUNCTION agent_kernel_commit_after(text[], bigint[], text, text[], text[], bigint[], bytea[], boolean[])
    FROM PUBLIC, anon, authenticated;
GRANT EXECUTE ON FUNCTION agent_kernel_log(text, jsonb) TO service_role;
GRANT EXECUTE ON FUNCTION agent_kernel_commit(text, text[], text[], bigint[], bytea[], boolean[]) TO service_role;
GRANT EXECUTE ON FUNCTION agent_kernel_commit_after(text[], bigint[], text, text[], text[], bigint[], bytea[],
    boolean[]) TO service_role;

-- 4. The API learns of the new function.
NOTIFY pgrst, 'reload schema';
