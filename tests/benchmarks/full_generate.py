"""Measures the time to the first token when ``generate()`` computes the whole prompt: ``full_generate.py MODEL CACHE``.
Reads the messages of the chat as JSON from standard input and prints JSON.

An interpreter that has torch runs this file. The model is loaded exactly as the engine loads it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.torch.load import ConvertedModel, load_model

RUNS = 3


def main() -> None:
    path, cache = Path(sys.argv[1]), Path(sys.argv[2])
    loaded = load_model(path, LoadOptions(device="cpu"), cache, lambda stage, fraction: None)
    prompt = loaded.tokenizer.apply_chat_template(json.load(sys.stdin), add_generation_prompt=True, return_dict=False)
    ids = torch.tensor([prompt])
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        loaded.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
        seconds.append(time.perf_counter() - started)
    directory = ConvertedModel(path, cache).directory if path.is_file() else path
    told = {"first_token_s": sorted(seconds), "prompt_tokens": len(prompt), "directory": str(directory)}
    print(json.dumps(told | {"dtype": loaded.dtype}))


if __name__ == "__main__":
    main()
