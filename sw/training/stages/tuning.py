"""Tune the shipped default target so that it drafts for itself: by an early exit (LayerSkip) and by streams.

    python -m gemmule.sw.training.stages.tuning --out build/tuned --models sw/models

Elhoushi et al. 2024 on a trained model: deeper layers are left out more often, the exit that drafts has a loss in each
pass, other exits take turns (rotational curriculum). Streams of the last layers learn beside them (Bhendawade et al.
2024). What is learned is the shipped target's own answers, whose distributions were kept, on library text and on texts
that it wrote. Its matrices stay; changes of low rank are added, which is what ships. Needs no packages but torch. A
killed run continues from its checkpoint with the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Rope
from gemmule.io.files import write_atomically
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.models.drafting.tuned import FILE, changes_bytes
from gemmule.sw.prompts.functions import copy_of, functions_of, joined, name_pool
from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.text.corpus import load_corpus
from gemmule.sw.training.data.prepare import SEPARATOR, encoded
from gemmule.sw.training.data.tokenizer import token_stream
from gemmule.sw.training.networks.export import TARGET, check_weights, write_json
from gemmule.sw.training.networks.low_rank import PARTS, Weights
from gemmule.sw.training.networks.trained import restored_weights
from gemmule.sw.training.running import open_place
from gemmule.sw.training.stages.tuning_recipe import TuningRecipe
from gemmule.sw.training.stages.tuning_steps import SEED, Sources, run

__all__ = ["ship", "shipped_weights", "sources_of"]

NO_TEXT = "\xc0\xc1" + "".join(map(chr, range(0xF5, 0x100)))
"""Bytes that no UTF-8 text has, as the tokenizer writes them: streams begin by their tokens."""


def sources_of(plan: TuningRecipe, pair: Path) -> Sources:
    """Python's library, without its held-out files, and its functions with a copy each, in the pair's tokens."""
    tokenizer, corpus = load_tokenizer(bundled_file(pair, "tokenizer")), load_corpus()
    library, calibration = (token_stream(tokenizer, part) for part in (corpus.train, corpus.calibration))
    functions = [one for document in corpus.train for one in functions_of(document)]
    random, names = np.random.default_rng((SEED, 1)), name_pool(functions)
    copies, starts = encoded(tokenizer, [joined(functions[i].text, copy_of(functions[i], names, random)) + SEPARATOR
                                         for i in random.permutation(len(functions))])
    fits = (np.diff(starts) <= plan.context) & (starts[:-1] + plan.context < len(copies))
    return Sources(library, calibration, copies.astype(np.int64), starts[:-1][fits])


def shipped_weights(pair: Path) -> tuple[Weights, float]:
    """The default target's in float, and what its positions turn by.

    Raises:
        ValueError: it is of another shape.
    """
    network = load_model(bundled_file(pair, "target")).network
    weights = restored_weights(network)
    check_weights(TARGET, weights)
    return weights, next(node.theta for node in network.graph.nodes if isinstance(node, Rope))


def ship(out: Path, pair: Path, docs: Path, record: dict[str, Any]) -> None:
    """Write the changes beside the target, and ``docs/results/tuning.json``."""
    state = torch.load(out / "tuned.pt", weights_only=True)["model"]
    pairs = {(layer, part): tuple(state[f"{side}_{part}{layer}"].double().numpy() for side in "ab")
             for layer in range(TARGET.num_layers) for part in PARTS}
    target = load_model(bundled_file(pair, "target"))
    tokens, recipe = load_tokenizer(bundled_file(pair, "tokenizer")).get_vocab(), record["recipe"]
    write_atomically(pair / FILE, changes_bytes(
        pairs, state["streams"].double().numpy(), TARGET.num_layers - recipe["stream_layers"],
        tuple(tokens[byte] for byte in NO_TEXT[:recipe["streams"]]), target.sha256))
    write_json(docs / "results" / "tuning.json", record | {"bytes": (pair / FILE).stat().st_size})


def main() -> None:
    """Train or resume the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/tuned"))
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the shipped pair is")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the record goes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    try:
        plan, pair = TuningRecipe().scaled(args.share), args.models / DEFAULT
        record = run(plan, *shipped_weights(pair), partial(sources_of, plan, pair), args.out, open_place(args.threads))
        if record is not None:
            ship(args.out, pair, args.docs, record)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
