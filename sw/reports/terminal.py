"""Reports for the terminal: a generation (acceptance, cycles, speed-up) and the counters of a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gemmule.csr import CAUSE_MEANING, CAUSES
from gemmule.isa import Unit
from gemmule.sim.energy.table import EnergyTable
from gemmule.sw.benches.theory import acceptance_by_position, theory
from gemmule.sw.decoding.generation import Generation, distinct
from gemmule.sw.kv.text import Pruned
from gemmule.sw.models.pair import Pair
from gemmule.sw.reports.energy import energy_line, energy_record
from gemmule.sw.reports.positions import by_position

__all__ = [
    "counters_table", "generation_json", "print_generation", "printable", "text_of",
]

ENDED = {
    "length": "ended at --max-new-tokens", "stop": "ended at an end-of-text token",
    "context": "ended because the context is full", "interrupted": "interrupted",
}
MOST_POSITIONS = 7
UNITS = (Unit.LOAD, Unit.STORE, Unit.MATRIX, Unit.VECTOR, Unit.SELECT)


def generation_json(run: Generation, reference: Generation | None, pair: Pair, *, same_text: bool = True,
                    extra_parameters: int = 0, prices: EnergyTable | None = None) -> dict[str, Any]:
    """The numbers of a run. ``extra_parameters``: weights in addition to the target's. ``prices``: of energy.

    ``speedup_over_ar`` is cycles per token of autoregressive decoding divided by this run's, host and prefill included
    on both sides (None without a reference). ``same_text``: whether the rule guarantees that both have the same tokens;
    where tokens left out layers nothing does.
    """
    expected = theory(run, reference) if reference else None
    ledger = run.ledger
    clock = ledger.config.host.clock_mhz
    matrix = ledger.units[Unit.MATRIX.label] / max(1, ledger.device_cycles)
    return {
        "tokens": run.tokens,
        "text": text_of(run, pair),
        "finish_reason": run.finish_reason,
        "stop_string": run.stop_string,
        "clock_mhz": clock,
        "cycles": ledger.cycles,
        "milliseconds": ledger.cycles / clock / 1000,
        "tokens_per_second": len(run.tokens) * clock * 1e6 / ledger.cycles,
        "device_cycles": ledger.device_cycles,
        "host_cycles": ledger.host_cycles,
        "prefill_cycles": run.prefill.cycles,
        "cycles_per_token": ledger.cycles / max(1, len(run.tokens)),
        "cycles_by_model": ledger.by_model,
        "cycles_by_unit": ledger.units | {"host": ledger.host_cycles},
        "tokens_per_step": run.tokens_per_step,
        "drafted_tokens": run.drafted,
        "acceptance": run.acceptance,
        "acceptance_by_position": acceptance_by_position(run.steps),
        "accept_histogram": _histogram(run),
        "target_passes": ledger.passes.get("target", 0),
        "draft_passes": ledger.passes.get("draft", 0),
        "target_passes_saved": _saved(run, reference) if reference else None,
        "extra_parameters": extra_parameters,
        "launches": ledger.launches,
        "steps": len(run.steps),
        "cycles_by_position": [list(point) for point in run.curve],
        "dram_bytes": sum(ledger.dram_bytes.values()),
        "dram_bytes_by_purpose": ledger.dram_bytes,
        "dram_bound": ledger.dram_bound,
        "bound": "memory" if ledger.dram_bound >= matrix else "compute",
        "distinct_4grams": distinct(run.tokens, 4),
        "speedup_over_ar": _speedup(run, reference) if reference else None,
        "same_tokens_as_ar": reference.tokens == run.tokens
        if reference and same_text and not run.layers_run else None,
        "layers_run": _counted(run.layers_run) or None,
        "energy": _energy(run, prices),
        "ar": _baseline(reference, prices) if reference and reference is not run else None,
        "draft_cost": expected.draft_cost if expected else None,
        "theoretical_speedup": expected.speedup if expected else None,
        "decode_speedup": expected.measured if expected else None,
        **_pruned_json(run),
    }


def _pruned_json(run: Generation) -> dict[str, Any]:
    """Of a run with a pruned cache; all None without one."""
    names = ("kept_rows_by_layer", "kv_bytes", "kv_bytes_dense", "selections", "selection_cycles", "topk_cycles",
             "topk_exposed_cycles")
    told = run.pruned
    if told is None:
        return dict.fromkeys(names)
    values = ([told.kept] * told.layers, told.bytes, told.bytes_dense, told.selections, told.cycles,
               told.top_k_cycles, told.top_k_exposed)
    return dict(zip(names, values, strict=True))


def _energy(run: Generation, prices: EnergyTable | None) -> dict[str, Any] | None:
    """None: there are no prices, or the device did not tell all of its events."""
    if prices is None or run.ledger.uncounted:
        return None
    return energy_record(run.ledger.events, run.ledger.config, prices, tokens=len(run.tokens))


def _baseline(run: Generation, prices: EnergyTable | None) -> dict[str, Any]:
    """The numbers of the run that a report compares with."""
    ledger = run.ledger
    return {
        "new_tokens": len(run.tokens), "cycles": ledger.cycles, "prefill_cycles": run.prefill.cycles,
        "cycles_per_token": ledger.cycles / max(1, len(run.tokens)),
        "tokens_per_second": len(run.tokens) * ledger.config.host.clock_mhz * 1e6 / ledger.cycles,
        "host_cycles": ledger.host_cycles, "cycles_by_model": ledger.by_model,
        "cycles_by_unit": ledger.units | {"host": ledger.host_cycles}, "dram_bytes": sum(ledger.dram_bytes.values()),
        "cycles_by_position": [list(point) for point in run.curve], "energy": _energy(run, prices)}


def text_of(run: Generation, pair: Pair) -> str:
    """Text of a run's tokens up to its stop string; the texts of several turns are joined."""
    return "".join(pair.decode(turn.tokens, turn.before)[:turn.text_end] for turn in run.turns or (run,))


def _speedup(run: Generation, reference: Generation) -> float:
    """By cycles per token, because sampled texts may end at different places."""
    return reference.ledger.cycles * max(1, len(run.tokens)) / (run.ledger.cycles * max(1, len(reference.tokens)))


def _saved(run: Generation, reference: Generation) -> float:
    """Share of target passes per token that a run saves."""
    own, others = (one.ledger.passes.get("target", 0) / max(1, len(one.tokens)) for one in (run, reference))
    return 1 - own / others


def _histogram(run: Generation) -> dict[str, int]:
    return _counted([accepted for _, accepted in run.steps])


def _counted(numbers: Sequence[int]) -> dict[str, int]:
    """How often each occurs, rising."""
    counts = Counter(numbers)
    return {str(number): counts[number] for number in sorted(counts)}


def print_generation(console: Console, prompts: Sequence[str], run: Generation, reference: Generation | None,
                     method: str, title: str, pair: Pair, *, same_text: bool = True, shown: bool = False,
                     by_positions: bool = False, batch: int = 1, extra_parameters: int = 0,
                     chat: bool = False, prices: EnergyTable | None = None) -> None:
    """Print the text and the table.

    ``prompts``: one for each turn, or for each text of a batch. ``shown``: the text was already printed.
    ``by_positions``: also print cycles per step as the text grows. ``chat``: start each question and answer on a new
    line. ``prices``: of energy.
    """
    record = generation_json(run, reference, pair, same_text=same_text, prices=prices)
    if not shown:
        body = Text()
        for prompt, turn in zip(prompts, run.turns or (run,)):
            body.append(printable(prompt) + "\n" * chat, style="dim")
            body.append(printable(text_of(turn, pair)) + "\n" * (batch > 1 or chat), style="bold")
        console.print(Panel(body, title=title))
    ended = f"{len(run.turns)} texts, {batch} at a time" if batch > 1 else _ended(run)
    console.print(f"{ended}: {len(run.tokens)} new tokens in {record['milliseconds']:.3g} ms at "
                  f"{record['clock_mhz']} MHz, {record['tokens_per_second']:,.0f} tokens per second", markup=False)

    runs = {method: record}
    if reference is not None and reference is not run:
        runs["ar"] = generation_json(reference, None, pair, prices=prices)
    console.print(_table(runs))
    if run.turns:
        console.print(_texts(run.turns) if batch > 1 else _turns(run.turns))
    if by_positions:
        console.print(_positions(runs))
    console.print(f"{record['bound']}-bound: {method} keeps the DRAM bus busy in {record['dram_bound']:.1%} of device "
                  f"cycles, the matrix unit in {_share(record, 'matrix')}")
    if record["energy"]:
        console.print(energy_line(record["energy"]), markup=False)
    if run.pruned:
        console.print(_pruned_line(record, run.pruned), markup=False)
    if reference is not None and reference is not run:
        needs = f" and {extra_parameters:,} more weights" if extra_parameters else ""
        same = "identical to" if record["same_tokens_as_ar"] else "DIFFERENT from"
        text = f"text {same} that" if same_text else "text drawn from the distribution"
        if run.layers_run:
            agree = sum(one == other for one, other in zip(run.tokens, reference.tokens))
            text = f"lossy: {agree} of {len(run.tokens)} tokens are those"
        saved = _saved(run, reference)
        passes = f"{abs(saved):.0%} {'more' if saved < 0 else 'fewer'} passes of the target{needs}"
        if run.layers_run:
            layers = sum(run.layers_run) / len(run.layers_run)
            passes = f"{layers:.2f} layers a token"
        console.print(
            f"speed-up over autoregressive decoding on the same device, host included: "
            f"[bold]{record['speedup_over_ar']:.2f}x[/bold], with {passes}; {text} of autoregressive decoding")


def _pruned_line(record: dict[str, Any], pruned: Pruned) -> str:
    """What the schedule of a pruned cache did."""
    share = record["kv_bytes"] / max(1, record["kv_bytes_dense"])
    kept = record["kept_rows_by_layer"][0]
    if pruned.values and not record["selections"]:
        return (f"pruned cache: values that no probability of at least {pruned.values} of 255 meets are not loaded; "
                f"passes read {share:.0%} of the KV bytes of the whole cache")
    if pruned.by_rows:
        return (f"pruned cache: each row chooses its pages, the last one {kept:,} rows per KV head; rows saw "
                f"{share:.0%} of the KV bytes of the whole cache")
    if not record["selections"]:
        return "pruned cache: the text was too short for a selection, so nothing was dropped"
    four = f", {pruned.halved:,} of them with 4 bits" if pruned.halved else ""
    return (f"pruned cache: {record['selections']:,} selections, the last one keeps {kept:,} rows per KV head{four}; "
            f"passes read {share:.0%} of the KV bytes of the whole cache; selections take "
            f"{record['selection_cycles'] / record['cycles']:.1%} of the cycles")


def _ended(run: Generation) -> str:
    return ENDED[run.finish_reason] if run.stop_string is None else f"ended before {run.stop_string!r}"


def _texts(texts: Sequence[Generation]) -> Table:
    """One row for each text of a batch."""
    table = Table("text", "new tokens", "tokens per step", "acceptance", "", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for number, run in enumerate(texts, 1):
        table.add_row(str(number), f"{len(run.tokens):,}", f"{run.tokens_per_step:.2f}",
                      f"{run.acceptance:.1%}" if run.drafted else "-", Text(_ended(run)))
    return table


def _turns(turns: Sequence[Generation]) -> Table:
    table = Table("turn", "cached before", "new tokens", "cycles to first token", "cycles per token", box=None,
                  pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for number, run in enumerate(turns, 1):
        table.add_row(str(number), f"{run.cached:,}", f"{len(run.tokens):,}", f"{run.prefill.cycles:,}",
                      f"{run.ledger.cycles / max(1, len(run.tokens)):,.0f}")
    return table


def _positions(runs: Mapping[str, dict[str, Any]]) -> Table:
    """Cycles per step as the text grows."""
    table = Table("tokens before a step", *(f"cycles per step, {name}" for name in runs), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for label, means in by_position([record["cycles_by_position"] for record in runs.values()]):
        table.add_row(label, *("-" if mean is None else f"{mean:,.0f}" for mean in means))
    return table


def _table(runs: Mapping[str, dict[str, Any]]) -> Table:
    """One column per method."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")

    def row(label: str, value: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(label, *(value(record) for record in runs.values()))

    def per_token(count: Callable[[dict[str, Any]], int]) -> Callable[[dict[str, Any]], str]:
        return lambda r: f"{count(r) / max(1, len(r['tokens'])):,.0f}"

    row("tokens per step", lambda r: f"{r['tokens_per_step']:.2f}")
    row("acceptance", lambda r: f"{r['acceptance']:.1%}" if r["drafted_tokens"] else "-")
    row("  by position, where reached",
        lambda r: " ".join(f"{share:.0%}" for share in r["acceptance_by_position"][:MOST_POSITIONS]) or "-")
    row("accepted per step (count: steps)",
        lambda r: " ".join(f"{k}:{v}" for k, v in r["accept_histogram"].items()))
    if any(record["layers_run"] for record in runs.values()):
        row("layers run (count: tokens)",
            lambda r: " ".join(f"{k}:{v}" for k, v in (r["layers_run"] or {}).items()) or "all")
    row("target / draft passes", lambda r: f"{r['target_passes']} / {r['draft_passes']}")
    if any(sum(record["launches"].values()) < record["target_passes"] + record["draft_passes"]
           for record in runs.values()):
        row("launches", lambda r: f"{sum(r['launches'].values())}")
    row("distinct 4-grams", lambda r: f"{r['distinct_4grams']:.0%}")
    row("tokens per second", lambda r: f"{r['tokens_per_second']:,.0f}")
    row("cycles", lambda r: f"{r['cycles']:,}")
    row("  prefill (the prompt)", lambda r: f"{r['prefill_cycles']:,}")
    row("cycles per token", lambda r: f"{r['cycles_per_token']:,.0f}")
    for model in ("target", "draft"):
        row(f"  {model} passes", per_token(lambda r, model=model: r["cycles_by_model"].get(model, 0)))  # type: ignore[misc]
    row("  host (launches, accepting)", per_token(lambda r: r["host_cycles"]))
    row("busy cycles per token by unit (they overlap)", lambda r: "")
    for unit in UNITS:
        row(f"  {unit.label}", per_token(lambda r, unit=unit: r["cycles_by_unit"][unit.label]))  # type: ignore[misc]
    if any(record["theoretical_speedup"] for record in runs.values()):
        row("decode speed-up: measured / predicted", lambda r: f"{r['decode_speedup']:.2f}x / "
            f"{r['theoretical_speedup']:.2f}x" if r["theoretical_speedup"] else "-")
    row("DRAM bytes per token", per_token(lambda r: r["dram_bytes"]))
    row("DRAM bus busy, of device cycles", lambda r: f"{r['dram_bound']:.1%}")
    if any(record["energy"] for record in runs.values()):
        row("pJ per token, without the host",
            lambda r: f"{r['energy']['pj_per_token']:,.0f}" if r["energy"] else "-")
    return table


def _share(record: dict[str, Any], unit: str) -> str:
    return f"{record['cycles_by_unit'][unit] / max(1, record['device_cycles']):.1%}"


def printable(content: str) -> str:
    """Text with control characters replaced by U+FFFD, so that none reaches the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in content)


def counters_table(counters: Mapping[str, Mapping[str, int]]) -> Group:
    """A launch's cycles by unit and cause, and the meaning of the causes."""
    table = Table("cycles of", *CAUSES, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for unit, split in counters.items():
        table.add_row(unit, *(f"{split[cause]:,}" for cause in CAUSES))
    legend = "; ".join(f"{cause}: {CAUSE_MEANING[cause]}" for cause in CAUSES)
    return Group(table, Text(legend, style="dim"))
