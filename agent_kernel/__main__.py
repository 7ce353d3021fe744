"""The ``agent-kernel`` command, also as ``python -m agent_kernel``."""

import sys
from importlib import import_module


def main() -> int:
    """Run the command and return its exit code. Ctrl-C also ends it without a traceback while it is being imported."""
    try:
        command = import_module("agent_kernel.cli")
    except KeyboardInterrupt:
        sys.stderr.write("agent-kernel: stopped.\n")
        return 130
    status: int = command.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
