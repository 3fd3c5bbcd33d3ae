"""8-bit probabilities of SmolLM2 that are 0: cached values that a pass multiplies by nothing.

    python -m benchmarks.zero_probabilities --out docs/results/zero_probabilities.json

A probability has 8 bits, relative to its row's maximum, so positions with less than 1/510 of that count as 0, and the
context is the same without their values. By contexts of 256 to 2,040 tokens (windows of prose and code that
calibration does not see, as of benchmarks.pruning): the share of zeros for a row and a head, of positions
that are 0 for every head that shares a KV head, and of positions that are 0 for all of 8 rows too; mean, and the least
and the largest mean of a layer. Computed from the integer interpreter's queries and keys by the device's functions.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import show, write
from benchmarks.pruning import windows
from benchmarks.smollm2.model import model_path
from gemmule import __version__, numerics
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Attention, Cache, IntegerInterpreter, Network, Rows
from gemmule.numerics.softmax import octave_max

CONTEXTS = (256, 512, 1016, 2040)
ROWS, CHUNK = 8, 128


def probabilities(network: Network, node: Attention, query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """8-bit probabilities of a pass's last rows, those of the constant prefix left out.

    ``query``: int8 [rows, heads * head_dim]; ``keys``: int8 [cached and new, KV heads * head_dim], the new rows last.
    Out: [KV heads, heads that share one, rows, positions].
    """
    rows, size, share = len(query), node.head_dim, node.heads // node.kv_heads
    seen = np.arange(len(keys)) <= len(keys) - rows + np.arange(rows)[:, None]
    seen = seen[:, network.graph.prefix:]
    found = np.zeros((node.heads, *seen.shape), dtype=np.int64)
    score = network.tensor(node, "score")
    for head in range(node.heads):
        mine = keys[network.graph.prefix:, head // share * size:][:, :size].astype(np.int64)
        products = query[:, head * size:][:, :size].astype(np.int64) @ mine.T
        t = numerics.scores(products, *(np.full((rows, 1), int(v)) for v in score[head]))
        maximum = octave_max(t, seen)[0] if node.prefix else numerics.row_max(t, seen)
        found[head] = numerics.row_probabilities(t, maximum, seen, kind=node.kind)[0]
    return found.reshape(node.kv_heads, share, rows, -1)


def measure(network: Network, tokens: list[int], context: int, kind: str) -> list[tuple[str, int, np.ndarray]]:
    """By layer: zeros of a row, of the heads that share a KV head, of all rows  # float [layers, 3]."""
    interpreter, cache, queries = IntegerInterpreter(network), Cache(network.graph), dict[str, np.ndarray]()
    for at in range(0, context, CHUNK):
        interpreter.forward(Rows.chain(tokens[at:min(at + CHUNK, context)], at), cache)
    nodes = network.graph.attentions
    wanted = {node.inputs[0] for node in nodes}
    interpreter.forward(Rows.chain(tokens[context:context + ROWS], context), cache,
                        lambda name, value: queries.update({name: value}) if name in wanted else None)
    layers = []
    for node in nodes:
        none = probabilities(network, node, queries[node.inputs[0]], cache.contents(node.name)[0])[..., :context] == 0
        layers.append((none.mean(), none.all(axis=1).mean(), none.all(axis=(1, 2)).mean()))
    return [(kind, context, np.array(layers))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write JSON here")
    args = parser.parse_args()
    network, rows = load_model(model_path("int8")).network, list[dict[str, Any]]()
    texts = windows(CONTEXTS[-1] + ROWS)
    for context in CONTEXTS:
        every = [found for kind, some in texts.items() for window in some
                 for found in measure(network, window.tolist(), context, kind)]
        layers = np.mean([part for _, _, part in every], axis=0)
        kinds = {kind: np.mean([part[:, 0].mean() for name, _, part in every if name == kind]) for kind in texts}
        one, shared, passed = layers.mean(axis=0)
        rows.append({"context": context, "a_row": float(one), "a_kv_head": float(shared), "eight_rows": float(passed),
                     "least_layer": float(layers[:, 0].min()), "most_layer": float(layers[:, 0].max()),
                     **{kind: float(value) for kind, value in kinds.items()}})
        show(f"zeros among 8-bit probabilities, context {context:,}", rows[-1:])
    if args.out:
        write(args.out, {"version": __version__, "rows": rows})


if __name__ == "__main__":
    main()
