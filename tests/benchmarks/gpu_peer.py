"""Measures the batching of transformers itself, with its own defaults, on the prompts of ``gpu_rows.py``.

``python gpu_peer.py MODEL PRECISION DEVICE NEW_TOKENS SESSIONS...``, in an interpreter that has torch, prints one JSON
object: tokens per second for each number of sessions. The first round of each number is not counted, as in
``gpu_rows.py``.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import transformers

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main() -> None:
    path, precision, device, tokens, *sessions = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    dtype = PRECISIONS.get(precision, torch.float32 if device == "cpu" else torch.bfloat16)
    quantised = {
        "int8": lambda: transformers.BitsAndBytesConfig(load_in_8bit=True),
        "nf4": lambda: transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        ),
    }
    more = {"quantization_config": quantised[precision]()} if precision in quantised else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, device_map={"": device}, local_files_only=True, **more
    ).eval()
    settings = transformers.GenerationConfig(do_sample=False, max_new_tokens=int(tokens), eos_token_id=-1)
    batching = transformers.ContinuousBatchingConfig()
    if device == "cpu":
        batching = transformers.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=512, max_memory_percent=1.0)
    rates = {}
    with model.continuous_batching_context_manager(
        generation_config=settings, continuous_batching_config=batching
    ) as manager:
        for number in map(int, sessions):
            for _ in range(2):
                prompts = [
                    tokenizer.apply_chat_template(
                        [{"role": "user", "content": f"Session {at}: tell a long story about the number {at}."}],
                        add_generation_prompt=True,
                        return_dict=False,
                    )
                    for at in range(number)
                ]
                started = time.perf_counter()
                manager.add_requests(prompts, max_new_tokens=int(tokens))
                done = count = 0
                while done < number:
                    result = manager.get_result(timeout=60)
                    if result is None or result.error:
                        raise SystemExit(f"no answer: {result and result.error}")
                    if result.is_finished():
                        done, count = done + 1, count + len(result.generated_tokens)
                rates[number] = count / (time.perf_counter() - started)
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
