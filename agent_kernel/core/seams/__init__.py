"""The interfaces of the stores: sessions, files of a session, permission grants. Implementations are in
``sessions.store``.
"""
