"""Random checkpoints that behave like published ones where these are hard to quantise.

    python -m benchmarks.planted --out planted --family gpt2

Published language models have *massive activations* (Sun et al. 2024, arXiv:2402.17762): from some layer on one or two
channels of the first token's residual row are thousands of times as large as all others, a neuron of the MLP that
writes them is too, and most attention goes to that token, whose value is about nothing (an attention sink). Networks of
random weights have nothing of it, so they say little about what int8 does to real ones. Here it is planted:

1. A direction of the residual stream, the trigger, which one token alone has: position 0 (``gpt2``, ``opt``), else the
   token ``<s>``, which the tokenizer puts before every text. Nothing else writes it.
2. In the layer ``--layer`` one neuron of the MLP reads the trigger, and the down-projection writes it to two channels.
3. From there on each head's keys have that channel in the column that rotates least, and its queries a constant there
   (biases where the family has them, else a direction that all embeddings share); values do not have the channel.

All else is random. Equal options and seeds give equal bytes. Written are ``config.json``, ``model.safetensors``,
``tokenizer.json`` and ``text.txt``, no torch needed; what the float interpreter finds in it is printed by layer.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.load import describe
from gemmule.compiler.ir import (
    Attention,
    Cache,
    Embedding,
    FloatInterpreter,
    Linear,
    Network,
    Node,
    Norm,
    Position,
    Rows,
)

__all__ = ["FAMILIES", "Made", "main", "observed", "planted", "write_checkpoint"]

LAYERS, HEADS, HEAD_DIM, INNER, POSITIONS = 6, 8, 32, 640, 256
HIDDEN = HEADS * HEAD_DIM
SPECIAL = ("<s>", "</s>")
VOCAB = 256 + len(SPECIAL)
"""A token a byte, behind the special ones."""
EMBEDDED, TRIGGER, SHARED = 0.12, 16.0, 4.0
"""Deviation of an embedding, lengths of the trigger and of what all embeddings share."""
INNER_PEAK = 2000.0
"""Of the neuron."""
WRITTEN = (8.0, -3.0)
"""Weights from the neuron to the two channels."""
MARGIN = 0.25
"""Of the neuron's input that its bias takes away, where there is one: what has no trigger stays below 0."""
SINK = 5.0
"""Of a score by which the sink is above others, about."""
NAMES = {"q": "query", "k": "key", "v": "value"}


def _llama(model_type: str, name: str, **keys: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [name], "hidden_size": HIDDEN, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
            "max_position_embeddings": POSITIONS, "rope_theta": 10000.0, "tie_word_embeddings": False} | keys


FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": HIDDEN, "n_inner": INNER,
             "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS, "tie_word_embeddings": False},
    "opt": {"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": HIDDEN, "ffn_dim": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": POSITIONS,
            "word_embed_proj_dim": HIDDEN, "tie_word_embeddings": False},
    "llama": _llama("llama", "LlamaForCausalLM"),
    "qwen2": _llama("qwen2", "Qwen2ForCausalLM"),
    "pythia": {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": HIDDEN,
               "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
               "max_position_embeddings": POSITIONS, "rotary_pct": 0.25, "tie_word_embeddings": False},
}
"""config.json by family, but for the tokens."""


@dataclass(frozen=True)
class Made:
    """A checkpoint, and what was planted where."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    layer: int
    channels: tuple[int, int]
    """Of the residual stream."""
    neuron: int
    """Of that layer's MLP."""


class _Maker:
    """Draws a network's tensors by node and role, plants, and puts them where the checkpoint stores them."""

    def __init__(self, family: str, seed: int, layer: int) -> None:
        learned = family in ("gpt2", "opt")
        self.config = FAMILIES[family] | {
            "vocab_size": VOCAB, "bos_token_id": None if learned else 0, "eos_token_id": 1}
        _, self.plan = describe(self.config, frozenset())
        self.random, self.layer = np.random.default_rng(seed), layer
        self.tensors: dict[str, np.ndarray] = {}
        """By name in the graph."""
        self.channels = tuple(int(c) for c in self.random.permutation(HIDDEN)[:2])
        self.neuron = int(self.random.integers(INNER))
        axes = self.random.standard_normal((HIDDEN, 3))
        axes[list(self.channels)] = 0
        axes[:, 0] = np.where(axes[:, 1] == 0, 0, 1)  # LayerNorm takes the mean away
        basis = np.linalg.qr(axes)[0].T
        self.trigger, self.shared = basis[1], basis[2]

    def run(self) -> Made:
        """The checkpoint."""
        graph = self.plan.graph
        for node in graph.nodes:
            self._draw(node)
        for layer in range(graph.layers):
            if layer == self.layer:
                self._plant_neuron()
            if layer > self.layer:
                self._plant_sink(layer)
        return Made(self.config, self._stored(), self.layer, (self.channels[0], self.channels[1]), self.neuron)

    def _uniform(self, *shape: int) -> np.ndarray:
        """With a deviation of 1."""
        return self.random.uniform(-np.sqrt(3), np.sqrt(3), shape)

    def _without_trigger(self, columns: np.ndarray) -> np.ndarray:
        """What is written to the residual stream, [.., hidden], with nothing along the directions that are planted."""
        for axis in (self.trigger, self.shared):
            columns = columns - np.outer(columns @ axis, axis).reshape(columns.shape)
        return columns

    def _draw(self, node: Node) -> None:
        """Random tensors; what is added to the residual stream has no trigger."""
        match node:
            case Embedding() | Position():
                rows = node.vocab if isinstance(node, Embedding) else node.positions
                table = self._without_trigger(EMBEDDED * self._uniform(rows, HIDDEN))
                if isinstance(node, Embedding):
                    table += SHARED * self.shared
                if isinstance(node, Position) or not any(isinstance(n, Position) for n in self.plan.graph.nodes):
                    table[0] += TRIGGER * self.trigger  # the first position, or the first token
                self.tensors[node.tensors["table"]] = table
            case Norm():
                gamma = 1 + self._uniform(HIDDEN) / 6
                gamma[list(self.channels)] = 0.5
                self.tensors[node.tensors["gamma"]] = gamma
                if node.mean:
                    self.tensors[node.tensors["beta"]] = self._uniform(HIDDEN) / 10
            case Linear():
                weight = self._uniform(node.columns, node.depth) / np.sqrt(node.depth)
                bias = self._uniform(node.columns) / 10
                if node.name.endswith((".out", ".down")):
                    weight, bias = self._without_trigger(weight.T).T, self._without_trigger(bias)
                self.tensors[node.tensors["weight"]] = weight
                if node.bias:
                    self.tensors[node.tensors["bias"]] = bias

    def _node(self, layer: int, name: str) -> Linear:
        node = self.plan.graph.by_name[f"{layer}.{name}"]
        assert isinstance(node, Linear)
        return node

    def _reads(self, node: Linear, direction: np.ndarray) -> tuple[np.ndarray, float]:
        """(weights that give a norm's input along ``direction`` before gamma, what beta adds)."""
        norm = self.plan.graph.by_name[node.x]
        assert isinstance(norm, Norm)
        row = direction / self.tensors[norm.tensors["gamma"]]
        return row, float(row @ self.tensors[norm.tensors["beta"]]) if norm.mean else 0.0

    def _plant_neuron(self) -> None:
        """The token's row is the trigger and what the layers before have added, of which each adds about 1."""
        length = np.sqrt(TRIGGER ** 2 + HIDDEN * (EMBEDDED ** 2 + 2 * self.layer + 1))
        given = TRIGGER / length * np.sqrt(HIDDEN)  # along the trigger, behind the norm
        gated = f"{self.layer}.gate" in self.plan.graph.by_name
        peak = np.sqrt(INNER_PEAK) if gated else INNER_PEAK
        for name in ("gate", "up") if gated else ("up",):
            node = self._node(self.layer, name)
            row, added = self._reads(node, self.trigger)
            margin = MARGIN if node.bias else 0.0
            strength = peak / given / (1 - margin)
            self.tensors[node.tensors["weight"]][self.neuron] = strength * row
            if node.bias:
                self.tensors[node.tensors["bias"]][self.neuron] = -strength * (added + margin * given)
        down = self.tensors[self._node(self.layer, "down").tensors["weight"]]
        down[:, self.neuron] = 0
        down[list(self.channels), self.neuron] = WRITTEN

    def _plant_sink(self, layer: int) -> None:
        """Queries times keys of the token are ``SINK`` in the column of each head that rotates least, the last one."""
        query, key, value = (self._node(layer, name) for name in ("query", "key", "value"))
        channel = np.zeros(HIDDEN)
        channel[self.channels[0]] = 1
        row, added = self._reads(key, channel)
        share = np.sqrt(HIDDEN) * np.cos(np.arctan2(WRITTEN[1], WRITTEN[0]))  # of the row behind the norm
        weight, constant = 0.25, SINK * np.sqrt(HEAD_DIM) / (0.25 * share)
        last = np.arange(HEAD_DIM - 1, key.columns, HEAD_DIM)
        self.tensors[key.tensors["weight"]][last] = weight * row
        self.tensors[value.tensors["weight"]][:, list(self.channels)] = 0
        own = np.arange(HEAD_DIM - 1, query.columns, HEAD_DIM)
        if query.bias:
            self.tensors[key.tensors["bias"]][last] = -weight * added
            self.tensors[query.tensors["weight"]][own] = 0
            self.tensors[query.tensors["bias"]][own] = constant
            return
        length = np.sqrt(SHARED ** 2 + HIDDEN * (EMBEDDED ** 2 + 2 * layer))
        self.tensors[query.tensors["weight"]][own] = constant / (SHARED / length * np.sqrt(HIDDEN)) * self._reads(
            query, self.shared)[0]

    def _stored(self) -> dict[str, np.ndarray]:
        """The tensors as the checkpoint has them: which of its numbers each is of is found by the importer's steps."""
        found: dict[str, np.ndarray] = {}
        for name, source in self.plan.sources.items():
            whole = found.setdefault(source.name, np.zeros(source.stored, dtype=np.float32))
            places = source.take(np.arange(whole.size).reshape(source.stored))
            whole.reshape(-1)[places] = self.tensors[name]
        return found


def planted(family: str, seed: int = 1, layer: int = 2) -> Made:
    """A checkpoint whose massive activations begin in a layer."""
    return _Maker(family, seed, layer).run()


WORDS = (
    "the", "a", "some", "no", "each", "of", "to", "in", "on", "with", "from", "and", "or", "but", "when", "where",
    "boat", "river", "stone", "light", "hand", "field", "door", "winter", "morning", "paper", "iron", "garden",
    "letter", "road", "old", "small", "quiet", "green", "open", "long", "went", "came", "saw", "took", "held",
    "found",
)


def text(seed: int, words: int = 12_000) -> str:
    """Random sentences."""
    random = np.random.default_rng(seed)
    parts = []
    while sum(map(len, parts)) < words:
        sentence = [WORDS[at] for at in random.integers(len(WORDS), size=random.integers(4, 12))]
        parts.append(sentence)
    return "".join(" ".join(part).capitalize() + (".\n" if random.random() < 0.2 else ". ") for part in parts)


def tokenizer(begins: bool) -> Tokenizer:
    """A token a byte; ``begins``: ``<s>`` stands before every text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={name: at for at, name in enumerate([*SPECIAL, *letters])}, merges=[]))
    made.add_special_tokens(list(SPECIAL))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    if begins:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                            special_tokens=[("<s>", 0)])
    return made


def write_checkpoint(folder: Path, made: Made, seed: int = 1) -> Path:
    """Everything that `gemmule import FOLDER --calibrate FOLDER/text.txt` reads. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(made.config, indent=2) + "\n")
    save_file(made.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer(made.config["bos_token_id"] == 0).save(str(folder / "tokenizer.json"))
    (folder / "text.txt").write_text(text(seed))
    return folder


def observed(network: Network, tokens: list[int]) -> Iterator[dict[str, Any]]:
    """By layer: the residual row of the first token and of the others, the MLP's inner values, the share of attention
    that goes to the first token."""
    values: dict[str, np.ndarray] = {}
    graph = network.graph
    FloatInterpreter(network).forward(Rows.chain(tokens), Cache(graph), values.__setitem__)
    for node in graph.attentions:
        end = values[f"{node.layer}.end"]
        inner = values[graph.by_name[f"{node.layer}.down"].inputs[0]]
        yield {"layer": node.layer, "residual, first": float(np.abs(end[0]).max()),
               "others": float(np.abs(end[1:]).max()), "deviation": float(end[1:].std()),
               "inner, first": float(np.abs(inner[0]).max()), "inner, others": float(np.abs(inner[1:]).max()),
               "attention to it, %": 100 * _sunk(node, values)}


def _sunk(node: Attention, values: dict[str, np.ndarray]) -> float:
    """Mean share of the first token in what later tokens attend to."""
    query, key = (values[name].reshape(len(values[name]), -1, node.head_dim) for name in (node.query, node.key))
    key = np.repeat(key, node.heads // node.kv_heads, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) * node.scale
    scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return float((powers / powers.sum(-1, keepdims=True))[:, 8:, 0].mean())


def main(arguments: list[str] | None = None) -> None:
    """Write one family's checkpoint, or all in folders of their own, and show what is in it."""
    from benchmarks.common import show
    parser = argparse.ArgumentParser(description="Random checkpoints with massive activations and attention sinks.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--family", choices=[*FAMILIES, "all"], default="gpt2")
    parser.add_argument("--layer", type=int, choices=range(LAYERS - 1), default=2, help="where they begin (default: 2)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    for family in FAMILIES if args.family == "all" else (args.family,):
        folder = args.out / family if args.family == "all" else args.out
        write_checkpoint(folder, planted(family, args.seed, args.layer), args.seed)
        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode((folder / "text.txt").read_text()[:200]).ids
        show(f"{family}: {folder}", list(observed(load_network(folder), ids)))


if __name__ == "__main__":
    main()
