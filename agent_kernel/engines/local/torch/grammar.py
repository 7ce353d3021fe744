"""Constrains output on torch with xgrammar: the logits of tokens that the grammar forbids are set to -inf.

This module works on one row of logits at a time and is independent of batches and models.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.torch.load import SETUP, TorchModel

COMPILED_BYTES = 256 << 20
"""Size in bytes of the cache of compiled grammars. A second request with the same grammar then starts at once."""
COMPILE_THREADS = 2


class Grammars:
    """Compiles grammars for one model. Creating it raises EngineError if xgrammar cannot be imported or rejects the
    vocabulary."""

    def __init__(self, model: TorchModel) -> None:
        try:
            # This is the only import of xgrammar. It imports torch, so only the worker may import it.
            import xgrammar
        except ImportError as error:
            raise EngineError(f"xgrammar cannot be imported in this environment: {error}", hint=SETUP) from error
        self._xgrammar = xgrammar
        self._rows = int(model.model.config.get_text_config().vocab_size)
        try:
            tokens = xgrammar.TokenizerInfo.from_huggingface(
                model.tokenizer, vocab_size=self._rows, stop_token_ids=sorted(model.end_ids)
            )
            self._compiler = xgrammar.GrammarCompiler(
                tokens, max_threads=COMPILE_THREADS, cache_limit_bytes=COMPILED_BYTES
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise EngineError(
                "This model cannot be made to follow an output format, because the library xgrammar cannot process its "
                f"tokenizer: {error}",
                hint="Use another model, or send no output format.",
            ) from error

    @property
    def version(self) -> str:
        return version("xgrammar")

    def begin(self, grammar: OutputGrammar) -> Constraint:
        """Return the constraint for a new output under ``grammar``. Raises EngineError if the grammar does not
        compile."""
        try:
            if grammar.kind == "regex":
                compiled = self._compiler.compile_regex(grammar.text)
            else:
                compiled = self._compiler.compile_grammar(grammar.text, root_rule_name="root")
        except RuntimeError as error:
            raise EngineError(f"xgrammar cannot compile the grammar: {error}") from error
        return Constraint(self._xgrammar, compiled, self._rows)


class Constraint:
    """The position of one output in its grammar, which determines the tokens that may come next."""

    def __init__(self, xgrammar: Any, compiled: Any, rows: int) -> None:
        self._xgrammar = xgrammar
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._bitmask = xgrammar.allocate_token_bitmask(1, rows)

    def mask(self, row: Any) -> None:
        """Set the logits of forbidden tokens to -inf in place; ``row`` has the shape (1, vocabulary), in float32. After
        a complete output only the tokens that end a turn are allowed."""
        if not self._matcher.is_terminated() and self._matcher.fill_next_token_bitmask(self._bitmask, 0):
            self._xgrammar.apply_token_bitmask_inplace(row, self._bitmask.to(row.device))

    def accept(self, token: int) -> None:
        if not self._matcher.is_terminated() and not self._matcher.accept_token(token):
            raise RuntimeError(f"xgrammar masked the logits and then refused the token {token}")
