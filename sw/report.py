"""The report of a generation: acceptance, cycles by unit, DRAM bytes, speed-up."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gemmule.sw import text
from gemmule.sw.decoding.generate import Generation

__all__ = ["generation_json", "print_generation"]


def generation_json(run: Generation, reference: Generation | None) -> dict[str, Any]:
    """The numbers of a run; ``speedup_over_ar`` is whole-run cycles of autoregressive decoding over
    this run's, host and prefill counted on both sides (None without a reference)."""
    ledger = run.ledger
    return {
        "tokens": run.tokens,
        "text": text.decode(run.tokens),
        "stopped": run.stopped,
        "cycles": ledger.cycles,
        "device_cycles": ledger.device_cycles,
        "host_cycles": ledger.host_cycles,
        "prefill_cycles": run.prefill_cycles,
        "cycles_per_token": ledger.cycles / max(1, len(run.tokens)),
        "cycles_by_model": ledger.by_model,
        "cycles_by_unit": ledger.units | {"host": ledger.host_cycles},
        "tokens_per_step": run.tokens_per_step,
        "acceptance": run.acceptance,
        "accept_histogram": _histogram(run),
        "target_passes": ledger.launches.get("target", 0),
        "draft_passes": ledger.launches.get("draft", 0),
        "steps": len(run.steps),
        "dram_bytes": sum(ledger.dram_bytes.values()),
        "dram_bytes_by_purpose": ledger.dram_bytes,
        "dram_bound": ledger.dram_bound,
        "distinct_4grams": _distinct(run.tokens, 4),
        "speedup_over_ar": reference.ledger.cycles / ledger.cycles if reference else None,
        "same_tokens_as_ar": reference.tokens == run.tokens if reference else None,
    }


def _histogram(run: Generation) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, accepted in run.steps:
        counts[str(accepted)] = counts.get(str(accepted), 0) + 1
    return dict(sorted(counts.items()))


def _distinct(tokens: list[int], n: int) -> float:
    """Share of distinct n-grams: repeated text flatters every drafter."""
    grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / max(1, len(grams))


def print_generation(console: Console, prompt: str, run: Generation, reference: Generation | None,
                     method: str, backend: str) -> None:
    """Print the text and the table."""
    record = generation_json(run, reference)
    body = Text(_printable(prompt), style="dim")
    body.append(_printable(record["text"]), style="bold")
    console.print(Panel(body, title=f"{method} on {backend}, {len(run.tokens)} new tokens"))

    runs = [(method, run)]
    if reference is not None and reference is not run:
        runs.append(("ar", reference))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name, _ in runs:
        table.add_column(name, justify="right")

    def row(label: str, values: list[str]) -> None:
        table.add_row(label, *values)

    records = [generation_json(r, None) for _, r in runs]
    row("tokens per step", [f"{r['tokens_per_step']:.2f}" for r in records])
    row("acceptance", [f"{r['acceptance']:.1%}" if r["draft_passes"] else "-" for r in records])
    row("accepted per step (count: steps)",
        [" ".join(f"{k}:{v}" for k, v in r["accept_histogram"].items()) for r in records])
    row("target / draft passes", [f"{r['target_passes']} / {r['draft_passes']}" for r in records])
    row("distinct 4-grams", [f"{r['distinct_4grams']:.0%}" for r in records])
    row("cycles", [f"{r['cycles']:,}" for r in records])
    row("  of them prefill", [f"{r['prefill_cycles']:,}" for r in records])
    row("cycles per token", [f"{r['cycles_per_token']:,.0f}" for r in records])
    for model in ("target", "draft"):
        row(f"  {model} passes", [_per_token(r, r["cycles_by_model"].get(model, 0)) for r in records])
    row("  host", [_per_token(r, r["host_cycles"]) for r in records])
    row("busy cycles per token by unit (they overlap)", ["" for _ in records])
    for unit in ("load", "store", "matrix", "vector"):
        row(f"  {unit}", [_per_token(r, r["cycles_by_unit"][unit]) for r in records])
    row("DRAM bytes per token", [_per_token(r, r["dram_bytes"]) for r in records])
    row("DRAM bus busy, of device cycles", [f"{r['dram_bound']:.1%}" for r in records])
    console.print(table)
    if reference is not None and reference is not run:
        same = "identical to" if record["same_tokens_as_ar"] else "DIFFERENT from"
        console.print(
            f"speed-up over autoregressive decoding on the same device, host counted: "
            f"[bold]{record['speedup_over_ar']:.2f}x[/bold]; text {same} autoregressive decoding")


def _printable(content: str) -> str:
    """Control characters would reach the terminal: show them as U+FFFD."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in content)


def _per_token(record: dict[str, Any], value: int) -> str:
    return f"{value / max(1, len(record['tokens'])):,.0f}"
