"""The ``agent-kernel`` command, also as ``python -m agent_kernel``."""

import sys


def main() -> int:
    """Run the command and return its exit code. Ctrl-C also ends it without a traceback while it is being imported."""
    try:
        from agent_kernel.cli import main as run_command
    except KeyboardInterrupt:
        sys.stderr.write("agent-kernel: stopped.\n")
        return 130
    return run_command()


if __name__ == "__main__":
    sys.exit(main())
