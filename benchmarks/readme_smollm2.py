"""README.md on SmolLM2: headline and first table, as far as docs/results/smollm2.json has the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemmule.sw.reports.markdown import table, wrapped

__all__ = ["headline", "numbers"]

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "smollm2.json"
TRAINED = ROOT / "docs" / "results" / "bench_parallel_smollm2.json"
CONTEXT = 512
BITS = ("int8", "int4")
WHOLE = "all remedies"

Record = dict[str, Any]


def _record() -> Record:
    return dict(json.loads(RESULT.read_text())) if RESULT.is_file() else {}


def _passes(record: Record, rows: int) -> dict[str, Record]:
    """By weights, behind :data:`CONTEXT` positions."""
    return {one["weights"]: one for one in record.get("speed", {}).get("passes", [])
            if (one["context"], one["rows"]) == (CONTEXT, rows)}


def _quality(record: Record) -> dict[str, Record]:
    """By weights, on all windows."""
    found: dict[str, Record] = {}
    for row in record.get("quality", {}).get("rows", []):
        if row["variant"] == WHOLE:
            found.setdefault(row["bits"], row["whole"])
    return found


def _gains(record: Record, bits: str) -> dict[str, Record]:
    """Of prompt lookup, by category, and of all requests and of those that loop or do not."""
    found = record.get("decoding", {}).get(bits, {})
    return {row["part"]: row for row in found.get("summary", []) if row["method"] == "pld"}


def _change(found: Record) -> float:
    return float(found["perplexity_int"] / found["perplexity_float"] - 1)


def _trained() -> str:
    """A sentence about the drafter that was trained on the model's hidden rows."""
    rows = {row["method"]: row for row in json.loads(TRAINED.read_text())["rows"] if row["category"] == "all"}
    made = rows["parallel"]
    return (f"A drafter trained on its hidden rows, which proposes a tree in one pass, is "
            f"{made['speedup_over_ar']:.2f} times as fast on {made['prompts']} of them, and "
            f"{rows['joined']['speedup_over_ar']:.2f} times joined with what the text repeats.")


def headline() -> str | None:
    """A sentence; None: its numbers are not there yet."""
    record = _record()
    speed, quality, gains = _passes(record, 1).get("int8"), _quality(record).get("int8"), _gains(record, "int8")
    if not speed or not quality or not gains:
        return None
    kinds = [part for part in gains if part not in ("all", "looping", "not looping")]
    best = max(kinds, key=lambda part: float(gains[part]["speedup"]))
    return wrapped(
        f"**SmolLM2-135M-Instruct, a published model, in int8 on `base`: {speed['tokens_per_second']:,.1f} tokens per "
        f"second at {record['speed']['clock_mhz'] / 1000:g} GHz and {record['speed']['bus_bytes']} bytes per cycle, "
        f"{speed['roofline_fraction']:.1%} of what the memory bus allows. Prompt lookup is "
        f"{gains['all']['speedup']:.2f} times as fast on {gains['all']['requests']} requests, and "
        f"{gains[best]['speedup']:.2f} times as fast on {best} requests, with the same text. {_trained()} Perplexity "
        "changes by "
        f"{_change(quality):+.1%} against float; the most likely token is float's in "
        f"{quality['top1_agreement']:.1%} of cases.**")


def numbers() -> str | None:
    """The table; None: nothing of it is measured yet."""
    rows = list(_rows(_record()))
    return table(("SmolLM2-135M-Instruct", "measured on", *BITS), rows) if rows else None


def _rows(record: Record) -> Iterator[tuple[str, ...]]:
    def both(found: dict[str, Record], text: str, name: str) -> tuple[str, ...]:
        return tuple(format(found[bits][name], text) if bits in found else "-" for bits in BITS)

    if one := _passes(record, 1):
        speed = record["speed"]
        where = f"`{speed['config']}`, {speed['bus_bytes']} bytes per cycle, {CONTEXT} cached tokens"
        yield ("tokens per second at 1 GHz, autoregressive, host included", where,
               *both(one, ",.1f", "tokens_per_second"))
        yield ("tokens per second per byte of bus width", "the same", *(
            f"{one[bits]['tokens_per_second'] / speed['bus_bytes']:,.2f}" if bits in one else "-" for bits in BITS))
        yield ("share of the memory roofline", "the same", *both(one, ".1%", "roofline_fraction"))
        yield ("DRAM bytes per pass", "the same", *both(one, ",", "dram_bytes"))
        for rows in (8, 16):
            yield (f"cycles of a pass over {rows} rows, relative to 1 row", "the same",
                   *both(_passes(record, rows), ".3f", "over_one_row"))
    if quality := _quality(record):
        conditions = record["quality"]["conditions"]
        where = f"{conditions['windows']} windows of {conditions['window']} tokens not used for calibration"
        yield ("perplexity, change from float", where, *(
            f"{_change(quality[bits]):+.2%}" if bits in quality else "-" for bits in BITS))
        yield ("KL divergence from float, nats per token", "the same", *both(quality, ".4f", "kl_mean"))
        yield ("same most likely token as float", "the same", *both(quality, ".1%", "top1_agreement"))
    found = {row["name"]: row for row in record.get("requests", {}).get("rows", [])}
    if set(BITS) <= set(found):
        beside = f" (Q8_0: {found['Q8_0']['median']:g})" if "Q8_0" in found else ""
        yield (f"tokens before the first difference from float's text, median{beside}",
               f"{found['int8']['requests']} requests, up to {record['requests']['tokens']} tokens",
               *both(found, "g", "median"))
    gains = {bits: _gains(record, bits) for bits in BITS}
    for part, row in gains["int8"].items():
        requests = "all requests" if part == "all" else f"requests: {part}"
        what = f"speed-up by prompt lookup (`pld`), host included, {requests}"
        yield (what, f"{row['requests']} requests; {row['tokens_per_step']:.2f} tokens per step, "
               f"{row['distinct_4grams']:.0%} of 4-grams distinct", *(
            f"{gains[bits][part]['speedup']:.2f}x" if part in gains[bits] else "-" for bits in BITS))
