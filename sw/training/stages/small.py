"""Train the small pair on the standard library and write its checkpoints.

    python -m gemmule.sw.training.stages.small --out build/small --threads 2 --seed 1

Three phases: the draft on text, the target on the same text, then the draft again by
distillation on the target's distribution.  A killed run continues from `checkpoint.pt`.
"""

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor

from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.text.corpus import Corpus, load_corpus
from gemmule.sw.training.data.tokenizer import draw_windows, save_tokenizer, token_stream, train_tokenizer
from gemmule.sw.training.networks.export import SMALL_DRAFT, SMALL_TARGET, save_checkpoint, write_json
from gemmule.sw.training.networks.model import LanguageModel, generate, predictor
from gemmule.sw.training.running import Place, autocast, open_place
from gemmule.sw.training.yardstick import agreement, bits_per_byte, distinct_share

BATCH, CONTEXT = 16, 256
PEAK_RATE, FINAL_FRACTION = 3e-3, 0.01
DISTILL_RATE = 1.5e-3
SAVE_SECONDS, PRINT_STEPS = 60.0, 50
PHASES = ("draft", "target", "distill")
DEFAULT_STEPS = (2500, 3850, 800)
# Half of the distillation rows are the target's own text: that is what a draft model will see.
POOL_PROMPT, POOL_CHUNK = 32, 128
EVAL_PROMPTS, EVAL_PROMPT = 64, 96

Models = dict[str, LanguageModel]
Streams = dict[str, NDArray[np.int64]]


@dataclass
class Run:
    """Everything that a checkpoint must hold; `step` counts inside `phase`."""

    models: Models
    phase: str = PHASES[0]
    step: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    optimizer: torch.optim.Optimizer | None = None


def windows_of(stream: NDArray[np.int64], count: int, key: tuple[int, ...]) -> Tensor:
    """Inputs and next tokens in one row  # [count, CONTEXT + 1]."""
    return torch.from_numpy(draw_windows(stream, count, CONTEXT + 1, key))


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over 4 % of the steps (at most 200), then a cosine to 1 % of the peak."""
    warm_up = max(1, min(200, steps // 25))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
    return peak * (FINAL_FRACTION + (1 - FINAL_FRACTION) * cosine)


def make_optimizer(model: LanguageModel) -> torch.optim.Optimizer:
    """AdamW; norm weights do not decay, because decay would pull them to 0 rather than 1."""
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    vectors = [weight for weight in model.parameters() if weight.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=True)


def text_loss(forward: Callable[[Tensor], Any], windows: Tensor, place: Place) -> Tensor:
    """Mean next-token cross-entropy in nats."""
    with autocast(place):
        logits = forward(windows[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


def distillation_loss(forward: Callable[[Tensor], Any], teacher: LanguageModel, windows: Tensor,
                      place: Place) -> Tensor:
    """KL(target || draft) in nats, mean over tokens, temperature 1."""
    with autocast(place):
        with torch.no_grad():
            wanted = teacher(windows[:, :-1])
        logits = forward(windows[:, :-1])
    q = functional.log_softmax(logits.float().flatten(0, 1), -1)  # [batch * tokens, vocab]
    p = functional.log_softmax(wanted.float().flatten(0, 1), -1)
    return functional.kl_div(q, p, log_target=True, reduction="batchmean")


def target_text(teacher: LanguageModel, stream: NDArray[np.int64], rows: int, seed: int) -> Tensor:
    """Windows that continue train prompts with the target's own text  # [rows, CONTEXT + 1].

    Half of them greedy, half sampled at temperature 1.
    """
    chunks = []
    for index in range(math.ceil(rows / POOL_CHUNK)):
        prompts = windows_of(stream, POOL_CHUNK, (seed, len(PHASES), index))[:, :POOL_PROMPT]
        temperatures = torch.arange(POOL_CHUNK).remainder(2).float()
        chunks.append(generate(teacher, prompts, CONTEXT + 1, temperatures, seed + index))
    return torch.cat(chunks)[:rows]


def save_run(run: Run, path: Path) -> None:
    """Write the checkpoint atomically: a kill at any moment leaves a whole file."""
    state = {
        "models": {name: model.state_dict() for name, model in run.models.items()},
        "phase": run.phase,
        "step": run.step,
        "seconds": run.seconds,
        "optimizer": None if run.optimizer is None else run.optimizer.state_dict(),
    }
    temporary = path.with_name(path.name + ".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load_run(run: Run, path: Path) -> None:
    """Continue from a checkpoint of the same recipe."""
    state = torch.load(path, weights_only=True)
    for name, model in run.models.items():
        model.load_state_dict(state["models"][name])
    run.phase, run.step, run.seconds = state["phase"], state["step"], state["seconds"]
    if state["optimizer"] is not None:
        run.optimizer = make_optimizer(run.models["target" if run.phase == "target" else "draft"])
        run.optimizer.load_state_dict(state["optimizer"])


def export(run: Run, out: Path) -> None:
    """Write both checkpoints in the exchange format."""
    for name, model in run.models.items():
        weights = {key: weight.detach().float().numpy() for key, weight in model.named_parameters()}
        save_checkpoint(out / name, model.shape, weights)


def train_phase(run: Run, steps: int, stream: NDArray[np.int64], args: argparse.Namespace, place: Place) -> None:
    """Run the current phase to its end, with checkpoints and snapshots on the way."""
    student = run.models["target" if run.phase == "target" else "draft"]
    if args.compile:
        student.compile()
    forward: Callable[[Tensor], Any] = student
    peak = DISTILL_RATE if run.phase == "distill" else PEAK_RATE
    saved = time.monotonic()
    began = saved - run.seconds[run.phase]
    pool: Tensor | None = None
    if run.phase == "distill" and run.step < steps:
        pool = target_text(run.models["target"], stream, args.pool_rows, args.seed)
        print(f"distill: {len(pool)} rows of target text, {time.monotonic() - saved:.0f} s", flush=True)
    run.optimizer = run.optimizer or make_optimizer(student)
    while run.step < steps:
        key = (args.seed, PHASES.index(run.phase), run.step)
        if pool is None:
            loss = text_loss(forward, windows_of(stream, BATCH, key), place)
        else:
            picks = np.random.default_rng((*key, 1)).integers(0, len(pool), BATCH // 2)
            windows = torch.cat((windows_of(stream, BATCH // 2, key), pool[torch.from_numpy(picks)]))
            loss = distillation_loss(forward, run.models["target"], windows, place)
        for group in run.optimizer.param_groups:
            group["lr"] = learning_rate(run.step, steps, peak)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.step += 1
        run.seconds[run.phase] = time.monotonic() - began
        if run.step % PRINT_STEPS == 0 or run.step == steps:
            progress = f"{run.phase} {run.step}/{steps} loss {loss.item():.3f} nats"
            print(f"{progress}, {run.seconds[run.phase]:.0f} s", flush=True)
        if time.monotonic() - saved > SAVE_SECONDS:
            save_run(run, args.out / "checkpoint.pt")
            export(run, args.out)
            saved = time.monotonic()


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/small"), help="output folder")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights, batches and sampling")
    for phase, steps in zip(PHASES, DEFAULT_STEPS, strict=True):
        parser.add_argument(f"--{phase}-steps", type=int, default=steps, help=f"{phase} steps of 4096 tokens")
    parser.add_argument("--pool-rows", type=int, default=768, help="rows of text written by the target")
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    return parser.parse_args()


def prepare(args: argparse.Namespace) -> tuple[Corpus, Streams]:
    """Read the corpus, train or load the tokenizer, encode each split."""
    corpus = load_corpus()
    path = args.out / "tokenizer.json"
    if not path.exists():
        save_tokenizer(train_tokenizer(text for _, text in corpus.train), path)
    tokenizer = load_tokenizer(path)
    streams = {name: token_stream(tokenizer, corpus.split(name)) for name in corpus.sizes()}
    for name, size in corpus.sizes().items():
        print(f"{name}: {size} bytes, {len(streams[name])} tokens")
    return corpus, streams


@torch.no_grad()
def measure(models: Models, streams: Streams, held_out_bytes: int, seed: int) -> dict[str, Any]:
    """The figures of metrics.json that depend on the weights, all in float32."""
    result: dict[str, Any] = {}
    for name, model in models.items():
        result[name] = {
            "held_out_bits_per_byte": bits_per_byte(predictor(model), streams["held_out"], held_out_bytes),
        }
    prompts = draw_windows(streams["held_out"], EVAL_PROMPTS, EVAL_PROMPT, (seed, len(PHASES) + 1))
    text = generate(models["target"], torch.from_numpy(prompts), CONTEXT, torch.zeros(EVAL_PROMPTS), seed).numpy()
    result["greedy_acceptance"] = agreement(predictor(models["draft"]), text, EVAL_PROMPT)
    result["greedy_distinct_4_grams"] = distinct_share(text[:, EVAL_PROMPT:])
    return result


def main() -> None:
    """Run or resume the whole recipe."""
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    place = open_place(args.threads)
    torch.manual_seed(args.seed)
    print(f"seed {args.seed} for weights, batches and sampling; torch {torch.__version__}")
    corpus, streams = prepare(args)
    run = Run({"target": LanguageModel(SMALL_TARGET), "draft": LanguageModel(SMALL_DRAFT)})
    if (args.out / "checkpoint.pt").exists():
        load_run(run, args.out / "checkpoint.pt")
        print(f"resumed at {run.phase} step {run.step}")
    steps = {"draft": args.draft_steps, "target": args.target_steps, "distill": args.distill_steps}
    for phase in PHASES[PHASES.index(run.phase) :]:
        if phase != run.phase:
            run.phase, run.step, run.optimizer = phase, 0, None
        train_phase(run, steps[phase], streams["train"], args, place)
        save_run(run, args.out / "checkpoint.pt")
        export(run, args.out)
    metrics: dict[str, Any] = {
        "seed": args.seed,
        "torch": torch.__version__,
        "splits": {"sha256": corpus.digests(), "bytes": corpus.sizes()},
        "tokens": {phase: count * BATCH * CONTEXT for phase, count in steps.items()},
        "seconds": {phase: round(seconds) for phase, seconds in run.seconds.items()},
    } | measure(run.models, streams, corpus.sizes()["held_out"], args.seed)
    for name in run.models:
        print(f"{name}: {metrics[name]['held_out_bits_per_byte']:.4f} bits per byte on the held-out split")
    print(f"the draft agrees with {metrics['greedy_acceptance']:.3f} of the target's greedy tokens")
    write_json(args.out / "metrics.json", metrics)


if __name__ == "__main__":
    main()
