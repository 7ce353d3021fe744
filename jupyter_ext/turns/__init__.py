"""Running turns: start, event log, idempotency, regeneration."""
