"""The interfaces of the stores (sessions, files of a session, permission grants), whose implementations are in
``sessions.store``, and of the sandbox, which ``sandbox.host`` implements.
"""
