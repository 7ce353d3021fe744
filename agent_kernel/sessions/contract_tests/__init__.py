"""The contract of the store interfaces of agent-kernel, as tests that any project can run on its own implementation;
they need pytest.

    from agent_kernel.sessions.contract_tests.suite import *

A test module that contains this line and defines the fixture ``store`` runs all of them; see docs/session-stores.md.
"""

import pkgutil

import pytest

# This must run before the contracts are imported, so that a failing assert in them shows the compared values.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
