"""Reports which texts xgrammar accepts: reads ``[grammar, text]`` lines, writes true, false or an error for each. Runs
in an interpreter that has torch.
"""

import json
import sys

import xgrammar
from xgrammar.testing import _is_grammar_accept_string

for line in sys.stdin:
    grammar, text = json.loads(line)
    try:
        print(json.dumps(_is_grammar_accept_string(xgrammar.Grammar.from_ebnf(grammar), text)))
    except Exception as error:  # noqa: BLE001  the test shows it
        print(json.dumps(str(error)))
