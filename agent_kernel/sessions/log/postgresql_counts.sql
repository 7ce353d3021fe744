-- Unlogged like the messages: after a crash of the database, all counts begin at zero.
CREATE UNLOGGED TABLE agent_kernel_counted (
    namespace text NOT NULL,
    name text NOT NULL,
    event text NOT NULL,
    happened timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (namespace, name, event)
);
CREATE INDEX agent_kernel_counted_by_time ON agent_kernel_counted (until);
CREATE FUNCTION agent_kernel_count(
    given text, names text[], counters text[], limits integer[], length interval
) RETURNS TABLE (number integer, wait float8) LANGUAGE plpgsql AS $$
DECLARE
    place text;
    moment timestamptz;
    is_full boolean := false;
    numbers integer[] := '{}';
    waits float8[] := '{}';
    times timestamptz[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- The counters are locked until the commit, in one order, so that two servers do not both count the last event.
    -- 1095191380 is SETUP_LOCK + 1.
    FOR place IN SELECT DISTINCT t.n || E'\n' || t.c AS mark FROM unnest(names, counters) AS t (n, c) ORDER BY mark LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(place, 1095191380));
    END LOOP;
    moment := clock_timestamp();
    FOR i IN 1 .. cardinality(names) LOOP
        SELECT coalesce(array_agg(c.happened ORDER BY c.happened DESC), '{}') INTO times
        FROM agent_kernel_counted AS c
        WHERE c.namespace = names[i] AND c.name = counters[i] AND c.event <> given AND c.happened > moment - length;
        numbers := numbers || cardinality(times);
        is_full := is_full OR cardinality(times) >= limits[i];
        waits := waits || CASE WHEN cardinality(times) >= limits[i]
            THEN extract(epoch FROM times[limits[i]] + length - moment)::float8 ELSE 0 END;
    END LOOP;
    IF given <> '' AND NOT is_full THEN
        INSERT INTO agent_kernel_counted
        SELECT t.n, t.c, given, moment, moment + length FROM unnest(names, counters) AS t (n, c) ON CONFLICT DO NOTHING;
        DELETE FROM agent_kernel_counted WHERE (namespace, name, event) IN (
            SELECT o.namespace, o.name, o.event FROM agent_kernel_counted AS o WHERE o.until <= moment
            LIMIT 200 FOR UPDATE SKIP LOCKED
        );
    END IF;
    RETURN QUERY SELECT * FROM unnest(numbers, waits);
END $$;
