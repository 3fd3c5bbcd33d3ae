"""Trained networks: read, in integers by the importer's quantiser, written as the default pair and its encoder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from gemmule import __version__
from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import Made, save_model
from gemmule.compiler.importers import label_names, load_network
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.compiler.quantize.restore import restore_network
from gemmule.io.files import write_atomically
from gemmule.io.reading import named
from gemmule.sw.models.bundled import ALL, ENCODER, FILES, bundled_file, write_manifest
from gemmule.sw.text.byte_level import EOS_ID, EOS_TOKEN, load_tokenizer
from gemmule.sw.training.data.prepare import load_arrays
from gemmule.sw.training.data.tokenizer import draw_windows, save_tokenizer
from gemmule.sw.training.yardstick import Tokens

__all__ = ["INT4_GROUP", "NETWORKS", "UNSEEN", "Weights", "calibration_windows", "load_networks", "options",
           "restored_weights", "take_tokenizer", "write_encoder", "write_networks"]

NETWORKS = ("target", "draft")
INT4_GROUP = 32
"""Rows of depth that share an int4 scale."""
CALIBRATION_WINDOWS = 32
UNSEEN = "unseen.npz"
"""Windows and labels that the encoder has not seen, beside its checkpoint."""
Weights = dict[str, NDArray[np.float32]]
"""Of a checkpoint, by name."""
PARTS = {
    "norm1": "input_layernorm", "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
    "out": "self_attn.o_proj", "norm2": "post_attention_layernorm", "up": "mlp.up_proj", "down": "mlp.down_proj"}
"""A layer's nodes, in a checkpoint."""


def load_networks(train: Path) -> tuple[Tokenizer, dict[str, Network]]:
    """The tokenizer and the float networks that training wrote.

    Raises:
        ValueError: one of them is missing or wrong; the message is one line.
    """
    tokenizer = load_tokenizer(train / FILES["tokenizer"])
    networks = {name: load_network(train / name) for name in NETWORKS}
    for name, network in networks.items():
        if network.graph.vocab != tokenizer.get_vocab_size():
            raise CompileError(f"{named(train / name)}: vocab_size must be that of the tokenizer, "
                               f"{tokenizer.get_vocab_size():,}, not {network.graph.vocab:,}: train them together")
    return tokenizer, networks


def take_tokenizer(pair: Path, out: Path) -> Tokenizer:
    """A bundled pair's tokenizer, copied below ``out``.

    Raises:
        ValueError: ``out`` has another one.
    """
    vocabulary, mine = bundled_file(pair, "tokenizer").read_bytes(), out / FILES["tokenizer"]
    if not mine.exists():
        write_atomically(mine, vocabulary)
    if mine.read_bytes() != vocabulary:
        raise ValueError(f"{mine}: is not the bundled target's: remove {out}, or give another --out")
    return load_tokenizer(mine)


def restored_weights(network: Network) -> Weights:
    """The float weights that a trained decoder's integers stand for, as its checkpoint has them."""
    restored, weights = restore_network(network), Weights()
    for node in restored.graph.nodes:
        for role in node.tensors:
            match node.name.split("."):
                case ["embedding"]:
                    name = "model.embed_tokens"
                case ["norm"]:
                    name = "model.norm"
                case [layer, part]:
                    name = f"model.layers.{layer}.{PARTS[part]}"
                case _:
                    continue  # the head is the embedding
            weights[f"{name}.weight"] = np.array(restored.tensor(node, role), dtype=np.float32)
    return weights


def calibration_windows(train: Path, positions: int, seed: int) -> Tokens:
    """Windows of the calibration split  # [windows, positions]."""
    return draw_windows(load_arrays(train).calibration, CALIBRATION_WINDOWS, positions, (seed, 10))


def options(bits: Literal[4, 8], method: Literal["nearest", "second-order"], seed: int) -> Options:
    """How the bundled networks, and those that they are compared with, become integers."""
    return Options(bits=bits, group=INT4_GROUP if bits == 4 else 0, method=method, smooth=True, seed=seed)


def made(how: Options, calibration: Tokens) -> Made:
    """How a network was quantised, for its file."""
    return Made(version=__version__, bits=how.bits, group=how.group, method=how.method, smooth=how.smooth,
                seed=how.seed, calibration_sha256=hashlib.sha256(calibration.astype("<i8").tobytes()).hexdigest())


def write_networks(tokenizer: Tokenizer, networks: dict[str, Network], out: Path, calibration: Tokens,
                   seed: int) -> None:
    """Quantise to int8 on ``calibration`` [windows, tokens]; write both files, the tokenizer and their manifest."""
    how = options(8, "second-order", seed)
    integers = {name: quantize_network(network, calibration, how).network for name, network in networks.items()}
    out.mkdir(parents=True, exist_ok=True)
    for name, network in integers.items():
        save_model(out / FILES[name], network, made(how, calibration), None, (EOS_ID,))
    save_tokenizer(tokenizer, out / FILES["tokenizer"])
    write_manifest(out)


def write_encoder(train: Path, out: Path, seed: int) -> int:
    """Quantise the encoder of ``train`` to int8, write it beside the pair of ``out``, whose manifest then lists it.

    Its tokenizer puts <eos> before a text, which is the row that is pooled. Returns how many of the windows that it has
    not seen it tells right.
    """
    folder = train / ENCODER
    network = load_network(folder)
    drawn = calibration_windows(train, network.graph.positions - 1, seed)
    calibration = np.pad(drawn, ((0, 0), (1, 0)), constant_values=EOS_ID)
    tokenizer = load_tokenizer(train / FILES["tokenizer"])
    tokenizer.post_processor = TemplateProcessing(single=f"{EOS_TOKEN} $A", special_tokens=[(EOS_TOKEN, EOS_ID)])
    how = options(8, "second-order", seed)
    integers = quantize_network(network, calibration, how).network
    save_model(out / ALL[ENCODER], integers, made(how, calibration), tokenizer.to_str(), (), label_names(folder))
    write_manifest(out)
    unseen, interpreter, right = np.load(folder / UNSEEN), IntegerInterpreter(integers), 0
    for start in range(0, len(unseen["labels"]), 8):
        windows, labels = unseen["windows"][start:start + 8], unseen["labels"][start:start + 8]
        rows = Rows.ragged(windows.tolist(), [0] * len(windows))
        scores = interpreter.forward(rows, Cache(integers.graph))[::windows.shape[1]]
        right += int((scores.argmax(1) == labels).sum())
    return right
