"""Checks the sentences that a small model writes about the output of its code, while they are streamed. A sentence that
fails a check is replaced (``code_fence_fallback_answer``)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Chunk, EndChunk, TextChunk
from agent_kernel.engines.local.tool_calling import code_fence_fallback_answer

MISSED_DATA = re.compile(
    r"\A[^.!?\n]*\b(?:(?:don't|can't|cannot|not|no|without|need|provide)\b[^.!?\n]*\b(?:access|information|data|context|details)"
    r"|keinen Zugriff|keine (?:Informationen|Daten)|pas (?:accès|d'informations)|no tengo (?:acceso|información))\b",
    re.IGNORECASE,
)
"""Finds a first sentence that says that the model lacks the data."""
SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
LAST_WORD = re.compile(r"[\w.,-]*$")
"""Finds the word or number at the end of a text that may still grow."""


def checked_sentence(
    chunks: AsyncGenerator[Chunk, None], result: Message, question: str, *, corrected: bool
) -> AsyncGenerator[Chunk, None]:
    """Return the model's answer ``chunks``, checked against ``result``, the result of its call. If the output of the
    call has several rows and the answer contradicts them, the answer is replaced by the rows. Otherwise, with
    ``corrected``, names of months and weekdays and the number of decimals are corrected."""
    if rows := code_fence_fallback_answer.rows_of(result.text):
        return _sentence_or_rows(chunks, rows, question)
    return stream_corrected(chunks, result.text, question) if corrected else chunks


async def replace_if_data_are_missed(
    text: AsyncGenerator[Chunk, None], code: AsyncGenerator[Chunk, None]
) -> AsyncGenerator[Chunk, None]:
    """Yield ``text``, the model's answer in text. If its first sentence says that the model lacks the data, yield
    ``code`` instead, the model's answer as a call. The model then wrote the text without the descriptions of the
    tables, because the question names no table."""
    held: list[Chunk] | None = []
    first_text = ""
    async with aclosing(text), aclosing(code):
        async for chunk in text:
            if held is None:
                yield chunk
                continue
            held.append(chunk)
            first_text += chunk.text if isinstance(chunk, TextChunk) else ""
            missed = MISSED_DATA.search(first_text)
            if isinstance(chunk, EndChunk) and missed:
                async for part in code:
                    yield replace(part, usage=chunk.usage + part.usage) if isinstance(part, EndChunk) else part
            elif isinstance(chunk, EndChunk) or (not missed and SENTENCE_END.search(first_text)):
                for one in held:
                    yield one
                held = None


async def _sentence_or_rows(
    chunks: AsyncGenerator[Chunk, None], rows: Sequence[str], question: str
) -> AsyncGenerator[Chunk, None]:
    """Yield the model's answer ``chunks`` if it agrees with ``rows``, the rows of the output of its code. Otherwise
    yield the rows instead."""
    written: list[TextChunk] = []
    async with aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                written.append(chunk)
                continue
            if isinstance(chunk, EndChunk):
                sentence = "".join(part.text for part in written)
                agrees = code_fence_fallback_answer.agrees(sentence, rows, question)
                for part in written if agrees else [TextChunk(code_fence_fallback_answer.format_rows(rows))]:
                    yield part
            yield chunk


async def stream_corrected(
    chunks: AsyncGenerator[Chunk, None], output: str, question: str
) -> AsyncGenerator[Chunk, None]:
    """Yield the model's answer ``chunks`` word by word, with names of months and weekdays that the output does not
    support replaced (see ``with_true_dates``), and with the decimals that the question asks for."""
    held = ""
    async with aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                held += chunk.text
                words = LAST_WORD.sub("", held)
                held = held[len(words) :]
            else:
                words, held = held, ""
            if words:
                words = code_fence_fallback_answer.with_true_dates(words, output, question)
                yield TextChunk(code_fence_fallback_answer.with_asked_decimals(words, output, question))
            if not isinstance(chunk, TextChunk):
                yield chunk
