"""The table of a bench: one row for the runs of a case and category, with the predictions of theory.

The speed-up is cycles per token of autoregressive decoding by the same rule, divided by those of the case; prompt and
host are included on both sides. Theory excludes the prompt (:mod:`gemmule.sw.benches.theory`).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmule.config import Host
from gemmule.sw.benches.bench import CASE, Case
from gemmule.sw.benches.theory import Theory, acceptance_by_position, best_length, break_even, theory_of

__all__ = ["HOST_CYCLES", "best_of", "rows_of"]

HOST_CYCLES = (0, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
"""Host cycles per launch for which speed-ups are reported; the rest of a run does not depend on them."""


def _cycles(costs: dict[str, Any], host: Host, *, prompt: bool) -> int:
    """Cycles of device and host; without ``prompt``, those of the prompt are excluded."""
    launches, device = sum(costs["launches"].values()), sum(costs["cycles"].values())
    if not prompt:
        launches -= sum(costs["prefill_launches"].values())
        device -= sum(costs["prefill_cycles"].values())
    return int(device + launches * host.launch_cycles + costs["steps"] * host.step_cycles)


def _behind(costs: dict[str, Any], model: str, host: Host) -> tuple[int, int]:
    """(launches, cycles with the host's work for them) of a model, prompt excluded."""
    launches = costs["launches"].get(model, 0) - costs["prefill_launches"].get(model, 0)
    device = costs["cycles"].get(model, 0) - costs["prefill_cycles"].get(model, 0)
    return launches, device + launches * host.launch_cycles


def _gain(result: dict[str, Any], host: Host) -> float | None:
    """Throughput of prompts that share passes, relative to the same prompts one at a time."""
    if "alone" not in result:
        return None
    run, alone = result["run"], result["alone"]
    return (_cycles(alone, host, prompt=True) / max(1, alone["tokens"])) / (
        _cycles(run, host, prompt=True) / max(1, run["tokens"]))


def _speedup(result: dict[str, Any], host: Host) -> float:
    """By cycles per token, prompt included."""
    run, ar = result["run"], result["ar"]
    return (_cycles(ar, host, prompt=True) / max(1, ar["tokens"])) / (
        _cycles(run, host, prompt=True) / max(1, run["tokens"]))


def _theory(result: dict[str, Any], host: Host) -> Theory | None:
    run, ar = result["run"], result["ar"]
    if not ar["steps"]:
        return None
    return theory_of([(d, a) for d, a in result["steps"]], run["tokens"], drafting=_behind(run, "draft", host)[1],
                     cycles=_cycles(run, host, prompt=False), step=_cycles(ar, host, prompt=False) / ar["steps"])


def rows_of(results: Sequence[dict[str, Any]], parameters: Mapping[str, int], host: Host) -> list[dict[str, Any]]:
    """One row per case and category, then ``all`` if there are several; ``parameters``: weights beside the
    target's, by method."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    categories = list(dict.fromkeys(result["category"] for result in results))
    for result in results:
        case = tuple(result[name] for name in CASE)
        for category in (result["category"], *(("all",) if len(categories) > 1 else ())):
            groups.setdefault((category, *case), []).append(result)
    order = [*categories, "all"]
    keys = sorted(groups, key=lambda key: order.index(key[0]))
    return [_row(key[0], groups[key], parameters, host) for key in keys]


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.mean(found) if found else None


def _row(category: str, results: list[dict[str, Any]], parameters: Mapping[str, int], host: Host) -> dict[str, Any]:
    """The row of results of one case."""
    case = Case(**{name: results[0][name] for name in CASE})
    gains = [_speedup(result, host) for result in results]
    steps = [(drafted, accepted) for result in results for drafted, accepted in result["steps"]]
    equal = [result["equal"] for result in results if result["equal"] is not None]
    runs = [result["run"] for result in results]
    tokens = sum(run["tokens"] for run in runs)
    shares = [(_behind(run, "draft", host)[1] + run["prefill_cycles"].get("draft", 0)
               + run["prefill_launches"].get("draft", 0) * host.launch_cycles) / _cycles(run, host, prompt=True)
              for run in runs]
    return {
        "method": case.method, "category": category, "temperature": case.temperature,
        "num_speculative_tokens": case.num_tokens, "verify": case.rule, "warm": case.warm,
        "prompts": sum(result["prompts"] for result in results),
        "equal_to_ar": sum(equal) if equal else None,
        "lossless": results[0].get("lossless", True), "policy_equal": _policy_equal(results),
        "layers_run": _layers_run(results),
        "speedup_over_ar": statistics.mean(gains), "speedup_median": statistics.median(gains),
        "speedup_min": min(gains), "speedup_max": max(gains),
        "slower_than_ar": sum(gain < 1 for gain in gains) / len(gains),
        "speedup_by_launch_cycles": {
            str(count): statistics.mean(_speedup(result, host.model_copy(update={"launch_cycles": count}))
                                        for result in results) for count in HOST_CYCLES},
        "tokens": tokens, "cycles_per_token": sum(_cycles(run, host, prompt=True) for run in runs) / max(1, tokens),
        "tokens_per_step": tokens / max(1, len(steps)),
        "acceptance": sum(a for _, a in steps) / max(1, sum(d for d, _ in steps)),
        "acceptance_by_position": acceptance_by_position(steps),
        "steps_accepting": {"none": sum(a == 0 < d for d, a in steps), "some": sum(0 < a < d for d, a in steps),
                            "all": sum(a == d > 0 for d, a in steps), "undrafted": sum(d == 0 for d, _ in steps)},
        "calls_reduced": 1 - sum(run["steps"] for run in runs) / max(1, sum(one["ar"]["steps"] for one in results)),
        "target_calls": sum(run["passes"].get("target", 0) for run in runs),
        "draft_calls": sum(run["passes"].get("draft", 0) for run in runs),
        "extra_parameters": parameters.get(case.method, 0),
        "batch_gain": _mean(_gain(result, host) for result in results),
        "distinct_4grams": _mean(result["distinct_4grams"] for result in results),
        "looping": sum(result["looping"] for result in results),
        "speedup_without_loops": _mean(
            gain for gain, result in zip(gains, results, strict=True) if not result["looping"]),
        "draft_cycle_share": _mean(shares),
        "events": _events(runs), "events_ar": _events([result["ar"] for result in results]),
        "tokens_ar": sum(result["ar"]["tokens"] for result in results),
        "roofline_fraction": sum(run["roofline_cycles"] for run in runs) / max(
            1, sum(run["cycles"]["target"] - run["prefill_cycles"].get("target", 0) for run in runs)),
    } | _foretold(results, host)


def _policy_equal(results: Sequence[dict[str, Any]]) -> int | None:
    """Texts of a lossy method that are those of its policy; None: it is lossless."""
    found = [result["policy_equal"] for result in results if result.get("policy_equal") is not None]
    return sum(found) if found else None


def _layers_run(results: Sequence[dict[str, Any]]) -> dict[str, int] | None:
    """Tokens by the layers that they ran; None: all ran all of them."""
    counts = Counter(layers for result in results for layers in result.get("layers", ()))
    return {str(layers): counts[layers] for layers in sorted(counts)} or None


def _events(runs: Sequence[dict[str, Any]]) -> dict[str, int] | None:
    """What takes energy, in all of them; None: not known of each."""
    counts = [run.get("events") for run in runs]
    if not all(counts):
        return None
    return {event: sum(one[event] for one in counts if one) for event in counts[0] or ()}


def _foretold(results: Sequence[dict[str, Any]], host: Host) -> dict[str, Any]:
    """Predictions of theory, as means over prompts."""
    found = [one for result in results if (one := _theory(result, host)) is not None]
    steps = [[(result[key]["steps"], _behind(result[key], "target", host)[1]) for key in ("run", "ar")]
             for result in results]
    verify = [cycles / max(1, count) / (plain / max(1, most)) for (count, cycles), (most, plain) in steps if plain]
    even = [found_even for one in found if (found_even := break_even(one.drafts, one.worst_case - 1 + (
        _mean(verify) or 1.0))) is not None]
    return {
        "break_even": _mean(even),
        "theoretical_speedup": _mean(one.speedup for one in found), "decode_speedup": _mean(
            one.measured for one in found), "alpha": _mean(one.alpha for one in found),
        "draft_cost": _mean(one.draft_cost for one in found), "worst_case": _mean(one.worst_case for one in found),
        "expected_tokens": _mean(one.tokens for one in found), "tokens_of_theory": _mean(
            one.tokens_share for one in found), "cycles_of_theory": _mean(one.cycles_share for one in found),
        "verify_cost": _mean(verify)}


def best_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each method with several draft lengths, by category: the fastest length, and the one that theory predicts.

    Theory uses the acceptance by position of the longest drafts and the costs measured with each length.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("warm"):
            continue
        key = row["category"], row["method"], row["temperature"], row["verify"]
        groups.setdefault(key, []).append(row)
    found = []
    for (category, method, temperature, verify), mine in groups.items():
        mine = sorted((row for row in mine if row["draft_cost"] is not None),
                      key=lambda row: row["num_speculative_tokens"])
        if len(mine) < 2:
            continue
        fastest = max(mine, key=lambda row: row["speedup_over_ar"])
        length, gain = best_length(
            mine[-1]["acceptance_by_position"], statistics.mean(row["draft_cost"] for row in mine),
            {row["num_speculative_tokens"] + 1: row["verify_cost"] for row in mine})
        found.append({
            "category": category, "method": method, "temperature": temperature, "verify": verify,
            "measured": fastest["num_speculative_tokens"], "speedup_over_ar": fastest["speedup_over_ar"],
            "foretold": length, "foretold_speedup": gain})
    return found
