"""A bundled target that was tuned to draft for itself: changes of low rank to its matrices, in integers at load.

A file of changes holds of each changed matrix two thin ones, in int8 by row, whose product is added; and the rows with
which streams begin (:mod:`gemmule.sw.decoding.methods.streaming`). A weight becomes the code nearest to the sum, at the
step that its row has: all other numbers of the target, scales of activations among them, stay. Streams' rows stand in
the embedding in the place of bytes that no UTF-8 text has; the head keeps its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Embedding, Graph, Linear, Network
from gemmule.compiler.quantize.scale import to_mult_shift
from gemmule.io.reading import named

__all__ = ["FILE", "PARTS", "Changes", "Streams", "changed", "changes_bytes", "read_changes"]

FILE = "tuned.safetensors"
"""In the folder of the target."""
PARTS = {"qkv": ("query", "key", "value"), "out": ("out",), "up": ("up",), "down": ("down",)}
"""What changes of a layer, and the nodes whose matrices a change is of, one below the other."""
CODES = 127


@dataclass(frozen=True)
class Streams:
    """Rows of the last layers that guess further tokens.

    Attributes:
        tokens: ids by which they begin, in the order of positions.
        first: layers of the target that they do not run.
    """

    tokens: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Changes:
    """What a file of changes holds.

    Attributes:
        pairs: by layer and part (:data:`PARTS`), thin matrices [rank, depth] and [columns, rank], float64.
        streams: rows of the residual stream  # float64 [streams, hidden]
        first: layers that the streams do not run.
        tokens: ids that the streams begin by.
        sha256: of the file.
    """

    pairs: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]]
    streams: np.ndarray
    first: int
    tokens: tuple[int, ...]
    sha256: str

    @property
    def parameters(self) -> int:
        """Numbers in it."""
        return sum(a.size + b.size for a, b in self.pairs.values()) + self.streams.size


def changes_bytes(pairs: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]], streams: np.ndarray, first: int,
                  tokens: tuple[int, ...], target: str) -> bytes:
    """The file; ``tokens``: ids that no text has; ``target``: SHA-256 of the model file that is changed."""
    tensors: dict[str, np.ndarray] = {}
    named_rows = {f"{layer}.{part}.{side}": one for (layer, part), both in pairs.items()
                  for side, one in zip("ab", both)}
    for name, rows in {**named_rows, "streams": streams}.items():
        step = np.maximum(np.abs(rows).max(axis=1), 1e-12) / CODES
        tensors[name] = np.rint(rows / step[:, None]).astype(np.int8)
        tensors[f"{name}.step"] = step.astype(np.float32)
    content: bytes = save(tensors, {"tuned": json.dumps(
        {"target": target, "first": first, "tokens": tokens}, sort_keys=True)})
    return content


def read_changes(path: Path, target: ModelFile) -> Changes:
    """Read what tuning wrote.

    Raises:
        CompileError: the file is missing or damaged, or of another target.
    """
    try:
        with safe_open(path, "numpy") as file:
            told = json.loads((file.metadata() or {})["tuned"])
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        real = {name: value * found[f"{name}.step"].astype(np.float64)[:, None] for name, value in found.items()
                if not name.endswith(".step")}
        streams = real.pop("streams")
        pairs = {(int(layer), part): (real[f"{layer}.{part}.a"], real[f"{layer}.{part}.b"])
                 for layer, part, side in (name.split(".") for name in real) if side == "a"}
        first, of, tokens = int(told["first"]), str(told["target"]), tuple(map(int, told["tokens"]))
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise CompileError(f"{named(path)} must be a readable file of changes: {error}: install Gemmule "
                           "again") from None
    if of != target.sha256:
        raise CompileError(f"{named(path)} must change the target beside it, {target.sha256[:12]}.., not {of[:12]}..: "
                           "install Gemmule again, or tune again")
    return Changes(pairs, streams, first, tokens, hashlib.sha256(path.read_bytes()).hexdigest())


def changed(target: ModelFile, changes: Changes) -> tuple[ModelFile, Streams]:
    """The tuned target, and its streams.

    Raises:
        CompileError: the target has other matrices than the changes are of, or other weights than int8.
    """
    network = target.network
    graph, weights = network.graph, dict(network.weights)
    if any(isinstance(node, Linear) and node.bits != CODES.bit_length() + 1 for node in graph.nodes):
        raise CompileError("only a target with int8 weights is tuned: take it without --weights int4")
    for (layer, part), (narrow, wide) in changes.pairs.items():
        named = [graph.by_name.get(f"{layer}.{name}") for name in PARTS.get(part, ())]
        matrices = [node for node in named if isinstance(node, Linear)]
        delta = wide @ narrow
        if not matrices or delta.shape != (sum(node.columns for node in matrices), matrices[0].depth):
            raise CompileError(f"changes of {part} in layer {layer} must be those of this target's matrices, not "
                               f"{delta.shape[0]} x {delta.shape[1]}: install Gemmule again, or tune again")
        start = 0
        for node in matrices:
            codes = network.tensor(node, "weight") + delta[start:start + node.columns] / _steps(network, node)[:, None]
            weights[node.tensors["weight"]] = np.clip(np.rint(codes), -CODES, CODES).astype(np.int8)
            start += node.columns
    streams = Streams(changes.tokens, changes.first)
    nodes = list(graph.nodes)
    head = next(i for i, node in enumerate(nodes) if node.name == graph.output)
    embedding = next(node for node in nodes if isinstance(node, Embedding))
    own = f"{nodes[head].name}.weight"
    weights[own] = weights[nodes[head].tensors["weight"]]
    nodes[head] = nodes[head].model_copy(update={"tensors": {**nodes[head].tensors, "weight": own}})
    _put_rows(network, embedding, weights, streams.tokens, changes.streams)
    made = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions, nodes=tuple(nodes),
                 output=graph.output)
    return replace(target, network=Network(made, weights),
                   sha256=f"{target.sha256}-tuned-{changes.sha256[:16]}"), streams


def _steps(network: Network, node: Linear) -> np.ndarray:
    """Of a linear's weights, row by row, float64 [columns]: restore.py tells why."""
    given = network.graph.by_name[node.x].type.scale
    out = np.atleast_1d(np.asarray(node.type.scale, dtype=np.float64))
    ratio = network.tensor(node, "mult") * 2.0 ** -network.tensor(node, "shift").astype(np.float64)
    return np.asarray(ratio * np.repeat(out, node.columns // len(out)) / given, np.float64)


def _put_rows(network: Network, node: Embedding, weights: dict[str, np.ndarray], tokens: tuple[int, ...],
              rows: np.ndarray) -> None:
    """Rows of the residual stream as those of some tokens."""
    names, index = node.tensors, list(tokens)
    table = {role: network.tensor(node, role).copy() for role in ("codes", "mult", "shift")}
    step = np.maximum(np.abs(rows).max(axis=1), 1e-12) / CODES
    table["codes"][index] = np.rint(rows / step[:, None]).astype(np.int8)
    mult, shift = to_mult_shift(step / np.asarray(node.type.scale, dtype=np.float64))
    table["mult"][index], table["shift"][index] = mult.astype(np.uint16), shift.astype(np.uint8)
    weights |= {names[role]: value for role, value in table.items()}
