-- As agent_kernel_commit. The result is also NULL when a namespace in homes has another last position than reached.
CREATE OR REPLACE FUNCTION agent_kernel_commit_after(
    homes text[], reached bigint[],
    given text, names text[], sessions text[], expected bigint[], bodies bytea[], replacing boolean[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO agent_kernel_namespaces SELECT home, 0 FROM unnest(homes) AS home ORDER BY home ON CONFLICT DO NOTHING;
    PERFORM 1 FROM agent_kernel_namespaces WHERE name = ANY (homes) ORDER BY name FOR UPDATE;
    IF EXISTS (
        SELECT 1 FROM agent_kernel_namespaces AS n JOIN unnest(homes, reached) AS r (name, position) USING (name)
        WHERE n.position <> r.position
    ) AND NOT EXISTS (SELECT 1 FROM agent_kernel_commits WHERE id = given) THEN
        RETURN NULL;
    END IF;
    RETURN agent_kernel_commit(given, names, sessions, expected, bodies, replacing);
END $$;
