"""Runs the ``agent-kernel`` command with ``python -m agent_kernel.cli``."""

from __future__ import annotations

import sys

from agent_kernel.cli import main

sys.exit(main())
