"""Speed-ups by drafting on held-out prompts, draft lengths chosen on others, and what host and memory change in them.

    python benchmarks/speculation.py --out docs/results/speculation.json

Part by part `gemmule bench` runs, in the order of the list below; what an interrupted run has done is kept in --work
and taken from there. Draft lengths are those with the largest mean speed-up on the calibration prompts, which are of
other files than all others. No prompt is left out; with --prompts, --calibration and --drawn the first N of each list
are taken, and the result says so.

The part *bandwidth* runs the first completions on devices whose DRAM is slower, by longer beats, or faster: there the
bus is wider, and with it the mesh, since a bus is at most DIM bytes wide.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from common import console, show, write

from gemmule.config import load_config

LENGTHS = "1,2,3,5,7"
BANDWIDTHS: dict[str, dict[str, Any]] = {
    "1/4": {"dram": {"beat_cycles": 4}}, "1/2": {"dram": {"beat_cycles": 2}}, "1": {},
    "2": {"dim": 32, "bus_bytes": 32}, "4": {"dim": 64, "bus_bytes": 64}}
"""Of the DRAM, over the configuration's own: what is changed."""
BANDWIDTH_PROMPTS = 5
Best = dict[tuple[str, str], int]
"""Draft length by method and rule."""


def bench(name: str, work: Path, *options: str) -> dict[str, Any]:
    """One part: what `gemmule bench` writes.

    Raises:
        SystemExit: a text differs from that of autoregressive decoding, or the options are wrong.
    """
    console.print(f"[dim]{name}: gemmule bench {' '.join(options)}")
    made = work / f"{name}.json"
    done = subprocess.run([
        str(Path(sys.executable).with_name("gemmule")), "bench", "--compute", "interpreter", "--resume",
        str(work / f"{name}.jsonl"), "--json", str(made), *options], check=False, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{name}: gemmule bench ended with {done.returncode}")
    record: dict[str, Any] = json.loads(made.read_text())
    return record


def first(count: int | None) -> tuple[str, ...]:
    """The option for so many prompts of each list."""
    return ("--prompts", str(count)) if count else ()


def calibration(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each draft length on the calibration prompts."""
    common = ("--config", args.config, "--category", "calibration", "--num-speculative-tokens", LENGTHS)
    yield "calibration", bench("calibration", args.work, *common, "--method", "draft,pld", *first(args.calibration))
    for rule in ("rejection", "match"):
        yield f"calibration_{rule}", bench(
            f"calibration_{rule}", args.work, *common, "--method", "draft", "--temperature", "0.8", "--verify", rule,
            *first(args.drawn))


def held_out(args: argparse.Namespace, best: Best) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chosen lengths on held-out prompts."""
    greedy = ("--config", args.config, "--num-speculative-tokens")
    length = str(best["draft", "greedy"])
    for name, category, method, count in (
            ("completion", "completion", "ar,draft,always,never", length),
            ("copy_pld", "copy", "pld", "7"),
            ("completion_pld", "completion", "pld", str(best["pld", "greedy"])),
            ("copy", "copy", "ar,draft", length)):
        yield name, bench(name, args.work, *greedy, count, "--category", category, "--method", method,
                          *first(args.prompts))
    for rule in ("rejection", "match"):
        name = f"completion_{rule}"
        yield name, bench(name, args.work, *greedy, str(best["draft", rule]), "--category", "completion", "--method",
                          "ar,draft", "--temperature", "0.8", "--verify", rule, *first(args.drawn))


def others(args: argparse.Namespace, best: Best) -> Iterator[tuple[str, dict[str, Any]]]:
    """The other categories."""
    yield "others", bench("others", args.work, "--config", args.config, "--num-speculative-tokens",
                          str(best["draft", "greedy"]), "--category", "docstring,table,repetition", "--method",
                          "draft,pld", *first(args.prompts))


def bandwidth(args: argparse.Namespace, best: Best) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first completions on devices with other memories."""
    own = load_config(args.config).model_dump()
    for factor, changed in BANDWIDTHS.items():
        parts = {key: own[key] | value if isinstance(value, dict) else value for key, value in changed.items()}
        name = f"bandwidth_{factor.replace('/', '_')}"
        path = args.work / f"{name}.yaml"
        path.write_text(yaml.safe_dump(own | parts | {"name": name}))
        yield name, bench(name, args.work, "--config", str(path), "--category", "completion", "--method", "ar,draft",
                          "--num-speculative-tokens", str(best["draft", "greedy"]), "--prompts", str(min(
                              BANDWIDTH_PROMPTS, args.prompts or BANDWIDTH_PROMPTS)))


def chosen(parts: dict[str, dict[str, Any]]) -> Best:
    """Draft lengths by what calibration measured."""
    return {(one["method"], one["verify"]): one["measured"] for part in parts.values() for one in part["best"]
            if one["category"] == "calibration"}


def kept(record: dict[str, Any]) -> dict[str, Any]:
    """What of a part goes into the result."""
    names = ("config", "model", "max_new_tokens", "seed", "launch", "rows", "best", "prompts")
    return {name: record[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="base")
    parser.add_argument("--prompts", type=int, help="the first so many of each held-out list; by default all")
    parser.add_argument("--calibration", type=int, help="the same of the calibration prompts, greedy decoding")
    parser.add_argument("--drawn", type=int, help="the same of all prompts of parts whose tokens are drawn")
    parser.add_argument("--work", type=Path, default=Path("build/speculation"))
    parser.add_argument("--out", type=Path, default=Path("build/speculation.json"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    parts: dict[str, dict[str, Any]] = {}

    def keep(found: Iterator[tuple[str, dict[str, Any]]]) -> None:
        for name, record in found:
            parts[name] = kept(record)
            write(args.out, {"command": "python benchmarks/speculation.py", "prompts": {
                name: getattr(args, name) for name in ("calibration", "prompts", "drawn")}, "chosen": [
                {"method": method, "verify": rule, "num_speculative_tokens": count}
                for (method, rule), count in chosen(parts).items()], "parts": parts})
            show(name, [{
                "category": row["category"], "method": f"{row['method']} {row['verify']}",
                "drafts": row["num_speculative_tokens"], "prompts": row["prompts"],
                "equal": "-" if row["equal_to_ar"] is None else str(row["equal_to_ar"]),
                "mean": f"{row['speedup_over_ar']:.3f}x", "median": f"{row['speedup_median']:.3f}x",
                "a step": f"{row['tokens_per_step']:.2f}", "roofline": f"{row['roofline_fraction']:.1%}",
            } for row in record["rows"]])

    keep(calibration(args))
    keep(held_out(args, chosen(parts)))
    keep(bandwidth(args, chosen(parts)))
    keep(others(args, chosen(parts)))


if __name__ == "__main__":
    main()
