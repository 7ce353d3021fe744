"""The server's side of the sandbox: policy, processes, the proxy, and validation of tables and charts from the
sandbox."""
