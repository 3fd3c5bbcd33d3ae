"""Fill pages from real output: README.md, and parts of docs/models.md, bodies.md, compiler.md and encoders.md.

    python -m benchmarks.readme           # from docs/results, where the other benchmarks wrote their numbers
    python -m benchmarks.readme --demo    # run the demo before: a minute, minutes where SmolLM2 is not quantised yet
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from benchmarks import readme_smollm2 as smollm2
from gemmule.io.files import write_atomically
from gemmule.sw.reports.files import OPENED
from gemmule.sw.reports.markdown import fill, table, wrapped
from gemmule.sw.training import report

ROOT = Path(__file__).resolve().parents[1]
RUN = [sys.executable, "-c", "from gemmule.sw.cli import main; main()"]
FILES = ["--html", "build/demo.html", "--trace", "build/demo.trace.json.gz"]
DEMO = ROOT / "docs" / "results" / "demo.json"
"""Output of the demo's command, which takes too long to run it whenever a page is filled."""


def load(name: str) -> dict[str, Any]:
    """One of docs/results."""
    record: dict[str, Any] = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    return record


def _output(options: list[str]) -> str:
    """Of ``gemmule generate``, 100 columns wide, but for how long compiling and simulating took."""
    done = subprocess.run([*RUN, "generate", *options], capture_output=True, text=True, check=True, cwd=ROOT,
                          env=os.environ | {"COLUMNS": "100"})
    lines = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip()
    files = "\n".join(line for line in done.stderr.splitlines() if line.startswith(tuple(OPENED.values())))
    return f"{lines}\n{files}" if files else lines


def demo_options() -> list[str]:
    """Of the demo's command, as the Makefile has them."""
    makefile = (ROOT / "Makefile").read_text()
    given = re.search(r"generate (--model smollm2 .*) \$\(REPORT\)", makefile)
    prompt = re.search(r"^PROMPT \?= (.*)$", makefile, re.M)
    assert given is not None
    assert prompt is not None
    return [prompt[1] if word == "$$PROMPT" else word for word in shlex.split(given[1])]


def demo() -> str:
    """The demo's command and its output."""
    if not DEMO.is_file():
        return "Not run yet: `python -m benchmarks.readme --demo`."
    found = json.loads(DEMO.read_text())
    command = f"$ gemmule generate {shlex.join(found['options'])}"
    lines = textwrap.wrap(command, 96, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "```\n" + " \\\n".join(lines) + f"\n{found['output']}\n```"


def bundled() -> str:
    """The same of the bundled pair."""
    return f"```\n{_output(['--max-new-tokens', '96'])}\n```"


def headline() -> str:
    """SmolLM2 in a sentence, and what drafting gains with the bundled pair in another."""
    return "\n\n".join(filter(None, (smollm2.headline(), _of_the_pair())))


def published() -> str:
    """The first table."""
    return smollm2.numbers() or "Not measured yet: `python -m benchmarks.smollm2`."


def _of_the_pair() -> str:
    rows = load("speculation")["parts"]["completion"]["rows"]
    best = next(row for row in rows if row["method"] == "draft")
    slower = round(best["slower_than_ar"] * best["prompts"])
    return wrapped(
        f"**Default bundled pair, a target and a draft model trained here, on {best['prompts']} held-out prompts: "
        f"with {best['num_speculative_tokens']} drafts per step, decoding is {best['speedup_over_ar']:.2f}x as fast "
        f"as autoregressive decoding on average (median {best['speedup_median']:.2f}x, range "
        f"{best['speedup_min']:.2f}x to {best['speedup_max']:.2f}x, slower on {slower} prompts).** The draft length "
        f"was chosen on other prompts. These texts are repetitive: {best['distinct_4grams']:.0%} of their 4-grams are "
        "distinct on average ([`benchmarks/speculation.py`](docs/decoding.md#measured)).")


def numbers() -> str:
    """The table of README.md: what was measured, on what, the value, the command."""
    return table(("what", "measured on", "value", "command, result"),
                 [*_decoding(), *_fuzzing(), *_utilisation(), *_speed(), _quality(), _sentences()])


def _by(command: str, result: str) -> str:
    return f"`{command}`: [{result}](docs/results/{result}.json)"


def _decoding() -> list[tuple[str, ...]]:
    found, command = load("lossless"), _by("make drafting", "lossless")
    conditions, summaries = found["conditions"], {s["draft_length"]: s for s in found["summaries"]}
    prompts = (f"{len(found['rows'])} prompts of 2 to 8 lines from files that the models were not trained on "
               f"([prompts](sw/prompts/completion.json)), {conditions['new_tokens']} new tokens, "
               f"`{conditions['config']}`")
    lengths = ", ".join(map(str, conditions["lengths"]))
    rows = [("small pair: runs whose tokens equal those of autoregressive decoding",
             f"{prompts}; draft lengths {lengths}",
             f"{sum(s['equal'] for s in summaries.values())} of {sum(s['prompts'] for s in summaries.values())}",
             command)]
    for length in (3, max(summaries)):
        s = summaries[length]
        rows.append((f"small pair: speed-up with {length} drafts per step, prefill and host included", "the same",
                     f"mean {s['mean']:.2f}x, median {s['median']:.2f}x, {s['min']:.2f}x to {s['max']:.2f}x; "
                     f"slower on {s['slower']} of {s['prompts']}", command))
    loops, others = (summaries[3]["parts"][kind] for kind in ("looping", "not looping"))
    rows.append(("small pair: the same with 3 drafts, for texts that loop and texts that do not",
                 "the same; a text loops if fewer than half of its 4-grams are distinct",
                 f"mean {loops['mean']:.2f}x over {loops['prompts']}; mean {others['mean']:.2f}x over "
                 f"{others['prompts']}",
                 command))
    return rows


def _fuzzing() -> list[tuple[str, ...]]:
    found = [load(path.stem) for path in sorted((ROOT / "docs" / "results").glob("fuzz_*.json"))]
    names = ", ".join(f"`{f['config']}` {f['commands']:,} ({f['programs']})" for f in found)
    return [("RTL against model: bytes and cycles that differ",
             f"random programs, seeds from {found[0]['seed']} on; presets, example configurations and unusual "
             f"configurations; commands (programs): {names}",
             f"{sum(f['byte_differences'] for f in found)} and {sum(f['cycle_differences'] for f in found)} in "
             f"{sum(f['commands'] for f in found):,} commands", "`make fuzz`: [fuzz_*](docs/results)")]


def _utilisation() -> list[tuple[str, ...]]:
    gemm = {(row["shape"], row["dataflow"], row["weights"]): row for row in load("gemm_base")["rows"]}
    whole, one, many, packed = (gemm[key] for key in (
        ("512x768x3072", "ws", "int8"), ("1x768x3072", "ws", "int8"), ("16x768x3072", "ws", "int8"),
        ("1x768x3072", "ws", "int4")))
    resident, decode = load("matrix_base")["rows"], load("decode_base")["rows"]
    encoder = load("encoder_base")["whole"]
    eight = max(row["over 1 row"] for row in decode if row["rows"] == 8)
    busy = [row["DRAM bus busy"] for row in decode if row["rows"] == 1]
    contexts = ", ".join(str(row["context"]) for row in decode if row["rows"] == 1)
    product, passes = _by("make perf", "gemm_base"), _by("make perf", "decode_base")
    layer = _by("make perf", "encoder_base")
    shapes = ", ".join(dict.fromkeys(row["shape"] for row in resident))
    gpt2 = {(row["batch"], row["program"], row["rows"], row["context"]): row for row in load("gpt2")["passes"]}
    by_shape = _by("make perf", "gpt2")
    return [
        ("share of the memory roofline, decode", "GPT-2 (124 M), shapes only, context 512, head included, `base`",
         f"{gpt2[1, 1, 1, 512]['roofline_fraction']:.1%}", by_shape),
        ("cycles of a pass over 8 and 16 rows, relative to 1 row", "the same",
         ", ".join(f"{gpt2[1, rows, rows, 512]['of_one_row']:.3f}" for rows in (8, 16)), by_shape),
        ("cycles of a pass over 8 sequences with one row each, relative to 1 sequence", "the same; one cache each",
         f"{gpt2[8, 1, 1, 512]['of_one_row']:.3f}", by_shape),
        ("share of peak MACs, operands and result in DRAM", "product 512x768x3072, int8, weight-stationary, `base`",
         f"{whole['of peak MACs']:.1%}", product),
        ("share of the memory roofline", "product 1x768x3072, the same", f"{one['of roofline']:.1%}", product),
        ("cycles of 16 rows, relative to 1 row", "products 16x768x3072 and 1x768x3072, the same",
         f"{many['cycles'] / one['cycles']:.3f}", product),
        ("cycles with int8 weights, relative to int4", "product 1x768x3072, the same",
         f"{one['cycles'] / packed['cycles']:.2f}", product),
        ("share of peak MACs of the matrix unit, operands on chip", f"products {shapes}, both dataflows, `base`",
         f"at least {min(row['utilisation'] for row in resident):.1%}", _by("make perf", "matrix_base")),
        ("small target: cycles of a pass over 8 rows, relative to 1 row", f"contexts {contexts}, `base`",
         f"at most {eight:.3f}", passes),
        ("small target: DRAM bus busy in a pass over 1 row", "the same", f"{min(busy):.1%} to {max(busy):.1%}", passes),
        *((f"share of peak MACs, {row['program']}",
           f"{row['layers']} layers, shapes only, from start to interrupt, `base`",
           f"{row['share of peak']:.1%}", layer) for row in encoder),
        ("the same, attention alone", "12 heads of 64, exact softmax",
         ", ".join(f"{row['share of peak, attention']:.1%}" for row in encoder), layer),
    ]


def _speed() -> list[tuple[str, ...]]:
    found, other = load("speed_base"), load("scalesim")
    side = {row["side"]: row for row in found["rows"]}
    made = found.get("machine")
    where = (f"one core of {made['cores']}, {made['processor']}, load {made['load_average']}" if made else
             "one core, machine not recorded")
    product, command = f"product {found['shape']}, `base`; wall clock, {where}", _by("make perf", "speed_base")
    return [
        ("simulated cycles per second, timing-only model", product,
         f"{side['model, timing only']['cycles per second']:,}", command),
        ("simulated cycles per second, model with data", "the same",
         f"{side['model, with data']['cycles per second']:,}", command),
        ("simulated cycles per second, RTL under Verilator", "the same",
         f"{side['RTL (Verilator)']['cycles per second']:,}", command),
        ("timing-only model, speed relative to RTL", "the same",
         f"{side['model, timing only']['over RTL']:,.0f}x", command),
        ("simulated cycles per second, SCALE-Sim 3 (no data)",
         f"product {other['shape']}, 16 x 16, CPU time, machine not recorded",
         f"{other['cycles_per_second']:,.0f}", _by("make perf-scalesim", "scalesim")),
    ]


def _quality() -> tuple[str, ...]:
    quality = json.loads((ROOT / "sw" / "models" / "small" / "quality.json").read_text())
    target = quality["target"]
    return ("small target: bits per byte in float and in int8",
            f"all {quality['held_out_bytes']:,} bytes of the held-out files",
            f"{target['bits_per_byte_float']:.3f}, {target['bits_per_byte_int8']:.3f}",
            "`make train-small`: [quality](sw/models/small/quality.json)")


def _sentences() -> tuple[str, ...]:
    unseen = next(row for row in load("sentences")["rows"] if (row["setting"], row["sentences"]) == ("int8", "unseen"))
    return ("rank correlation of sentence similarities, int8 with float", "all-MiniLM-L6-v2, all pairs of 64 sentences",
            f"{unseen['spearman']:.3f}", _by("make sentences", "sentences"))


def drafting() -> str:
    """The tables of docs/models.md."""
    found = load("lossless")
    distinct = [row["distinct_4grams"] for row in found["rows"]]
    every = table(
        ("drafts a step", "mean", "median", "range", "slower than `ar`", "tokens per step", "acceptance"),
        [(s["draft_length"], f"{s['mean']:.2f}x", f"{s['median']:.2f}x", f"{s['min']:.2f}x to {s['max']:.2f}x",
          f"{s['slower'] / s['prompts']:.0%}", f"{s['tokens_per_step']:.2f}", f"{s['acceptance']:.1%}")
         for s in found["summaries"]])
    parts = list(found["summaries"][0]["parts"])
    kinds = table(
        ("drafts a step", *(f"{name} ({found['summaries'][0]['parts'][name]['prompts']})" for name in parts),
         "correlation"),
        [(s["draft_length"], *(f"{s['parts'][name]['mean']:.2f}x" for name in parts),
          f"{s['correlation_with_distinct_4grams']:.2f}") for s in found["summaries"]])
    loops = found["summaries"][0]["parts"]["looping"]["prompts"]
    return wrapped(
        f"{every}\n\nShare of distinct 4-grams in the {len(distinct)} texts: median {statistics.median(distinct):.0%}, "
        f"{min(distinct):.0%} to {max(distinct):.0%}. It is below half in {loops} texts; these count as looping. Mean "
        f"speed-up by kind of text and of prompt (with their number), and correlation of speed-up with the share of "
        f"distinct 4-grams:\n\n{kinds}")


def _weights(rows: list[dict[str, Any]], first: str) -> str:
    """Rows of benchmarks.weights; ``first``: what tells them apart beside the format."""
    return table((first, "weights", "bytes of the layers", "bits per byte", "cycles"), [
        (str(row[first]).removeprefix("default "), row["weights"], f"{row['bytes']:,}", f"{row['bits per byte']:.3f}",
         "-" if row["cycles"] is None else f"{row['cycles']:,}") for row in rows])


def weights() -> str:
    """Formats of weights of docs/models.md, and what the coarsest ones lose."""
    rows = load("weights")["rows"]
    bits = {(row["model"].split()[-1], row["weights"]): row["bits per byte"] for row in rows}
    lost = "; the ".join(f"{role} loses {bits[role, 'int4 by 32'] / bits[role, 'float'] - 1:.1%} to int4 by groups of "
                         f"32 and {bits[role, '3 bits by 32'] / bits[role, 'float'] - 1:.1%} to 3 bits"
                         for role in dict.fromkeys(role for role, _ in bits))
    return _weights(rows, "model") + "\n\n" + wrapped(f"The {lost}.")


def halves() -> str:
    """N numbers in int8 beside 2 N in int4, of docs/models.md, and which of each two is better."""
    rows = load("weights")["halves"]
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    told = "; ".join(
        f"{more['layers']} layers in int4 instead of {few['layers']} in int8: "
        f"{more['bits per byte'] / few['bits per byte'] - 1:+.1%} bits per byte, "
        f"{more['cycles'] / few['cycles'] - 1:+.1%} cycles" for few, more in pairs)
    return _weights(rows, "layers") + "\n\n" + wrapped(f"{told[0].upper()}{told[1:]}.")


def bodies() -> str:
    """The tables of docs/bodies.md."""
    found = load("repeat")
    tables = []
    for name in ("layers", "greedy"):
        rows = found[name]
        tables.append(table(tuple(rows[0]), [tuple(
            f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
            for value in row.values()) for row in rows]))
    return "\n\n".join(tables)


def gpt2() -> str:
    """Decoding by shape of docs/compiler.md: programs compiled for the rows that they pass."""
    rows = [row for row in load("gpt2")["passes"] if row["rows"] == row["program"] and (
        row["context"] == 512 or (row["rows"], row["batch"], row["context"]) == (1, 1, 0))]
    return table(("rows", "context", "cycles", "share of roofline", "relative to one row"), [
        (f"1 of each of {row['batch']} sequences" if row["batch"] > 1 else row["rows"], row["context"],
         f"{row['cycles']:,}", f"{row['roofline_fraction']:.1%}", f"{row['of_one_row']:.3f}") for row in rows])


def encoder() -> str:
    """The table of docs/compiler.md."""
    return table(("sequence", "cycles", "share of peak MACs", "heads", "attention", "output", "MLP", "DRAM bytes"),
                 [(row["program"].split()[-1], f"{row['cycles']:,}", f"{row['share of peak']:.2%}", *(
                     f"{row[f'share of peak, {part}']:.2%}" for part in ("heads", "attention", "output", "mlp")),
                   f"{row['DRAM bytes']:,}") for row in load("encoder_base")["whole"]])


def sentences() -> str:
    """The table of docs/encoders.md."""
    rows = load("sentences")["rows"]
    sides = {(row["setting"], row["sentences"]): row for row in rows}

    def both(setting: str, name: str, digits: int) -> str:
        return ", ".join(f"{sides[setting, side][name]:.{digits}f}" for side in ("seen", "unseen"))

    return table(("setting", "rank correlation", "largest difference of a similarity", "cosine with float, mean",
                  "least"),
                 [(setting, both(setting, "spearman", 4), both(setting, "largest_difference", 3),
                   both(setting, "cosine_mean", 4), both(setting, "cosine_least", 4))
                  for setting in dict.fromkeys(row["setting"] for row in rows)])


def pruned_sentences() -> str:
    """The tables of docs/encoders.md of rows that leave."""
    found = load("pruned_sentences")
    ranks = table(("texts", "schedule", "rows, mean of layers", "rank correlation with dense, seen", "unseen",
                   "drawn, unseen", "dense rows, pooled, unseen"), [
        (row["texts"], row["schedule"], f"{row['rows']:.2f}", *(f"{row[key]:.3f}" for key in (
            "spearman_seen", "spearman_unseen", "drawn_unseen", "dense_rows_pooled_unseen"))) for row in found["best"]])
    times = table(("tokens", "schedule", "cycles, dense", "cycles", "dense over these", "of TOP_K", "exposed"), [
        (row["tokens"], row["schedule"], f"{row['cycles_dense']:,}", f"{row['cycles']:,}", f"{row['cycles_ratio']:.2f}",
         row["topk_cycles"], row["topk_exposed_cycles"]) for row in found["cycles"]])
    return f"{ranks}\n\n{times}"


def pruned_heads() -> str:
    """The tables of docs/encoders.md of heads that leave."""
    found = load("pruned_sentences")
    ranks = table(("texts", "schedule", "heads, mean of layers", "rank correlation with dense, seen", "unseen",
                   "drawn for each text, unseen", "drawn once, unseen"), [
        (row["texts"], row["schedule"], f"{row['heads']:.2f}", *(f"{value:.3f}" for value in (
            row["spearman_seen"], row["spearman_unseen"], row["each_drawn_unseen"],
            sum(row["drawn_unseen"]) / len(row["drawn_unseen"])))) for row in found["heads"]])
    times = table(("tokens", "schedule", "cycles, dense", "cycles", "dense over these"), [
        (row["tokens"], row["schedule"], f"{row['cycles_dense']:,}", f"{row['cycles']:,}", f"{row['cycles_ratio']:.2f}")
        for row in found["heads_cycles"]])
    return f"{ranks}\n\n{times}"


def equality() -> str:
    """Token equality of docs/decoding.md: all methods and draft lengths together, by what ran."""
    rows = []
    for name, part in load("equality")["parts"].items():
        model, weights, _, batch, *_ = name.split()
        runs = part["total"].values()
        steps = {kind: sum(run["steps"][kind] for run in runs) for kind in ("none", "some", "all", "undrafted")}
        drafted = sum(steps.values()) - steps["undrafted"]
        rows.append((
            f"{model}, {weights}", batch, f"{max(run['texts'] for run in runs)}", f"{len(part['total'])}",
            f"{sum(run['equal'] for run in runs):,} of {sum(run['texts'] for run in runs):,}",
            f"{sum(run['different_caches'] for run in runs):,} of {sum(run['commits'] for run in runs):,}",
            f"{sum(run['tokens'] for run in runs):,}", f"{steps['none']:,} / {steps['some']:,} / {steps['all']:,}",
            f"{(steps['some'] + steps['all']) / drafted:.0%}"))
    return table(("models", "batch", "prompts", "methods x lengths", "equal texts", "different caches", "tokens",
                  "steps that accepted no, some, all drafts", "accepted any"), rows)


def launches() -> str:
    """What a launch holds, in docs/decoding.md."""
    return table(("drafts", "launch", "launches per step", "device cycles per step", "with the host",
                  "speed-up over `ar`", "at 0 cycles per launch", "at 20,000 cycles per launch"), [
        (str(row["drafts"]), f"`{row['launch']}`", f"{row['launches a step']:.2f}",
         f"{row['device cycles a step']:,.0f}", f"{row['cycles a step']:,.0f}",
         *(f"{row[f'speed-up at {cost}']:.3f}x" for cost in ("2,000", "0", "20,000")))
        for row in load("launches")["rows"]])


def prefill() -> str:
    """Prompts of docs/decoding.md: cycles by rows of a launch, then speed-ups with one program and with two."""
    found = load("prefill")
    lengths = [name for name in found["prompts"][0] if name.endswith(" tokens")]
    rows = table(("model", "rows per launch", "program", *lengths), [
        (row["model"], str(row["rows"]), row["program"], *(f"{row[name]:,}" for name in lengths))
        for row in found["prompts"] if lengths[0] in row])
    runs = table(("method", "prompts", "prompt tokens, mean", "rows per target launch", "equal to `ar`",
                  "prompt cycles", "total cycles", "total cycles, `ar`", "speed-up"), [
        (row["method"], str(row["prompts"]), f"{row['prompt_tokens']:.0f}",
         str(row["target_rows"] or found["prompts"][0]["rows"]), str(row["equal"]), f"{row['prefill_cycles']:,.0f}",
         f"{row['cycles']:,.0f}", f"{row['ar_cycles']:,.0f}", f"{row['speedup']:.2f}x") for row in found["means"]])
    tokens = found["runs"][0]["new_tokens"]
    return f"{rows}\n\nWith {tokens} new tokens, means over held-out completions and copies:\n\n{runs}"


def speculation() -> str:
    """Speed-ups of docs/decoding.md on held-out prompts, and what host and memory change."""
    found = load("speculation")
    taken = {name: "all" if count is None else f"the first {count}" for name, count in found["prompts"].items()}
    rows = [(row["category"], f"`{row['method']}`" + (f", T {row['temperature']:g}, {row['verify']}"
                                                      if row["temperature"] else ""),
             str(row["num_speculative_tokens"]), f"{row['prompts']}",
             "-" if row["equal_to_ar"] is None else f"{row['equal_to_ar']}", f"{row['speedup_over_ar']:.2f}x",
             f"{row['speedup_median']:.2f}x", f"{row['slower_than_ar']:.0%}", f"{row['tokens_per_step']:.2f}",
             *(("-",) * 3 if row["theoretical_speedup"] is None else (
                 f"{row['theoretical_speedup']:.2f}x", f"{row['decode_speedup']:.2f}x",
                 f"{row['tokens_of_theory']:.0%} x {row['cycles_of_theory']:.1%}")),
             f"{row['roofline_fraction']:.1%}")
            for name, part in found["parts"].items() if not name.startswith(("calibration", "bandwidth"))
            for row in part["rows"] if row["category"] != "all"]
    heads = ("prompts", "method", "drafts", "number", "equal", "mean", "median", "slower",
             "tokens per step", "predicted", "measured", "measured / predicted: tokens x cycles", "target's roofline")
    first = found["parts"]["completion"]["rows"]
    hosts = first[0]["speedup_by_launch_cycles"]
    host = table(("host cycles per launch", *(f"{int(count):,}" for count in hosts)), [
        (f"`{row['method']}`", *(f"{gain:.3f}x" for gain in row["speedup_by_launch_cycles"].values()))
        for row in first if row["method"] == "draft"])
    memory = [part for name, part in found["parts"].items() if name.startswith("bandwidth")]
    slow = table(("DRAM bandwidth", *(name.removeprefix("bandwidth_").replace("_", "/") for name in found["parts"]
                                      if name.startswith("bandwidth"))), [
        ("`draft` over `ar`", *(f"{row['speedup_over_ar']:.3f}x" for part in memory for row in part["rows"]
                                if row["method"] == "draft")),
        ("roofline of `ar`", *(f"{row['roofline_fraction']:.1%}" for part in memory for row in part["rows"]
                               if row["method"] == "ar"))])
    chosen = ", ".join(f"`{one['method']}` {one['verify']} {one['num_speculative_tokens']}" for one in found["chosen"])
    ran = wrapped(f"Prompts used from each list, in order: {taken['calibration']} calibration prompts, "
                  f"{taken['prompts']} held-out prompts, {taken['drawn']} with sampling. Draft lengths chosen by "
                  f"calibration: {chosen}.")
    return "\n\n".join((ran, table(heads, rows), host, *([slow] if memory else [])))


PARTS = {"README.md": {"headline": headline, "demo": demo, "published": published, "numbers": numbers},
         "docs/models.md": {"bundled": bundled, "drafting": drafting, "weights": weights, "halves": halves}
         | report.PARTS,
         "docs/bodies.md": {"bodies": bodies},
         "docs/compiler.md": {"gpt2": gpt2, "encoder": encoder}, "docs/encoders.md": {
             "sentences": sentences, "pruned sentences": pruned_sentences, "pruned heads": pruned_heads},
         "docs/decoding.md": {
             "launches": launches, "prefill": prefill, "equality": equality, "speculation": speculation}}
"""By page, what stands between ``<!-- name -->`` and ``<!-- end -->``."""


def main() -> None:
    if sys.argv[1:] == ["--demo"]:
        options = demo_options()
        write_atomically(DEMO, json.dumps({"options": options, "output": _output([*options, *FILES])}, indent=1,
                                          ensure_ascii=False) + "\n")
    for name, parts in PARTS.items():
        text = (ROOT / name).read_text()
        for marker, content in parts.items():
            text = fill(text, marker, content())
        write_atomically(ROOT / name, text)


if __name__ == "__main__":
    main()
