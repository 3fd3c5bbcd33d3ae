"""Decoding methods measured side by side: each prompt by autoregressive decoding, then by every case.

Speed-up is cycles a token of autoregressive decoding by the same rule over those of the case, prompt and host counted
on both sides. Two cases bound what drafting can do: ``always``, whose drafts are the text itself, and ``never``, whose
drafts are always wrong; both draft for nothing.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.theory import acceptance_by_position, theory
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.ledger import Ledger
from gemmule.sw.reports.terminal import distinct
from gemmule.sw.runtime import Forward
from gemmule.sw.session import Session

__all__ = ["BOUNDS", "HOST_CYCLES", "Case", "Finished", "Foreseen", "measure", "rows_of"]

BOUNDS = ("always", "never")
HOST_CYCLES = (0, 2_000, 20_000)
"""Cycles of the host a launch for which speed-ups are told; the rest of a run does not depend on them."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to decode.

    Attributes:
        method: its name, or one of :data:`BOUNDS`.
        num_tokens: drafted a step at most; 0 with ``ar``.
        temperature: 0 is greedy.
        rule: name of the rule by which tokens are chosen.
    """

    method: str
    num_tokens: int
    temperature: float
    rule: str


CASE = tuple(Case.__dataclass_fields__)


class Foreseen:
    """Drafts what it is told comes next, or always something else; no model runs for it."""

    def __init__(self, prompt: int, tokens: Sequence[int], num_tokens: int, right: bool, vocab: int) -> None:
        self.prompt, self.tokens, self.num_tokens = prompt, tokens, num_tokens
        self.shift, self.vocab = 0 if right else 1, vocab

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        pass

    def propose(self, ids: list[int], budget: int) -> Tree:
        at = len(ids) - self.prompt
        coming = self.tokens[at:at + min(self.num_tokens, budget)]
        return Tree.chain(ids[-1], [(token + self.shift) % self.vocab for token in coming])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        pass


def measure(session: Session, ids: list[int], new_tokens: int, cases: Iterable[Case], stop: frozenset[int],
            rule_of: Callable[[Case], Rule]) -> Iterator[dict[str, Any]]:
    """What each case does behind a prompt; autoregressive decoding runs once for each rule."""
    references: dict[Rule, Generation] = {}
    for case in cases:
        rule = rule_of(case)
        if rule not in references:
            references[rule] = session.generate("ar", ids, new_tokens, stop=stop, rule=rule)
        reference = references[rule]
        if case.method == "ar":
            run = reference
        elif case.method in BOUNDS:
            ledger = Ledger(session.config)
            drafter = Foreseen(len(ids), reference.tokens, case.num_tokens, case.method == "always",
                               session.target.program.graph.vocab)
            run = generate(session.target, drafter, ids, new_tokens, ledger, stop, rule=rule)
        else:
            run = session.generate(case.method, ids, new_tokens, case.num_tokens, stop, rule=rule)
        yield asdict(case) | _record(run, reference, rule is GREEDY or rule.same_text)


def _record(run: Generation, reference: Generation, same_text: bool) -> dict[str, Any]:
    ledger, expected = run.ledger, theory(run, reference)
    return {
        "tokens": len(run.tokens), "equal": run.tokens == reference.tokens if same_text else None,
        "steps": [list(step) for step in run.steps], "cycles": ledger.cycles, "prefill_cycles": run.prefill.cycles,
        "speedup": {str(host): _speedup(run, reference, host) for host in HOST_CYCLES},
        "speedup_over_ar": _speedup(run, reference, None), "target_calls": ledger.launches.get("target", 0),
        "draft_calls": ledger.launches.get("draft", 0), "draft_cycle_share": ledger.cycles_of("draft") / ledger.cycles,
        "distinct_4grams": distinct(run.tokens, 4),
        "theoretical_speedup": expected.speedup if expected else None,
        "decode_speedup": expected.measured if expected else None}


def _speedup(run: Generation, reference: Generation, host: int | None) -> float:
    """By cycles a token; ``host``: cycles of the host a launch, where not those of the configuration."""
    def cost(one: Generation) -> float:
        launches = sum(one.ledger.launches.values())
        more = 0 if host is None else launches * (host - one.ledger.config.host.launch_cycles)
        return (one.ledger.cycles + more) / max(1, len(one.tokens))
    return cost(reference) / cost(run)


def rows_of(results: Sequence[dict[str, Any]], parameters: int) -> list[dict[str, Any]]:
    """One row for each case and category, ``all`` behind them where there are several; ``parameters``: a draft's."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    categories = list(dict.fromkeys(result["category"] for result in results))
    for result in results:
        case = tuple(result[name] for name in CASE)
        for category in (result["category"], *(("all",) if len(categories) > 1 else ())):
            groups.setdefault((category, *case), []).append(result)
    order = [*categories, "all"]
    keys = sorted(groups, key=lambda key: order.index(key[0]))
    return [_row(key[0], groups[key], parameters) for key in keys]


def _row(category: str, runs: list[dict[str, Any]], parameters: int) -> dict[str, Any]:
    """Of runs of one case."""
    case = Case(**{name: runs[0][name] for name in CASE})

    def mean(name: str) -> float | None:
        found = [run[name] for run in runs if run[name] is not None]
        return statistics.mean(found) if found else None

    gains = [run["speedup_over_ar"] for run in runs]
    steps = [(drafted, accepted) for run in runs for drafted, accepted in run["steps"]]
    equal = [run["equal"] for run in runs if run["equal"] is not None]
    return {
        "method": case.method, "category": category, "temperature": case.temperature,
        "num_speculative_tokens": case.num_tokens, "verify": case.rule, "prompts": len(runs),
        "equal_to_ar": sum(equal) if equal else None,
        "speedup_over_ar": statistics.mean(gains), "speedup_median": statistics.median(gains),
        "speedup_min": min(gains), "speedup_max": max(gains),
        "slower_than_ar": sum(gain < 1 for gain in gains) / len(gains),
        "speedup_by_launch_cycles": {str(host): statistics.mean(run["speedup"][str(host)] for run in runs)
                                     for host in HOST_CYCLES},
        "tokens": sum(run["tokens"] for run in runs),
        "cycles_per_token": sum(run["cycles"] for run in runs) / max(1, sum(run["tokens"] for run in runs)),
        "tokens_per_step": sum(run["tokens"] for run in runs) / max(1, len(steps)),
        "acceptance": sum(a for _, a in steps) / max(1, sum(d for d, _ in steps)),
        "acceptance_by_position": acceptance_by_position(steps),
        "target_calls": sum(run["target_calls"] for run in runs),
        "draft_calls": sum(run["draft_calls"] for run in runs),
        "extra_parameters": parameters if case.method == "draft" else 0,
        "distinct_4grams": mean("distinct_4grams"), "draft_cycle_share": mean("draft_cycle_share"),
        "theoretical_speedup": mean("theoretical_speedup"), "decode_speedup": mean("decode_speedup")}


class Finished:
    """Results that an interrupted run has, one a line of a file; those of other settings are left alone."""

    def __init__(self, path: Path | None, settings: Any) -> None:
        self.path = path
        self.settings = sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self.known: dict[str, list[dict[str, Any]]] = {}
        if path and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    kept = json.loads(line)
                    if kept["settings"] == self.settings:
                        self.known[kept["key"]] = kept["results"]
                except (ValueError, KeyError, TypeError):
                    continue  # a line that an interruption cut

    def _whole(self) -> bool:
        """Whether the last line has an end: one that was cut has none."""
        assert self.path is not None
        return self.path.read_bytes()[-1:] in (b"", b"\n")

    def of(self, key: str, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The results of ``key``, made and kept where they are not there yet."""
        if key not in self.known:
            self.known[key] = make()
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("" if self._whole() else "\n")
                    file.write(json.dumps({"settings": self.settings, "key": key, "results": self.known[key]}) + "\n")
        return self.known[key]
