"""Makes titles of conversations from the beginning of the first message, or lets the model write a few words. A title
that a person wrote is never replaced."""

from __future__ import annotations

from agent_kernel.core.messages import shorten, user
from agent_kernel.core.protocols import Engine, EngineRequest, Sampling
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, SessionUpdate
from agent_kernel.turn.model_reply import Reply

MAX_TITLE = 60
"""Maximum number of characters of a title. If the first message is longer, its beginning is used and ends with an
ellipsis."""
EXCERPT = 1_500
TASK = (
    "A conversation began like this:\n\nPERSON: {question}\n\nASSISTANT: {answer}\n\nWrite a title for it: 3 to 7 "
    "words in the language of the person, no quotation marks, nothing else."
)


def title_from_text(text: str) -> str:
    """Return the beginning of a message on one line, cut between words."""
    words = " ".join(text.split())
    if len(words) <= MAX_TITLE:
        return words
    begun = words[: MAX_TITLE - 1]
    return (begun.rpartition(" ")[0] if " " in begun[MAX_TITLE // 2 :] else begun).rstrip(" ,;:.") + "…"


async def retitle(
    store: SessionStore, key: SessionKey, engine: Engine, question: str, answer: str, *, instead_of: str
) -> None:
    """Let the model write a title and store it in place of the title ``instead_of``. If the session has a different
    title by then, that title stays. Raises EngineError, StoreError."""
    prompt = TASK.format(question=shorten(question, EXCERPT), answer=shorten(answer, EXCERPT))
    sampling = Sampling(temperature=0.0, max_tokens=40)
    request = EngineRequest((user(prompt),), (), sampling, f"{key.namespace}/{key.id}#title")
    reply = Reply()
    await reply.read(engine, request)
    if title := _clean_title("".join(reply.text)):
        await store.describe(key, SessionUpdate(title=title, instead_of=instead_of))


def _clean_title(written: str) -> str:
    """Return the first non-empty line of what the model wrote, without characters that models put around titles, such
    as quotation marks."""
    around = " \t#*_\"'`“”„«»"
    lines = [line.strip(around).removeprefix("Title:").strip(around) for line in written.splitlines()]
    return title_from_text(next((line for line in lines if line), ""))
