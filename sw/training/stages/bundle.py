"""Quantise the trained small pair into its bundled files, as the default pair's are.

    python -m gemmule.sw.training.stages.bundle --train build/small --out sw/models/small

Calibrates on the calibration split and measures bits per byte of float and int8 on held-out files,
neither of which training saw. Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Network
from gemmule.compiler.quantize.accuracy import predictor
from gemmule.io.files import write_atomically
from gemmule.sw.models.bundled import FILES
from gemmule.sw.text.corpus import Corpus, load_corpus
from gemmule.sw.training.data.tokenizer import draw_windows, token_stream
from gemmule.sw.training.networks.trained import load_networks, write_networks
from gemmule.sw.training.yardstick import CONTEXT, bits_per_byte

__all__ = ["bundle"]


def bundle(tokenizer: Tokenizer, networks: dict[str, Network], out: Path, corpus: Corpus, *,
           windows: int, eval_tokens: int, seed: int) -> dict[str, object]:
    """Quantise on windows of 256 tokens and write the pair to ``out``; return the quality numbers."""
    calibration = draw_windows(token_stream(tokenizer, corpus.calibration), windows, CONTEXT, (seed, 0))
    write_networks(tokenizer, networks, out, calibration, seed)
    print(f"seed {seed}")
    held_out = token_stream(tokenizer, corpus.held_out)[:eval_tokens]
    held_bytes = len(tokenizer.decode([int(t) for t in held_out]).encode())
    numbers: dict[str, object] = {
        "held_out_tokens": len(held_out), "held_out_bytes": held_bytes, "calibration_windows": windows, "seed": seed}
    for name, network in networks.items():
        exact, integer = (bits_per_byte(predictor(one), held_out, held_bytes)
                          for one in (network, load_model(out / FILES[name]).network))
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
        tokenizer, networks = load_networks(args.train)
        numbers = bundle(tokenizer, networks, args.out, load_corpus(), windows=args.windows,
                         eval_tokens=args.eval_tokens, seed=args.seed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    write_atomically(args.out / "quality.json", json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
