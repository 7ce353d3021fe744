from __future__ import annotations

import subprocess
import sys

CHECKED = """
import sys
sys.modules["rfc3987"] = None  # another package for the same formats, which these tests have and users have not
from agent_kernel.core.net.deferred_iri_grammar import defer_iri_grammar
defer_iri_grammar()
import jupyter_server.serverapp, jsonschema
print("lark" in sys.modules)
validator = jsonschema.Draft7Validator({"format": "iri"}, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
print(validator.is_valid("https://exämple.org/ü"), validator.is_valid("no iri"), "lark" in sys.modules)
"""


def test_the_grammar_is_built_at_the_first_check_and_not_with_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", CHECKED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False", "True"], done.stderr


IMPORTED = """
import sys
import agent_kernel.engines.local.worker.worker
print("jsonschema" in sys.modules)
from agent_kernel.engines.local.worker import bootstrap
sys.modules["rfc3987"] = None
bootstrap.add_package(bootstrap.PACKAGE)
bootstrap.defer_grammar()
import jsonschema
print("lark" in sys.modules)
"""


def test_a_model_worker_starts_without_jsonschema_and_never_builds_the_grammar() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
