"""What a search is told by: JSON, and lines for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.search.run import Candidate, Found
from gemmule.sw.decoding.search.scores import natural
from gemmule.sw.kv.selected import row_bytes
from gemmule.sw.models.pair import Pair
from gemmule.sw.reports.terminal import printable

__all__ = ["print_search", "search_json"]


def search_json(found: Found, reference: Generation | None, program: ModelProgram, pair: Pair,
                width: int) -> dict[str, Any]:
    """The numbers of a search; ``reference``: one text by autoregressive decoding."""
    ledger, best = found.ledger, found.candidates[0]
    steps = ledger.cycles - found.prefill.cycles
    return {
        "prompt_tokens": found.prompt_tokens, "tokens": best.tokens, "text": _text(best, pair),
        "finish_reason": best.finish_reason, "candidates": [_candidate(one, pair) for one in found.candidates],
        "ties": found.ties, "moved_texts": found.moved, "clock_mhz": ledger.config.host.clock_mhz,
        "cycles": ledger.cycles, "device_cycles": ledger.device_cycles, "host_cycles": ledger.host_cycles,
        "prefill_cycles": found.prefill.cycles, "steps": len(found.rows), "rows_by_step": found.rows,
        "cycles_by_step": found.curve, "cycles_per_step": steps / len(found.rows),
        "launches": sum(ledger.launches.values()), "dram_bytes": sum(ledger.dram_bytes.values()),
        "kv": _kv(found, program, width), "ar": _ar(reference, best) if reference else None}


def _candidate(one: Candidate, pair: Pair) -> dict[str, Any]:
    return {"tokens": one.tokens, "text": _text(one, pair), "log_probability": natural(one.total),
            "score": natural(one.score), "log_probability_units": one.total, "score_units": one.score,
            "finish_reason": one.finish_reason, "stop_string": one.stop_string, "number": one.number,
            "votes": one.votes}


def _text(one: Candidate, pair: Pair) -> str:
    return pair.decode(one.tokens)[:one.text_end]


def _kv(found: Found, program: ModelProgram, width: int) -> dict[str, int]:
    """Bytes of keys and values: those that were kept, and those of a cache for each text."""
    row, shared = row_bytes(program.graph), found.shared
    return {"row_bytes": row, "rows": shared.rows, "bytes": shared.rows * row, "rows_apart": shared.apart,
            "bytes_apart": shared.apart * row, "read_rows": shared.used,
            "reserved_bytes": width * program.text_positions * row, "forks": shared.forks,
            "copied_rows": shared.copied, "copy_cycles": 0}


def _ar(reference: Generation, best: Candidate) -> dict[str, Any]:
    steps = reference.ledger.cycles - reference.prefill.cycles
    return {"tokens": reference.tokens, "same_tokens": reference.tokens == best.tokens,
            "cycles": reference.ledger.cycles, "prefill_cycles": reference.prefill.cycles,
            "steps": len(reference.steps), "cycles_per_step": steps / max(1, len(reference.steps)),
            "cycles_by_step": [cycles for _, cycles in reference.curve]}


def print_search(console: Console, prompt: str, record: dict[str, Any], title: str) -> None:
    """Print the best text, a line for each candidate, and what they took."""
    console.print(Panel(Text(printable(prompt), style="dim").append(printable(record["text"]), style="bold"),
                        title=title))
    majority = record["rank"] == "majority"
    table = Table("rank", "log-probability", "score", *(["votes"] if majority else []), "tokens", "ended", "text",
                  box=None, pad_edge=False)
    for number, one in enumerate(record["candidates"], 1):
        table.add_row(str(number), f"{one['log_probability']:.4f}", f"{one['score']:.4f}",
                      *([str(one["votes"])] if majority else []), str(len(one["tokens"])),
                      _ended(one), Text(printable(one["text"]).replace("\n", "\u23ce"), overflow="ellipsis",
                                        no_wrap=True))
    console.print(table)
    kv, ar = record["kv"], record["ar"]
    console.print(f"{record['steps']} steps of up to {max(record['rows_by_step'])} rows in {record['cycles']:,} "
                  f"cycles, {record['cycles_per_step']:,.0f} a step" + (
                      f"; autoregressive decoding of one text takes {ar['cycles_per_step']:,.0f} "
                      f"({record['cycles_per_step'] / ar['cycles_per_step']:.2f}x)" if ar else ""), markup=False)
    console.print(f"KV cache: {kv['rows']:,} rows at most, {kv['bytes']:,} bytes, for {kv['rows_apart']:,} positions "
                  f"of all texts ({kv['bytes_apart']:,} bytes apart, {kv['reserved_bytes']:,} reserved); {kv['forks']} "
                  f"forks, {kv['copied_rows']} rows copied; ties: {record['ties']}", markup=False)


def _ended(one: dict[str, Any]) -> str:
    return str(one["finish_reason"]) if one["stop_string"] is None else f"before {one['stop_string']!r}"
