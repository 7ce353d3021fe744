"""What llama.cpp does with a GGUF file, as one JSON object; run by an interpreter that has llama-cpp-python.

    python llama_peer.py FILE CONVERSATION.json

CONVERSATION is ``{"turns": [prompt text, ...], "filler": text}``: the last two prompts of a conversation as the chat
template renders them, and text to fill a context with. Every figure is the best with and without flash attention, on
all cores; what decodes is measured RUNS times on one context, and long prompts, which take it a minute, once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from llama_cpp import Llama, llama_cpp

NEW = 32
RUNS = 2


def decode_rate(model: Llama, ids: list[int]) -> float:
    """Return the tokens per second that the model decodes after a prompt with these ids: the best of RUNS runs."""
    model.reset()
    model.eval(ids)
    token = model.sample(temp=0)
    rates = []
    for _ in range(RUNS):
        started = time.perf_counter()
        for _ in range(NEW):
            model.eval([token])
            token = model.sample(temp=0)
        rates.append(NEW / (time.perf_counter() - started))
    return max(rates)


def first_token(model: Llama, prompt: list[int]) -> float:
    """Return the seconds to the first token. ``generate`` reuses the longest prefix that it has already evaluated."""
    started = time.perf_counter()
    next(iter(model.generate(prompt, temp=0)))
    return time.perf_counter() - started


def measure(path: str, talk: dict[str, Any], threads: int, flash: bool) -> dict[str, float]:
    model = Llama(
        path, n_ctx=8192, n_threads=threads, n_threads_batch=threads, n_batch=512, flash_attn=flash, verbose=False
    )
    filler = model.tokenize(talk["filler"].encode())
    before, after = (model.tokenize(text.encode(), add_bos=False, special=True) for text in talk["turns"])
    rates = {f"decode_{size}": decode_rate(model, filler[:size]) for size in (512, 2048)}
    first_token(model, before)
    seconds = first_token(model, after)
    model.close()
    return {**rates, "next_turn_s": seconds, "new_tokens": float(len(after) - len(before))}


def main() -> None:
    path, talk = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    cores = os.cpu_count() or 1
    runs = {
        f"{threads} threads, flash attention {'on' if flash else 'off'}": measure(path, talk, threads, flash)
        for threads in (cores,)
        for flash in (False, True)
    }
    best = {name: max(run[name] for run in runs.values()) for name in ("decode_512", "decode_2048")}
    best["next_turn_s"] = min(run["next_turn_s"] for run in runs.values())
    build = llama_cpp.llama_print_system_info().decode().strip(" |\n")
    print(json.dumps({"build": build, "runs": runs, "best": best}))


if __name__ == "__main__":
    main()
