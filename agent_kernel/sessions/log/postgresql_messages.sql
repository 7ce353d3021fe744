-- The table of messages is unlogged, because events of running turns need no disk. The sequence does not belong to it,
-- so that positions also grow after a crash of the database, which empties the table.
CREATE SEQUENCE agent_kernel_message_positions;
CREATE UNLOGGED TABLE agent_kernel_messages (
    namespace text NOT NULL,
    topic text NOT NULL,
    position bigint NOT NULL,
    body bytea NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (namespace, topic, position)
);
CREATE TABLE agent_kernel_values (
    namespace text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    body bytea NOT NULL,
    written timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX agent_kernel_values_by_time ON agent_kernel_values (until);
CREATE INDEX agent_kernel_messages_by_time ON agent_kernel_messages (until);
-- The topics are locked until the commit, in one order, so the positions of a topic become visible in their order. The
-- marks of the topics have 16 characters (MARK_CHARS in postgresql.py). More than 400 of them do not fit into a
-- notification, which then wakes all receivers. 1095191379 is SETUP_LOCK.
CREATE FUNCTION agent_kernel_send(
    names text[], topics text[], bodies bytea[], kept float8[], replacing boolean[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    marks text[];
    place text;
BEGIN
    -- Messages need not survive a crash, so nothing waits for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT array_agg(mark ORDER BY mark) INTO marks FROM (
        SELECT DISTINCT left(md5(name || E'\n' || topic), 16) AS mark
        FROM unnest(names, topics) AS t (name, topic)
    ) AS t;
    FOREACH place IN ARRAY marks LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(place, 1095191379));
    END LOOP;
    FOR i IN 1 .. cardinality(names) LOOP
        IF replacing[i] THEN
            DELETE FROM agent_kernel_messages WHERE namespace = names[i] AND topic = topics[i];
        END IF;
        INSERT INTO agent_kernel_messages VALUES (
            names[i], topics[i], nextval('agent_kernel_message_positions'), bodies[i],
            now() + make_interval(secs => kept[i])
        );
    END LOOP;
    DELETE FROM agent_kernel_messages WHERE (namespace, topic, position) IN (
        SELECT namespace, topic, position FROM agent_kernel_messages WHERE until <= now()
        LIMIT 200 FOR UPDATE SKIP LOCKED
    );
    PERFORM pg_notify('agent_kernel_' || md5(current_schema()),
        CASE WHEN cardinality(marks) <= 400 THEN array_to_string(marks, ' ') ELSE '' END);
    RETURN cardinality(names);
END $$;
