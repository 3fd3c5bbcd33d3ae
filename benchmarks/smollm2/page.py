"""Fill the tables of docs/smollm2.md from docs/results.

    python -m benchmarks.smollm2.page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import indent, wrap
from typing import Any

from gemmule.sw.reports.markdown import fill_page, table, wrapped

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "smollm2.md"
MISSING = "Not measured yet."
ALL = "all remedies"
"""The variant of which nothing is left out."""
BITS = ("int8", "int4")

Record = dict[str, Any]


def _load(name: str) -> Record:
    record: Record = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    return record


def _part(name: str) -> Record:
    """A part of the result; empty where it was not measured."""
    found: Record = _load("smollm2").get(name, {})
    return found


def _likeness(first: tuple[str, ...], one: Record) -> tuple[str, ...]:
    return (*first, f"{one['perplexity_float']:.2f}", f"{one['perplexity_int']:.2f}",
            f"{one['perplexity_int'] / one['perplexity_float'] - 1:+.2%}", f"{one['kl_mean']:.4f}",
            f"{one['top1_agreement']:.1%}")


COLUMNS = ("perplexity, float", "integers", "change", "KL, nats", "same best token")


def quality() -> str:
    """By width and kind of text, and GGUF's own formats beside them."""
    found, rows = _part("quality"), []
    for row in found.get("rows", []):
        if row["variant"] == ALL:
            rows += [_likeness((row["bits"], kind), one) for kind, one in row["kinds"].items()]
            rows.append(_likeness((f"**{row['bits']}**", f"all {row['windows']} windows"), row["whole"]))
    rows += [_likeness((f"{name}, imitated", "all"), one["whole"])
             for name, one in _part("requests").get("formats", {}).items() if name != "sha256"]
    plain = found.get("float without the prefix", {})
    told = "; ".join(f"{kind} {value:.2f}" for kind, value in plain.items())
    return table(("weights", "text", *COLUMNS), rows) + "\n\n" + wrapped(
        f"The float network reads the same tokens, the constant first token included. Without that token, its "
        f"perplexity on text that does not begin with it anyway: {told}.") if rows else MISSING


def remedies() -> str:
    """One left out at a time."""
    found = _part("quality")
    rows = []
    for row in found.get("rows", []):
        if row["windows"] == found["conditions"]["few"]:
            left_out = "nothing" if row["variant"].startswith(ALL) else row["variant"]
            rows.append(_likeness((row["bits"], left_out), row["whole"]))
    rows.sort(key=lambda row: row[0] == "int4")
    rows += [_likeness(("float", name), one) for name, one in found.get("alone", {}).items()]
    return table(("weights", "what is left out", *COLUMNS), rows) if rows else MISSING


def planted() -> str:
    """Layer errors of random checkpoints."""
    rows = _part("planted").get("rows", [])
    return table(("family", "seed", "prefix", "rotated", "KL, nats", "largest error of a layer", "which"), [
        (row["family"], row["seed"], ", ".join(map(str, row["prefix"])) or "none", "yes" if row["rotate"] else "no",
         f"{row['kl_mean']:.4f}", f"{max(row['layer_error']):.2%}", row["layer_error"].index(max(row["layer_error"])))
        for row in rows]) if rows else MISSING


def requests() -> str:
    """Tokens that are those of float."""
    rows = _part("requests").get("rows", [])
    return table(("network", "median", "mean", "least", "whole answers",
                  *(rows[0]["median by category"] if rows else ())), [
        (row["name"], f"{row['median']:g}", f"{row['mean']:.1f}", row["least"], f"{row['whole']} of {row['requests']}",
         *(f"{value:g}" for value in row["median by category"].values())) for row in rows]) if rows else MISSING


def examples() -> str:
    """A request of each category."""
    found, shown = _part("requests").get("examples", []), []
    for category in dict.fromkeys(one["category"] for one in found):
        one = next(one for one in found if one["category"] == category)
        shown.append("\n\n".join([f"**{one['request']}**", *(
            f"{name}:\n\n{_quoted(one[name])}" for name in ("text", "float", "int8", "int4") if name in one)]))
    return "\n\n".join(shown) if shown else MISSING


def _quoted(said: str) -> str:
    """As indented code, since answers have fences of their own."""
    lines = [part for line in said.strip().split("\n") for part in wrap(line, 92, replace_whitespace=False) or [""]]
    return indent("\n".join(lines), "    ")


def speed() -> str:
    """Passes on the device."""
    found = _part("speed")
    return table(("weights", "cached tokens", "rows", "cycles", "over one row", "over one row, same program",
                  "share of the roofline", "DRAM bytes", "tokens/s"), [
        (p["weights"], p["context"], p["rows"], f"{p['cycles']:,}", f"{p['over_one_row']:.4f}",
         f"{p['over_one_row_of_its_program']:.4f}",
         f"{p['roofline_fraction']:.2%}", f"{p['dram_bytes']:,}",
         "" if p["tokens_per_second"] is None else f"{p['tokens_per_second']:.1f}")
        for p in found["passes"]]) if found.get("passes") else MISSING


def programs() -> str:
    """A row by each program."""
    found = _part("speed").get("programs", [])
    return table(("weights", "rows at most", "positions", "scores", "cycles of a row after 500 tokens",
                  "share of the roofline"), [
        (p["weights"], p["most_rows"], f"{p['positions']:,}", p["scores"], f"{p['cycles']:,}",
         f"{p['roofline_fraction']:.2%}") for p in found]) if found else MISSING


def decoding() -> str:
    """What prompt lookup gains."""
    found = _part("decoding")
    rows = [{"weights": bits, **row} for bits in BITS for row in found.get(bits, {}).get("summary", [])]
    return table(("weights", "requests", "number", "tokens per step", "speed-up, mean", "median", "least",
                  "most", "total cycles", "slower", "distinct 4-grams"), [
        (row["weights"], row["part"], row["requests"], f"{row['tokens_per_step']:.2f}", f"{row['speedup']:.2f}x",
         f"{row['speedup_median']:.2f}x", f"{row['least']:.2f}x", f"{row['most']:.2f}x", f"{row['speedup_all']:.2f}x",
         row["slower"], f"{row['distinct_4grams']:.0%}") for row in rows]) if rows else MISSING


def rtl() -> str:
    """Passes on the Verilog."""
    rows = [(f"`{method}`", run["request"], run["prompt_tokens"], run.get("tokens", "under way"), len(run["passes"]),
             f"{sum(one['cycles'] for one in run['passes']):,}", f"{run['passes'][0]['bytes']:,}",
             sum(one[name] for one in run["passes"] for name in one if name.endswith("_different")),
             f"{sum(one['seconds'] for one in run['passes']) / 60:.0f} min")
            for method, run in _part("rtl").get("runs", {}).items() if run["passes"]]
    return table(("method", "request", "prompt tokens", "new tokens", "passes", "cycles", "bytes compared per pass",
                  "differences", "RTL took"), rows) if rows else MISSING


def boards() -> str:
    """Published figures of the same network."""
    rows = _load("study_smollm2")["rows"]
    return table(("", "published", "here", ""), [
        (row["setting"], "-" if row["published"] is None else f"{row['published']:.3g}",
         f"{row['here']:,.0f}" if row["here"] > 1000 else f"{row['here']:.3g}", row["unit"]) for row in rows])


def tool() -> str:
    """Wall clock."""
    found = _part("tool")
    if not found:
        return MISSING
    made = found["machine"]
    rows = [("compiling, cold", f"{found['compile_seconds']:.1f} s"),
            ("first token, warm start", f"{found['first_token_seconds']:.1f} s, including the prompt's "
                                       f"{found['prompt_tokens']} tokens"),
            ("`ar`", f"{found['ar_tokens_per_second']:.1f} tokens/s"),
            ("`pld`, a grounded request", f"{found['pld_tokens_per_second']:.1f} tokens/s")]
    rows += [(f"import, {row['import']}", f"{row['seconds']:.0f} s, CPU time {row['processor seconds']:.0f} s, "
                                          f"{row['peak GiB']:.2f} GiB") for row in found.get("import", [])]
    return table(("what", "wall clock"), rows) + "\n\n" + wrapped(
        f"On {made['cores']} cores of {made['processor']}, load {found['load at the beginning']:.1f} at the start.")


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (
    quality, remedies, planted, requests, examples, speed, programs, decoding, rtl, boards, tool)}
"""What stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    """Write the page."""
    fill_page(PAGE, PARTS)


if __name__ == "__main__":
    main()
