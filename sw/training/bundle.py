"""Quantise trained checkpoints into a bundled pair.

    python -m gemmule.sw.training.bundle --train build/small --out sw/models/small

Calibrates on the calibration split and measures bits per byte of float and int8 on held-out files,
neither of which training saw. Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.checkpoint import Checkpoint, load_checkpoint
from gemmule.compiler.errors import CompileError
from gemmule.compiler.qmodel import QuantModel
from gemmule.compiler.quality import bits_per_byte, float_predictor, integer_predictor
from gemmule.compiler.quantize import quantize
from gemmule.io.files import write_atomically
from gemmule.io.reading import named
from gemmule.sw.bundled import FILES, write_manifest
from gemmule.sw.training.corpus import Corpus, load_corpus
from gemmule.sw.training.tokenizer import draw_windows, load_tokenizer, save_tokenizer, token_stream

__all__ = ["MODELS", "bundle", "load_trained", "write_encoder", "write_pair"]

MODELS = ("target", "draft")
ENCODER = ("config.json", "model.safetensors", "quality.json")


def load_trained(train: Path) -> tuple[Tokenizer, dict[str, Checkpoint]]:
    """The tokenizer and the checkpoints that training wrote.

    Raises:
        ValueError: one of them is missing or wrong; the message is one line.
    """
    tokenizer = load_tokenizer(train / FILES["tokenizer"])
    checkpoints = {name: load_checkpoint(train / name) for name in MODELS}
    for name, checkpoint in checkpoints.items():
        if checkpoint.shape.vocab != tokenizer.get_vocab_size():
            raise CompileError(f"{named(train / name)}: vocab_size must be that of the tokenizer, "
                               f"{tokenizer.get_vocab_size():,}, not {checkpoint.shape.vocab:,}: train them together")
    return tokenizer, checkpoints


def write_pair(tokenizer: Tokenizer, checkpoints: dict[str, Checkpoint], out: Path, calibration: np.ndarray,
               seed: int) -> dict[str, QuantModel]:
    """Quantise on ``calibration`` [windows, tokens]; write both models, the tokenizer and their manifest to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    models = {name: quantize(checkpoint, calibration, seed=seed) for name, checkpoint in checkpoints.items()}
    for name, model in models.items():
        model.save(out / FILES[name])
    save_tokenizer(tokenizer, out / FILES["tokenizer"])
    write_manifest(out)
    return models


def write_encoder(train: Path, out: Path) -> None:
    """Copy the encoder's checkpoint and record, each through a rename."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ENCODER:
        write_atomically(out / name, (train / name).read_bytes())


def bundle(tokenizer: Tokenizer, checkpoints: dict[str, Checkpoint], out: Path, corpus: Corpus, *,
           windows: int, eval_tokens: int, seed: int) -> dict[str, object]:
    """:func:`write_pair` on windows of 256 tokens; return the quality numbers."""
    calibration = draw_windows(token_stream(tokenizer, corpus.calibration), windows, 256, (seed, 0))
    held_out = token_stream(tokenizer, corpus.held_out)[:eval_tokens]
    held_bytes = len(tokenizer.decode([int(t) for t in held_out]).encode())
    numbers: dict[str, object] = {
        "held_out_tokens": len(held_out), "held_out_bytes": held_bytes, "calibration_windows": windows, "seed": seed}
    for name, model in write_pair(tokenizer, checkpoints, out, calibration, seed).items():
        exact = bits_per_byte(float_predictor(checkpoints[name]), held_out, held_bytes)
        integer = bits_per_byte(integer_predictor(model), held_out, held_bytes)
        numbers[name] = {
            "bits_per_byte_float": exact, "bits_per_byte_int8": integer, "loss": integer / exact - 1,
            "file_bytes": (out / FILES[name]).stat().st_size,
        }
        print(f"{name}: {exact:.4f} bits per byte in float, {integer:.4f} in int8 ({integer / exact - 1:+.2%})")
    return numbers


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, default=Path("build/small"), help="what training wrote")
    parser.add_argument("--out", type=Path, default=Path("sw/models/small"))
    parser.add_argument("--windows", type=int, default=64, help="calibration windows of 256 tokens")
    parser.add_argument("--eval-tokens", type=int, default=1 << 15, help="held-out tokens to measure")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        tokenizer, checkpoints = load_trained(args.train)
        print(f"seed {args.seed}")
        numbers = bundle(tokenizer, checkpoints, args.out, load_corpus(), windows=args.windows,
                         eval_tokens=args.eval_tokens, seed=args.seed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    write_atomically(args.out / "quality.json", json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
