"""Shapes of a small target, each trained alike: quality beside this device's exact cycles and energy of a token.

    python -m benchmarks.small_targets --train build/small_targets --out docs/results/small_targets.json
    python -m benchmarks.small_targets --page

Decoders of the small pair's kind (tokenizer, text, recipe of ``gemmule.sw.training.stages.small``), by width, layers
and columns of a head, see the same windows of the standard library's train split in the same order, each for the same
number of tokens. Perplexity is of the network in int8, on the first held-out windows, which neither training nor
calibration has seen. A token's cycles and energy are those of a pass of one row behind 192 others, the
choice of its token included. A shape that was trained is not trained again; a killed run goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.compile import compile_network
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.quantize.accuracy import perplexity
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.config import Config, load_config
from gemmule.io.files import write_atomically
from gemmule.sim.energy.table import load_energy
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.reports.figures import pareto_figure
from gemmule.sw.reports.markdown import fill, table
from gemmule.sw.sweeps.sweep import pareto
from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.text.corpus import Corpus, load_corpus
from gemmule.sw.training.data.tokenizer import draw_windows, token_stream
from gemmule.sw.training.networks.export import SMALL_TARGET, ModelShape, parameters, save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
RESULT, FIGURE = ROOT / "docs" / "results" / "small_targets.json", ROOT / "docs" / "img" / "small_targets.svg"
PAGE = ROOT / "docs" / "models.md"
WIDTHS, LAYERS, HEAD_DIM = (64, 96, 128), (2, 4, 6), 32
"""Every combination; inner columns are four times the width, as of the small target."""
BESIDE = (
    ModelShape(hidden_size=192, intermediate_size=768, num_layers=2, num_heads=6),
    ModelShape(hidden_size=128, intermediate_size=512, num_layers=4, num_heads=2, head_dim=64),
    ModelShape(hidden_size=128, intermediate_size=512, num_layers=4, num_heads=8, head_dim=16),
    ModelShape(hidden_size=128, intermediate_size=256, num_layers=6, num_heads=4))
"""Wide and flat, other heads, and half of the inner columns."""
STEPS, BATCH, THREADS, SEED, SAVE_STEPS = 300, 16, 1, 1, 50
CALIBRATION, HELD_OUT = 32, 48
"""Windows of 256 tokens."""
CACHED, POSITIONS, DEVICE = 192, 256, "base"
SLACK = 0.1
"""Of perplexity, within which the survey compares (Kim et al. 2023, arXiv 2302.14017)."""
PUBLISHED_EDP = 2.24


def shapes() -> list[ModelShape]:
    """All that are compared."""
    grid = [ModelShape(hidden_size=width, intermediate_size=4 * width, num_layers=layers, num_heads=width // HEAD_DIM)
            for width, layers in itertools.product(WIDTHS, LAYERS)]
    return [*grid, *BESIDE]


def name_of(shape: ModelShape) -> str:
    """``128x6h4``, and the inner columns where they are not four times the width."""
    inner = "" if shape.intermediate_size == 4 * shape.hidden_size else f"i{shape.intermediate_size}"
    return f"{shape.hidden_size}x{shape.num_layers}h{shape.num_heads}{inner}"


def trained(shape: ModelShape, stream: np.ndarray, folder: Path, steps: int) -> float:
    """Train into ``folder`` unless that was done; returns the seconds that it took in all."""
    import torch

    from gemmule.sw.training.networks.model import LanguageModel
    from gemmule.sw.training.running import load_state, open_place, save_state
    from gemmule.sw.training.stages.small import PEAK_RATE, learning_rate, make_optimizer, text_loss, windows_of

    place = open_place(THREADS)
    torch.manual_seed(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    model = LanguageModel(shape)
    optimizer, path = make_optimizer(model), folder / "checkpoint.pt"
    step, seconds = 0, 0.0
    if state := load_state(path, f"{name_of(shape)}, {steps} steps, seed {SEED}"):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, seconds = state["step"], state["seconds"]
    began = time.monotonic() - seconds
    while step < steps:
        loss = text_loss(model, windows_of(stream, BATCH, (SEED, step)), place)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, PEAK_RATE)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % SAVE_STEPS == 0 or step == steps:
            seconds = time.monotonic() - began
            print(f"{name_of(shape)} {step}/{steps}: {loss.item():.3f} nats, {seconds:.0f} s", flush=True)
            save_state({"recipe": f"{name_of(shape)}, {steps} steps, seed {SEED}", "step": step, "seconds": seconds,
                        "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    save_checkpoint(folder, shape, {name: weight.detach().float().numpy()
                                    for name, weight in model.named_parameters()})
    return seconds


def costs(network: Network, config: Config) -> dict[str, Any]:
    """Cycles with host and launch, and energy of device and DRAM, of a token that the device chooses."""
    program = compile_network(network, config, rows=1, tokens=True)
    model = LoadedModel("measured", program, program.fill(network), open_device("model", config, program.size))
    results, host = model.forward(Rows.chain([2], CACHED)).results, config.host
    events = sum((Counter(result.events) for result in results), Counter[str]())
    return {"cycles": sum(int(result.cycles) for result in results)
            + len(results) * host.launch_cycles + host.step_cycles,
            "pj": load_energy().energy(events, config).pj}


def measured(shape: ModelShape, corpus: dict[str, np.ndarray], folder: Path, steps: int,
             config: Config) -> dict[str, Any]:
    """A row."""
    seconds = trained(shape, corpus["train"], folder, steps)
    network = load_network(folder)
    calibration = draw_windows(corpus["calibration"], CALIBRATION, POSITIONS, (SEED, 0))
    held = corpus["held_out"]
    windows = held[:HELD_OUT * POSITIONS].reshape(HELD_OUT, POSITIONS)
    integer = quantize_network(network, calibration, Options(group=0, seed=SEED)).network
    found = {"perplexity": perplexity(integer, windows), "perplexity_float": perplexity(network, windows)}
    return {"shape": name_of(shape), "width": shape.hidden_size, "inner": shape.intermediate_size,
            "layers": shape.num_layers, "heads": shape.num_heads, "parameters": parameters(shape),
            **found, **costs(integer, config), "training_seconds": round(seconds)}


def judged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the energy-delay product, and whether no other shape is better in one and as good in the other."""
    found = [row | {"edp": row["pj"] * row["cycles"]} for row in rows]
    front = pareto([{"name": "", "cycles": row["edp"], "perplexity": row["perplexity"]} for row in found], "perplexity")
    return [row | {"front": best} for row, best in zip(found, front, strict=True)]


def gain(rows: Sequence[dict[str, Any]], baseline: str, slack: float = SLACK) -> tuple[str, float]:
    """The shape with the least energy-delay product at most ``slack`` above the baseline's perplexity, and how many
    times less it is.
    """
    base = next(row for row in rows if row["shape"] == baseline)
    best = min((row for row in rows if row["perplexity"] <= base["perplexity"] + slack), key=lambda row: row["edp"])
    return best["shape"], base["edp"] / best["edp"]


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Parts of the page by their markers."""
    rows = sorted(record["rows"], key=lambda row: row["edp"])
    shown = table(
        ("shape", "parameters", "perplexity", "in float", "cycles a token", "nJ a token", "energy x delay", "front"),
        [(f"`{row['shape']}`", f"{row['parameters']:,}", f"{row['perplexity']:.2f}", f"{row['perplexity_float']:.2f}",
          f"{row['cycles']:,}", f"{row['pj'] / 1000:,.0f}", f"{row['edp'] / record['edp']:.2f}",
          "yes" if row["front"] else "") for row in rows])
    shape, times = record["gain"]
    return {"small targets": shown, "small targets gain": textwrap.fill(
        f"At most {SLACK} above the perplexity of `{record['baseline']}`, `{shape}` has the least energy times delay, "
        f"{times:.2f} times less. Of trained networks {PUBLISHED_EDP} times are published.", 100,
        break_on_hyphens=False)}


def search(folder: Path, out: Path, steps: int) -> None:
    """Train, measure and write, shape by shape."""
    corpus: Corpus = load_corpus()
    tokenizer = load_tokenizer(ROOT / "sw" / "models" / "small" / "tokenizer.json")
    streams = {name: token_stream(tokenizer, corpus.split(name)) for name in corpus.sizes()}
    config, rows = load_config(DEVICE), list[dict[str, Any]]()
    for shape in shapes():
        rows.append(measured(shape, streams, folder / name_of(shape), steps, config))
        print(json.dumps(rows[-1]), flush=True)
    found, baseline = judged(rows), name_of(SMALL_TARGET)
    write_atomically(out, json.dumps({
        "command": f"python -m benchmarks.small_targets --train {folder} --steps {steps} --out {out}", "device": DEVICE,
        "steps": steps, "tokens": steps * BATCH * POSITIONS, "seed": SEED, "cached": CACHED,
        "held_out_windows": HELD_OUT,
        "corpus": corpus.digests(), "baseline": baseline,
        "edp": next(row["edp"] for row in found if row["shape"] == baseline),
        "gain": gain(found, baseline), "rows": found}, indent=1) + "\n")


def page() -> None:
    """Table and figure from the committed result."""
    record = json.loads(RESULT.read_text())
    text = PAGE.read_text()
    for marker, content in tables(record).items():
        text = fill(text, marker, content)
    write_atomically(PAGE, text)
    pareto_figure(FIGURE, [{
        "workload": "small targets", "energy_x_delay": row["edp"] / record["edp"], "perplexity": row["perplexity"],
        "pareto": row["front"]} for row in record["rows"]], "energy_x_delay", "perplexity")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, default=Path("build/small_targets"), help="folder of trained shapes")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--steps", type=int, default=STEPS, help="of 4,096 tokens")
    parser.add_argument("--page", action="store_true", help="only fill docs/models.md and draw the figure")
    args = parser.parse_args()
    if not args.page:
        search(args.train, args.out, args.steps)
    if args.page or args.out == RESULT:
        page()


if __name__ == "__main__":
    main()
