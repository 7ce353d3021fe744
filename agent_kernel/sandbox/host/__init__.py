"""The server's side of the sandbox: the policy, the jailed processes, the proxy, and the validation of tables and
charts that come from the jail."""
