"""The modules that all HTTP handlers share: the base class, request bodies, server-sent events, uploads, errors."""
