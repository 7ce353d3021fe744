"""Checks whether a text matches a grammar, with Python's regular expressions: our grammars are not recursive."""

from __future__ import annotations

import json
import re

from agent_kernel.engines.local.backend import OutputGrammar

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\w+|\{\d+(?:,\d*)?\}|[()|*+?]|\s+')


def as_regex(grammar: OutputGrammar) -> str:
    rules = dict(line.split(" ::= ", 1) for line in grammar.text.splitlines())
    done: dict[str, str] = {}

    def expanded(name: str) -> str:
        if name not in done:
            done[name] = "".join(map(piece, TOKEN.findall(rules[name])))
        return done[name]

    def piece(token: str) -> str:
        if token.isspace():
            return ""
        if token[0] == '"':
            said = re.sub(r"\\U(\w{8})", lambda code: chr(int(code[1], 16)), token)
            return f"(?:{re.escape(json.loads(said))})"
        if token == "(":
            return "(?:"
        return f"(?:{expanded(token)})" if token[0].isalpha() else token

    return expanded("root")


def matches(grammar: OutputGrammar, text: str) -> bool:
    return re.fullmatch(as_regex(grammar), text) is not None
