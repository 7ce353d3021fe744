"""The side of the server: policy, processes, the proxy, and validation of what comes out of the sandbox."""
