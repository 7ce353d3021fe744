-- imported: from which document the session came, as JSON; null for a session that began in this store. It stood in the
-- metadata, which every client may write. There it counted whatever its value was.

ALTER TABLE sessions ADD COLUMN imported TEXT NOT NULL DEFAULT 'null';

UPDATE sessions SET
    imported = iif(
        json_type(metadata, '$."agent_kernel.origin"') = 'object',
        json_extract(metadata, '$."agent_kernel.origin"'),
        '{}'
    ),
    metadata = json_remove(metadata, '$."agent_kernel.origin"')
WHERE json_valid(metadata) AND json_type(metadata, '$."agent_kernel.origin"') IS NOT NULL;
