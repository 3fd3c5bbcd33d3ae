"""Write texts, train drafters, measure them: `python -m gemmule.sw.training.drafters.run --pack DIR --out DIR`.

With ``--start`` it continues an earlier run on other texts: tokens seen add up, steps and rates begin anew.

Needs torch, numpy and safetensors only. Texts and checkpoints lie in ``--work``: a killed run continues there; with a
number of steps, to the same bytes as an unbroken one. ``--out`` holds, from early on, weights in float16
(``eagle``, ``parallel``, each ``.safetensors``), ``curve.json`` (acceptance against tokens seen),
``run.json`` (recipe, machine, seconds), and of the texts that judge ``held_out.npz`` and the last ``ranks.npz``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gemmule.sw.training.drafters.judging import ranks_of
from gemmule.sw.training.drafters.packed import Pack, read_pack
from gemmule.sw.training.drafters.ranks import save_ranks, summary
from gemmule.sw.training.drafters.recipe import KINDS, DraftersRecipe, WritingRecipe
from gemmule.sw.training.drafters.start import Start, continued, open_start
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.training import Trainer, fingerprint
from gemmule.sw.training.drafters.writing import Pool, Writer, covered, frequent
from gemmule.sw.training.running import load_state, save_state

__all__ = ["run"]

LAST_SECONDS = 12.0
"""That the last measurement and export may take."""


@dataclass
class Clock:
    """Seconds since the start, and what happened at which."""

    began: float = field(default_factory=time.monotonic)
    marks: dict[str, float] = field(default_factory=dict)

    def elapsed(self) -> float:
        """Seconds."""
        return time.monotonic() - self.began

    def mark(self, word: str) -> None:
        """Note and print that something is done."""
        self.marks[word] = round(self.elapsed(), 1)
        print(f"{self.elapsed():6.1f} s  {word}", flush=True)


def run(recipe: DraftersRecipe, pack: Pack, out: Path, work: Path, stop_after: int | None = None,
        clock: Clock | None = None, start: Start | None = None) -> None:
    """The whole way; ``stop_after`` ends it behind so many steps as a kill would, but with a checkpoint.

    Args:
        start: the earlier run that ``recipe.start`` names.

    Raises:
        ValueError: ``work`` is of another recipe, or the recipe names another start.
    """
    if recipe.start != (start.mark if start else None):
        raise ValueError(f"the recipe must name the weights that the run begins with, not {recipe.start}: make it with "
                         "`continued`")
    clock = clock or Clock()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan anew for each length
    work.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    target = Target(pack, device, recipe.network.depths)
    clock.mark("target loaded")
    held_out, pools = _texts(recipe, pack, target, work, clock, start)
    held_out.save(out / "held_out.npz")
    state = load_state(work / "state.pt", fingerprint(asdict(recipe)))
    if state:
        vocabulary = state["vocabulary"]
    else:
        vocabulary = start.vocabulary if start else frequent(
            pools, recipe.network.vocabulary, pack.shape.vocab, [pack.end])
    trainer = Trainer(recipe, target, vocabulary, pools)
    curve: list[dict[str, Any]] = []
    if state:
        trainer.load(state)
        curve = json.loads((out / "curve.json").read_text(encoding="utf-8")) if (out / "curve.json").exists() else []
        curve = [point for point in curve if point["step"] <= trainer.step]
    counts = {"chat texts": len(pools[0].names), "texts about texts and code": len(pools[1].names),
              "answer tokens": sum(pool.answered for pool in pools),
              "held-out tokens in the vocabulary": round(covered(held_out, vocabulary, pack.shape.vocab), 4)}
    print(f"{counts}", flush=True)

    def note(finished: bool) -> None:
        """Judge, and write everything."""
        chunk = 32 if device.type == "cuda" else 4
        ranks = ranks_of(trainer.drafters, target, held_out, recipe.network.positions, chunk)
        judged = {kind: {group: summary(one.where(names)) for group, names in one.groups().items()}
                  for kind, one in ranks.items()}
        curve.append({"step": trainer.step, "tokens": trainer.tokens, "seconds": round(clock.elapsed(), 1),
                      "share": round(trainer.share, 4), "judged": judged})
        trainer.export(out)
        save_ranks(ranks, out / "ranks.npz")
        save_state(trainer.state(), work / "state.pt")
        _write(out / "curve.json", curve)
        _write(out / "run.json", {"recipe": asdict(recipe), "finished": finished, "step": trainer.step,
                                  "tokens": trainer.tokens, "tokens_before": start.tokens if start else 0,
                                  "texts": counts, "seconds": clock.marks,
                                  "machine": _machine(device)})
        clock.mark(f"step {trainer.step}, {trainer.tokens:,} tokens: " + "; ".join(
            f"{kind} {part['requests']['reached'][0]:.3f} {part['requests']['tokens_a_step'][3]:.2f} / "
            f"{part['held out']['tokens_a_step'][3]:.2f}" for kind, part in judged.items()))

    if start and not state:
        trainer.begin_with(start)
        note(finished=False)
    done, began, noted, first = trainer.share, clock.elapsed(), clock.elapsed(), trainer.step
    room = max(1.0, recipe.seconds - LAST_SECONDS - began) if recipe.seconds else 0.0
    while trainer.share < 1:
        if trainer.step == stop_after:
            return
        losses = trainer.train()
        trainer.share = (min(1.0, done + (1 - done) * (clock.elapsed() - began) / room) if recipe.seconds
                         else trainer.step / recipe.steps)
        if trainer.step - first in (1, 20):
            print(f"{clock.elapsed():6.1f} s  step {trainer.step}: "
                  + ", ".join(f"{kind} {float(loss):.3f}" for kind, loss in losses.items()), flush=True)
        due = (clock.elapsed() - noted >= recipe.judge_seconds if recipe.seconds
               else trainer.step % recipe.judge_steps == 0)
        if (due or trainer.step == stop_after) and trainer.share < 1:
            note(finished=False)
            noted = clock.elapsed()
    note(finished=True)


def _texts(recipe: DraftersRecipe, pack: Pack, target: Target, work: Path, clock: Clock,
           start: Start | None) -> tuple[Pool, list[Pool]]:
    """The texts that judge and those that train, written now or in an earlier run."""
    paths = [work / name for name in ("held_out.npz", "chat.npz", "given.npz")]
    plan, mark = fingerprint([asdict(recipe.writing), recipe.seed, recipe.start]), work / "writing.sha256"
    if mark.exists() and mark.read_text(encoding="utf-8") != plan:
        raise ValueError(f"{work}: its texts are of another recipe or seed: remove it, or give another --work")
    mark.write_text(plan, encoding="utf-8")
    if all(path.exists() for path in paths):
        held_out, *pools = (Pool.load(path) for path in paths)
        return held_out, pools
    writer = Writer(target, pack, recipe.writing, recipe.seed, start.held_out if start else None)
    held_out = start.held_out if start else writer.held_out()
    clock.mark(f"{len(held_out.names)} held-out texts {'of the earlier run' if start else 'written'}")
    pools = [Pool(recipe.writing.chat_length), Pool(recipe.writing.given_length)]
    limit = recipe.seconds * recipe.writing_share if recipe.seconds else None
    longest, rounds = 0.0, 0

    def allowed(share: float) -> bool:
        return limit is None or rounds == 0 or clock.elapsed() + share * longest < limit

    while (rounds < recipe.rounds) if limit is None else allowed(0.5):
        began = clock.elapsed()
        for tokens in writer.round(pools[0], pools[1], allowed):
            print(f"{clock.elapsed():6.1f} s  {tokens:,} tokens of answers", flush=True)
        longest, rounds = max(longest, clock.elapsed() - began), rounds + 1
    for pool, path in zip((held_out, *pools), paths, strict=True):
        if not pool.tokens:
            raise ValueError("the target ended none of the prompts that it invented: write more rounds")
        pool.save(path)
    torch.cuda.empty_cache()
    clock.mark("texts written")
    return held_out, pools


def _machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {"torch": torch.__version__, "device": name}


def _write(path: Path, value: Any) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(part, path)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if len(set(kinds)) != len(kinds) or not set(kinds) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(KINDS)}, each once, with commas, not {text!r}")
    return kinds


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, required=True, help="the folder that `pack` wrote")
    parser.add_argument("--out", type=Path, required=True, help="weights, curve and record")
    parser.add_argument("--work", type=Path, default=Path("build/drafters"), help="texts and checkpoints")
    parser.add_argument("--seconds", type=float, help="for all of it; without, a fixed number of steps")
    parser.add_argument("--writing-share", type=float, default=DraftersRecipe().writing_share,
                        help="of the seconds, for writing texts; one round is always written")
    parser.add_argument("--rows", type=int, default=DraftersRecipe().rows, help="tokens of a batch")
    parser.add_argument("--given-rows", type=int, default=WritingRecipe().given_rows,
                        help="answers to requests about texts and code that are written at a time")
    parser.add_argument("--steps", type=int, default=DraftersRecipe().steps, help="without --seconds")
    parser.add_argument("--seed", type=int, default=DraftersRecipe().seed, help="another one writes other texts")
    parser.add_argument("--kinds", type=_kinds, default=KINDS, help="drafters that are trained, with commas")
    parser.add_argument("--start", type=Path, metavar="DIR", help="what an earlier run wrote with --out: continue "
                        "its weights, with its vocabulary, judged by its texts")
    args = parser.parse_args()
    clock = Clock()
    recipe = replace(DraftersRecipe(), seed=args.seed, kinds=args.kinds, seconds=args.seconds, steps=args.steps,
                     writing_share=args.writing_share, rows=args.rows,
                     writing=WritingRecipe(given_rows=args.given_rows))
    try:
        start = open_start(args.start, recipe.kinds, recipe.network) if args.start else None
        run(continued(recipe, start) if start else recipe, read_pack(args.pack), args.out, args.work, clock=clock,
            start=start)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
