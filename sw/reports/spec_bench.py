"""Results of a bench as Spec-Bench writes its own: a JSON line for each prompt and method, times by the device's clock.

``wall_time`` is in seconds, host included; ``accept_lengths`` are committed tokens a step (Xia et al. 2024).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gemmule.config import Host

__all__ = ["spec_bench_lines"]


def spec_bench_lines(results: Sequence[dict[str, Any]], model: str, host: Host, prompts: Sequence[tuple[str, str]],
                     words: Callable[[list[int]], str]) -> Iterator[str]:
    """Lines of the results of prompts alone.

    ``prompts``: category and name of each, which are numbered from 1; ``words``: text of token ids.
    """
    numbers = {prompt: number for number, prompt in enumerate(prompts, 1)}
    for result in results:
        run, number = result["run"], numbers[result["category"], result["prompt"]]
        cycles = (sum(run["cycles"].values()) + sum(run["launches"].values()) * host.launch_cycles
                  + run["steps"] * host.step_cycles)
        name = f"{model}-{result['method']}" + f"-{result['num_tokens']}" * bool(result["num_tokens"])
        name += "-warm" * result["warm"] + f"-{result['rule']}-{result['temperature']:g}" * bool(result["temperature"])
        yield json.dumps({
            "question_id": number, "category": result["category"], "answer_id": f"{name}-{number}", "model_id": name,
            "choices": [{"index": 0, "turns": [words(result["text"])], "decoding_steps": [run["steps"]],
                         "new_tokens": [run["tokens"]], "wall_time": [cycles / (host.clock_mhz * 1e6)],
                         "accept_lengths": [accepted + 1 for _, accepted in result["steps"]]}]}, ensure_ascii=False)
