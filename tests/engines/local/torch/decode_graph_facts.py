"""Prints how steps with padded sizes and recorded graphs change answers, as JSON: ``python decode_graph_facts.py DIR``.

Runs in an interpreter that has torch, on a CPU. There, a graph is replaced by another call of the model with the same
tensors, which a graph reads too; everything else is as on a CUDA device.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from agent_kernel.engines.local.backend import DecodingOptions, OutputGrammar
from agent_kernel.engines.local.torch.batched_backend import Transformers
from agent_kernel.engines.local.torch.decode_graphs import DecodeGraphs
from tests.engines.local.torch.transformers_facts import Answer, Run


class Repeated:
    """In place of a CUDA graph: calls the model again with the tensors of the recorded step."""

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        self._model, self._inputs = model, inputs
        self.logits = model(**inputs).logits

    def replay(self) -> None:
        self.logits.copy_(self._model(**self._inputs).logits)


class GraphsOnCpu(DecodeGraphs):
    def _record(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        graph = Repeated(self._model, inputs)
        return graph, graph.logits


class NoGraphs(DecodeGraphs):
    def _record(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


class ChangedLibrary(DecodeGraphs):
    def install(self, manager: Any) -> None:
        raise AttributeError("no model_runner")


def answers(run: Run) -> list[list[Any]]:
    """Return answers to a long prompt alone, to ten requests together with different options, and to a later turn."""
    long = run.prompt(1500)
    found = [run.one(long)]
    options: list[dict[str, Any]] = [
        {},
        {"temperature": 0.8, "seed": 3, "top_p": 0.9},
        {"temperature": 0.8, "seed": 4, "top_p": 0.9, "logprob": True},
        {"grammar": OutputGrammar("regex", "[0-9]{4}")},
        {"repetition_penalty": 2.0, "logprob": True},
    ]
    found += run.ask(*((run.prompt(30 + 40 * at), DecodingOptions(20, **options[at % 5])) for at in range(10)))
    found.append(run.one([*long, *found[0].ids, *run.prompt(90, "x")], max_tokens=20))
    return [_told(answer) for answer in found]


def _told(answer: Answer) -> list[Any]:
    return [answer.ids, [round(number, 3) for number in answer.logprobs], answer.finish, answer.reused]


def main() -> None:
    directory = Path(sys.argv[1])
    told: dict[str, Any] = {}
    code = 1
    try:
        told["without"] = answers(Run(directory))
        for kind in (GraphsOnCpu, NoGraphs, ChangedLibrary):
            run = _with_graphs(directory, kind)
            told[kind.__name__] = {
                "answers": answers(run),
                "graphs": run.backend._graphs.count if run.backend._graphs else 0,
                "details": run.backend._describe_loaded().details.get("cuda graphs"),
            }
        print(json.dumps(told), flush=True)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)  # the managers' threads are not daemons


def _with_graphs(directory: Path, kind: type[DecodeGraphs]) -> Run:
    """Load a model whose steps use graphs of ``kind``, as on a CUDA device."""
    own = Transformers._new_graphs
    Transformers._new_graphs = lambda backend: kind(backend._model.model)  # type: ignore[assignment]
    try:
        return Run(directory)
    finally:
        Transformers._new_graphs = own  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
