"""Parts of every HTTP handler: base class, bodies, server-sent events, uploads, errors."""
