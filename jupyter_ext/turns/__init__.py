"""The turns of a server: starting them, logging their events, answering repeated requests, and regenerating answers."""
