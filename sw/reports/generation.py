"""The page of a generation: text, cycles compared with autoregressive decoding, acceptance."""

from __future__ import annotations

from typing import Any

from gemmule.sw.reports.page import Bar, Table, page
from gemmule.sw.reports.positions import by_position
from gemmule.sw.reports.resident import resident_values

__all__ = ["generation_page"]


def _per_token(record: dict[str, Any], tokens: int) -> list[float]:
    """Cycles per token of target, draft and host."""
    parts = record["cycles_by_model"]
    return [count / max(1, tokens) for count in (parts.get("target", 0), parts.get("draft", 0), record["host_cycles"])]


def _numbers(record: dict[str, Any]) -> Table:
    def of(value: float | None, text: str) -> str:
        return "-" if value is None else format(value, text)

    rows = [("new tokens", f"{len(record['tokens']):,}"), ("cycles", f"{record['cycles']:,}"),
            ("tokens per second", f"{record['tokens_per_second']:,.0f}"),
            ("cycles per token", f"{record['cycles_per_token']:,.0f}"),
            ("tokens per step", f"{record['tokens_per_step']:.2f}"),
            ("acceptance", f"{record['acceptance']:.1%}" if record["drafted_tokens"] else "-"),
            ("target / draft passes", f"{record['target_passes']:,} / {record['draft_passes']:,}"),
            ("fewer passes of the target", of(record["target_passes_saved"], ".0%")),
            ("additional weights", f"{record['extra_parameters']:,}"),
            ("distinct 4-grams", f"{record['distinct_4grams']:.0%}"),
            ("DRAM bytes", f"{record['dram_bytes']:,}"),
            ("pJ per token, without the host", of((record.get("energy") or {}).get("pj_per_token"), ",.0f")),
            ("DRAM bus busy, of device cycles", f"{record['dram_bound']:.1%}"),
            ("speed-up over autoregressive decoding, everything included", of(record["speedup_over_ar"], ".2f")),
            ("decode speed-up (prompt excluded)", of(record["decode_speedup"], ".2f")),
            ("decode speed-up predicted from acceptance and costs", of(record["theoretical_speedup"], ".2f"))]
    return Table(("", record["method"]), rows)


def generation_page(record: dict[str, Any]) -> str:
    """The page of a record that ``gemmule generate --json`` wrote."""
    method, tokens, ar = record["method"], len(record["tokens"]), record["ar"]
    if record["kv_cache"] == "none":
        method = f"{method}, no KV cache"
    runs: list[Bar] = [(method, _per_token(record, tokens), f"{record['cycles_per_token']:,.0f}")]
    if ar:
        runs.append(("ar", _per_token(ar, ar["new_tokens"]), f"{ar['cycles_per_token']:,.0f}"))
    units: list[Bar] = [(name, [cycles / max(1, tokens)], f"{cycles / max(1, tokens):,.0f}")
                        for name, cycles in record["cycles_by_unit"].items() if name != "host"]
    same = {True: "The text is identical to that of autoregressive decoding.",
            False: "The text DIFFERS from that of autoregressive decoding.",
            None: "The method is lossy: its text is not that of autoregressive decoding." if record.get("layers_run")
            else "The text is drawn from the distribution of autoregressive decoding." if ar else ""}
    curves = {method: record["cycles_by_position"]} | ({"ar": ar["cycles_by_position"]} if ar else {})
    positions: list[Bar] = [(f"{label}, {name}", [mean], f"{mean:,.0f}")
                            for label, means in by_position(list(curves.values()))
                            for name, mean in zip(curves, means) if mean is not None]
    counts = record["accept_histogram"]
    most = max(counts.values(), default=0) or 1
    return page("generation.html", {
        "title": "Speculative decoding on gemmule" if record["drafted_tokens"] else "Decoding on gemmule",
        "record": record, "method": method, "same": same[record["same_tokens_as_ar"]],
        "parts": record["turns"] or record["texts"] or [record], "asked": "\n" * record.get("chat", False),
        "numbers": _numbers(record), "runs": runs, "units": units, "positions": positions,
        "acceptance": [(str(i), share, f"{share:.0%}")
                       for i, share in enumerate(record["acceptance_by_position"], 1)],
        "steps": [(name, count / most, f"{count:,}") for name, count in counts.items()],
        **resident_values(record["resident"])})
