"""The page of a generation: text, where the cycles go beside autoregressive decoding, acceptance."""

from __future__ import annotations

from typing import Any

from gemmule.sw.reports.page import bars, columns, page, paragraph, preformatted, stacked, table
from gemmule.sw.reports.positions import by_position
from gemmule.sw.reports.resident import resident_section

__all__ = ["generation_page"]


def _per_token(record: dict[str, Any], tokens: int) -> list[float]:
    """Cycles a token of target, draft and host."""
    parts = record["cycles_by_model"]
    return [count / max(1, tokens) for count in (parts.get("target", 0), parts.get("draft", 0), record["host_cycles"])]


def _numbers(record: dict[str, Any]) -> str:
    def of(value: float | None, text: str) -> str:
        return "-" if value is None else format(value, text)

    rows = [("new tokens", f"{len(record['tokens']):,}"), ("cycles", f"{record['cycles']:,}"),
            ("tokens per second", f"{record['tokens_per_second']:,.0f}"),
            ("cycles per token", f"{record['cycles_per_token']:,.0f}"),
            ("tokens per step", f"{record['tokens_per_step']:.2f}"),
            ("acceptance", f"{record['acceptance']:.1%}" if record["drafted_tokens"] else "-"),
            ("target / draft passes", f"{record['target_passes']:,} / {record['draft_passes']:,}"),
            ("fewer passes of the target", of(record["target_passes_saved"], ".0%")),
            ("more weights", f"{record['extra_parameters']:,}"),
            ("distinct 4-grams", f"{record['distinct_4grams']:.0%}"),
            ("DRAM bytes", f"{record['dram_bytes']:,}"),
            ("DRAM bus busy, of device cycles", f"{record['dram_bound']:.1%}"),
            ("speed-up over autoregressive decoding, all counted", of(record["speedup_over_ar"], ".2f")),
            ("speed-up behind the prompt", of(record["decode_speedup"], ".2f")),
            ("that acceptance and costs foretell", of(record["theoretical_speedup"], ".2f"))]
    return table(("", record["method"]), rows)


def generation_page(record: dict[str, Any]) -> str:
    """Of what ``gemmule generate --json`` writes."""
    method, tokens, ar = record["method"], len(record["tokens"]), record["ar"]
    if record["kv_cache"] == "none":
        method = f"{method}, no KV cache"
    runs = [(method, _per_token(record, tokens), f"{record['cycles_per_token']:,.0f}")]
    if ar:
        runs.append(("ar", _per_token(ar, ar["new_tokens"]), f"{ar['cycles_per_token']:,.0f}"))
    units = [(name, cycles / max(1, tokens), f"{cycles / max(1, tokens):,.0f}")
             for name, cycles in record["cycles_by_unit"].items() if name != "host"]
    same = {True: "The text is identical to that of autoregressive decoding.",
            False: "The text DIFFERS from that of autoregressive decoding.",
            None: "The text is drawn by the law of autoregressive decoding." if ar else ""}
    asked = "\n" * record.get("chat", False)
    parts = record["turns"] or record["texts"] or [record]
    sections = [
        ("", paragraph(f"{record['model']} model, {method} on {record['backend']}, configuration {record['config']} at "
                       f"{record['clock_mhz']} MHz, seed {record['seed']}. {same[record['same_tokens_as_ar']]}", True)),
        ("Text", "".join(preformatted(part["prompt"] + asked, part["text"]) for part in parts)),
        ("Numbers", _numbers(record)),
        ("Cycles per token", stacked(runs, ("target", "draft", "host"))),
        ("Busy cycles per token by unit (they overlap)", bars(units, 2)),
    ]
    curves = {method: record["cycles_by_position"]} | ({"ar": ar["cycles_by_position"]} if ar else {})
    sections.append(("Cycles a step by tokens of the text before it", bars(
        [(f"{label}, {name}", mean, f"{mean:,.0f}") for label, means in by_position(list(curves.values()))
         for name, mean in zip(curves, means) if mean is not None], 4)))
    if record["drafted_tokens"]:
        places = [(str(i), share, f"{share:.0%}") for i, share in enumerate(record["acceptance_by_position"], 1)]
        counts = record["accept_histogram"]
        most = max(counts.values())
        sections += [
            ("Acceptance by position, of the drafts that were reached", columns(places)),
            ("Steps by accepted drafts", columns([(name, count / most, f"{count:,}")
                                                  for name, count in counts.items()]))]
    sections.append(resident_section(record["resident"]))
    return page("Speculative decoding on gemmule" if record["drafted_tokens"] else "Decoding on gemmule", sections)
