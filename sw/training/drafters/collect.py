"""Measure what runs brought back, and write weights, record, figure and page.

    python -m gemmule.sw.training.drafters.collect --run DIR [DIR ...] --pack DIR

``--run`` takes the ``--out`` of a run and of those that continue it, in their order; each drafter comes from the last
run that trained it. Weights become int8 by row; on a few texts they are measured again on the CPU, as they
came and in int8. Trees are chosen on the held-out texts and measured on the requests, which nothing was chosen on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from gemmule.io.files import write_atomically
from gemmule.sw.training.drafters.int8 import in_int8, write_int8
from gemmule.sw.training.drafters.judging import ranks_of
from gemmule.sw.training.drafters.networks import Drafter, build
from gemmule.sw.training.drafters.packed import Pack, read_pack
from gemmule.sw.training.drafters.page import write_page
from gemmule.sw.training.drafters.ranks import TOP, judged, load_ranks, summary, trees
from gemmule.sw.training.drafters.recipe import KINDS, NetworkRecipe
from gemmule.sw.training.drafters.start import mark_of
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.writing import Pool

__all__ = ["collect", "load_drafter"]


def load_drafter(path: Path, target: Target) -> Drafter:
    """A drafter of a run's file.

    Raises:
        ValueError: it is of another network.
    """
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()["drafter"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    plan: dict[str, Any] = dict(said["recipe"]["network"])
    network = NetworkRecipe(**(plan | {"depths": tuple(plan["depths"])}))
    if network.depths != target.depths:
        raise ValueError(f"{path.name}: reads the depths {network.depths}, not {target.depths}")
    drafter = build(said["kind"], target.shape, network, target.embedding, tensors.pop("vocabulary").long())
    drafter.load_state_dict({name: value.float() for name, value in tensors.items()})
    return drafter


def collect(runs: Sequence[Path], pack: Pack, weights: Path, docs: Path, texts: int) -> dict[str, Any]:
    """Write everything; the record.

    Raises:
        ValueError: a run lacks a file, its weights are of another target, or it does not continue the one before.
    """
    told = [_told(run) for run in runs]
    for before, run, one in zip((None, *runs), runs, told):
        start = one["recipe"]["start"]
        if start != (mark_of(before, one["recipe"]["kinds"]) if before else None):
            raise ValueError(f"{run}: does not continue {before}: give a run and those that continue it, in their order"
                             if before else f"{run}: continues another run: give that one before it")
    network = told[0]["recipe"]["network"]
    target = Target(pack, torch.device("cpu"), network["depths"])
    some = _some(Pool.load(runs[0] / "held_out.npz"), texts)
    weights.mkdir(parents=True, exist_ok=True)
    curve = [{"run": number} | point for number, run in enumerate(runs, 1)
             for point in json.loads((run / "curve.json").read_text(encoding="utf-8"))]
    drafters = dict[str, Any]()
    record: dict[str, Any] = {"runs": told, "curve": curve, "drafters": drafters,
                              "target_parameters": sum(value.size for value in pack.tensors.values())}
    for kind in told[0]["recipe"]["kinds"]:
        run, of_it = [(run, one) for run, one in zip(runs, told) if kind in one["recipe"]["kinds"]][-1]
        drafter, ranks = load_drafter(run / f"{kind}.safetensors", target), load_ranks(run / "ranks.npz")[kind]
        as_came = ranks_of({kind: drafter}, target, some, network["positions"], chunk=2)[kind]
        size = _write_int8(kind, drafter, of_it, weights)
        in_int8 = ranks_of({kind: drafter}, target, some, network["positions"], chunk=2)[kind]
        drafters[kind] = {
            "tokens": of_it["tokens"], "parameters": sum(one.numel() for one in drafter.parameters()),
            "head_parameters": drafter.head.numel(), "bytes_int8": size, "judged": judged(ranks),
            "trees": trees(ranks),
            "on_the_cpu": {"texts": texts, "as_it_came": summary(as_came), "int8": summary(in_int8)}}
        print(f"{kind}: requests {drafters[kind]['judged']['requests']['reached'][0]:.3f}, on the CPU "
              f"{summary(as_came)['reached'][0]:.3f}, in int8 {summary(in_int8)['reached'][0]:.3f}", flush=True)
    write_atomically(docs / "results" / "drafters.json", json.dumps(record, indent=1) + "\n")
    write_page(docs)
    return record


def _told(run: Path) -> dict[str, Any]:
    """What a run says of itself; those of before could not be continued and trained all drafters."""
    if not (run / "run.json").exists():
        raise ValueError(f"{run}: lacks run.json: it must be what a run wrote with --out")
    told: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    told = {"tokens_before": 0} | told | {"recipe": {"kinds": list(KINDS), "start": None} | told["recipe"]}
    needed = ["curve.json", "ranks.npz", "held_out.npz", *(f"{kind}.safetensors" for kind in told["recipe"]["kinds"])]
    if missing := [name for name in needed if not (run / name).exists()]:
        raise ValueError(f"{run}: lacks {', '.join(missing)}: it must be what a run wrote with --out")
    return told


def _some(pool: Pool, count: int) -> Pool:
    """Texts spread over a pool."""
    chosen = np.unique(np.linspace(0, len(pool.names) - 1, count).astype(int)).tolist()
    (tokens,), (starts,), (ends,) = pool.tokens, pool.starts, pool.ends
    return Pool(pool.length, [tokens[chosen]], [starts[chosen]], [ends[chosen]], [pool.names[at] for at in chosen])


@torch.no_grad()
def _write_int8(kind: str, drafter: Drafter, told: dict[str, Any], folder: Path) -> int:
    """Write a drafter in int8 and leave it with those weights; bytes of the file."""
    kept = in_int8(drafter, drafter.vocabulary)
    for name, weight in drafter.named_parameters():
        if weight.dim() == 2:
            weight.copy_(torch.from_numpy(kept[name] * kept[f"{name}.scale"][:, None]))
    return write_int8(folder / f"{kind}.safetensors", kept, {
        "kind": kind, "network": told["recipe"]["network"], "top": TOP, "tokens": told["tokens"]})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, nargs="+", required=True,
                        help="what a run wrote with --out, and those that continue it")
    parser.add_argument("--pack", type=Path, required=True, help="what `pack` wrote")
    parser.add_argument("--weights", type=Path, default=Path("build/drafters/weights"), help="where int8 files go")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where record, figure and page go")
    parser.add_argument("--texts", type=int, default=12, help="that are measured again on the CPU")
    args = parser.parse_args()
    try:
        collect(args.run, read_pack(args.pack), args.weights, args.docs, args.texts)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
