"""Fill README.md from real output: the demo and the table of numbers in docs/results.

    python benchmarks/readme.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEMO = [sys.executable, "-c", "from gemmule.sw.cli import main; main()", "generate", "--max-new-tokens", "96"]


def demo() -> str:
    """Output of the demo's command, 100 columns wide."""
    done = subprocess.run(DEMO, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "100"})
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip()


def numbers() -> str:
    """The table, from the results that the other benchmarks wrote."""
    def load(name: str) -> dict:
        return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())

    speed = {row["side"]: row for row in load("speed_base")["rows"]}
    lossless, decode, quality = load("lossless"), load("decode_base")["rows"], json.loads(
        (ROOT / "sw" / "models" / "quality.json").read_text())
    cells = [row["3"] for row in lossless["rows"]]
    all_cells = [row[str(n)] for row in lossless["rows"] for n in lossless["conditions"]["lengths"]]
    eight = max(row["over 1 row"] for row in decode if row["rows"] == 8)
    busy = [row["DRAM bus busy"] for row in decode if row["rows"] == 1]
    fuzz = [json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "results").glob("fuzz_*.json"))]
    gemm = {(row["shape"], row["dataflow"], row["weights"]): row for row in load("gemm_base")["rows"]}
    whole, one, many, packed = (gemm[key] for key in (
        ("512x768x3072", "ws", "int8"), ("1x768x3072", "ws", "int8"), ("16x768x3072", "ws", "int8"),
        ("1x768x3072", "ws", "int4")))
    resident = load("matrix_base")["rows"]
    encoder = {row["program"]: row for row in load("encoder_base")["rows"]}
    rows = [
        ("runs with tokens equal to autoregressive decoding (50 prompts, draft lengths 1, 3, 7)",
         f"{sum(c['equal'] for c in all_cells)} of {len(all_cells)}", "`python benchmarks/lossless.py`"),
        ("mean speed-up by drafting 3 tokens, host counted",
         f"{sum(c['speedup'] for c in cells) / len(cells):.2f}x", "the same"),
        ("RTL against model: byte / cycle differences",
         "; ".join(f"{f['config']}: {f['byte_differences']} / {f['cycle_differences']} in {f['commands']:,} commands"
                   for f in fuzz), "`make fuzz`"),
        ("512x768x3072 from DRAM and back, of peak MACs", f"{whole['of peak MACs']:.1%}", "`make perf`"),
        ("1x768x3072, of the memory roofline", f"{one['of roofline']:.1%}", "the same"),
        ("cycles of 16 rows / of 1 row; of int8 / of int4 weights",
         f"{many['cycles'] / one['cycles']:.3f}; {one['cycles'] / packed['cycles']:.2f}", "the same"),
        ("matrix unit, operands resident, both dataflows, of peak",
         f"at least {min(row['utilisation'] for row in resident):.1%}", "the same"),
        ("a pass over 8 rows / over 1 row, cycles", f"at most {eight:.3f}", "`python benchmarks/decode.py`"),
        ("DRAM bus busy in a one-row pass", f"{min(busy):.1%} to {max(busy):.1%}", "the same"),
        ("attention of 12 heads; whole BERT-base layer, sequence 128, of peak MACs",
         "; ".join(f"{encoder[name]['share of peak']:.1%}" for name in ("attention", "encoder layer")), "the same"),
        ("timing-only model, simulated cycles per second",
         f"{speed['model, timing only']['cycles per second']:,}", "`make perf`"),
        (f"timing-only model over RTL simulation, {load('speed_base')['shape']}",
         f"{speed['model, timing only']['over RTL']:,.0f}x", "`make perf`"),
        ("RTL simulation (Verilator), cycles per second", f"{speed['RTL (Verilator)']['cycles per second']:,}",
         "the same"),
        (f"SCALE-Sim 3, {load('scalesim')['shape']}, cycles per CPU-second",
         f"{load('scalesim')['cycles_per_second']:,.0f}", "`make perf-scalesim`"),
        ("target on held-out files, bits per byte: float, int8",
         f"{quality['target']['bits_per_byte_float']:.3f}, {quality['target']['bits_per_byte_int8']:.3f}",
         "`python -m gemmule.sw.training.bundle`"),
    ]
    lines = ["| what | value | command |", "|---|---|---|"]
    return "\n".join(lines + [f"| {a} | {b} | {c} |" for a, b, c in rows])


def fill(text: str, marker: str, content: str) -> str:
    """Replace what stands between the marker and its end."""
    return re.sub(rf"(<!-- {marker} -->\n).*?(<!-- end -->)", lambda m: m[1] + content + "\n" + m[2], text,
                  count=1, flags=re.DOTALL)


def main() -> None:
    page = ROOT / "README.md"
    text = fill(page.read_text(), "demo", f"```\n{demo()}\n```")
    text = fill(text, "numbers", numbers())
    part = page.with_suffix(".part")
    part.write_text(text)
    os.replace(part, page)


if __name__ == "__main__":
    main()
