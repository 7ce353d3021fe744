"""``python -m agent_kernel`` is the ``agent-kernel`` command."""

import sys

from agent_kernel.cli import main

if __name__ == "__main__":
    sys.exit(main())
