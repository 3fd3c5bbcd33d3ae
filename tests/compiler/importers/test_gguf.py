"""GGUF files: the same network as of the checkpoint that they were made from; what is wrong with one, in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from gemmule.compiler import CompileError
from gemmule.compiler.importers import load_network
from gemmule.compiler.importers.gguf.checkpoint import open_checkpoint
from gemmule.compiler.importers.gguf.file import BLOCKS, open_gguf

from ..families import FAMILIES, make, write
from ..gguf_files import CONVERTERS, write_gguf

NAMES = [name for name in FAMILIES if make(name, layers=1, vocab=8).config["model_type"] in CONVERTERS]


def of(tmp_path: Path, family: str = "llama", *, dtype: str = "F32", metadata: dict[str, Any] | None = None,
       extra: dict[str, np.ndarray] | None = None, **keys: Any) -> Path:
    """A small file."""
    return write_gguf(tmp_path / "model.gguf", make(family, layers=2, vocab=40, **keys), dtype=dtype,
                      metadata=metadata, extra=extra)


def refused(path: Path, *says: str) -> None:
    with pytest.raises(CompileError) as error:
        load_network(path)
    text = str(error.value)
    assert "\n" not in text
    assert str(path.name) in text
    for part in says:
        assert part in text


@pytest.mark.parametrize("family", NAMES)
def test_as_the_folder(family: str, tmp_path: Path) -> None:
    """Graph and every number of a file in float32 are those of the folder."""
    made = make(family, layers=2, vocab=40)
    folder = load_network(write(tmp_path / "folder", made))
    file = load_network(write_gguf(tmp_path / "model.gguf", made))
    assert file.graph == folder.graph
    for name in folder.graph.tensors:
        assert np.array_equal(file.weights[name], folder.weights[name]), name


def test_there_are_families() -> None:
    assert {"llama", "llama-tied", "mistral", "gpt2", "phi"} <= set(NAMES)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_types(dtype: str, tmp_path: Path) -> None:
    """Each tensor is what the package makes of its stored numbers; rows of q and k move whole."""
    made = make("llama", layers=1, vocab=40, head_dim=16, hidden_size=96)
    made.tensors = {name: np.resize(value, _wider(value.shape)) for name, value in made.tensors.items()}
    made.config["intermediate_size"] = 96
    network = load_network(write_gguf(tmp_path / "model.gguf", made, dtype=dtype))
    plain = load_network(write(tmp_path / "folder", made))
    kind = gguf.GGMLQuantizationType[dtype]
    for name in plain.graph.tensors:
        value = plain.weights[name]
        wanted = dequantize(gguf.quantize(value, kind), kind) if value.ndim == 2 else value
        assert np.array_equal(network.weights[name], wanted), name
        if value.ndim == 2:
            assert not np.array_equal(network.weights[name], value) or dtype == "F32", name


def _wider(shape: tuple[int, ...]) -> tuple[int, ...]:
    """72 and 100 columns as 96, which divide into blocks of 32."""
    return tuple(96 if size in (72, 100) else size for size in shape)


@pytest.mark.parametrize("dtype", ["Q4_K", "Q5_K", "Q6_K"])
def test_blocks_of_256(dtype: str, tmp_path: Path) -> None:
    """Random blocks, which nothing here can quantise to."""
    numbers, size = BLOCKS[dtype]
    rows = np.random.default_rng(3).integers(0, 256, (40, size), np.uint8)
    rows[:, :4] = np.frombuffer(np.array([0.01, 0.02], "<f2").tobytes(), np.uint8)  # scales that are finite
    rows[:, -2:] = np.frombuffer(np.array([0.01], "<f2").tobytes(), np.uint8)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (("block_count", 1), ("context_length", 8), ("embedding_length", numbers),
                       ("feed_forward_length", 4), ("attention.head_count", 2)):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    kind = gguf.GGMLQuantizationType[dtype]
    writer.add_tensor("token_embd.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_checkpoint(path)[1].array("model.embed_tokens.weight")
    assert found.shape == (40, numbers)
    assert np.isfinite(found).all()
    assert np.array_equal(found, dequantize(rows, kind))


def test_head_as_the_package_reads_it(tmp_path: Path) -> None:
    """Metadata and places of tensors, against the package's own reader."""
    path = of(tmp_path, metadata={"tokenizer.ggml.tokens": ["a", "ü", ""], "tokenizer.ggml.scores": [0.5, -1.0],
                                  "some.flags": [True, False], "some.numbers": [1, -2]})
    file, reader = open_gguf(path), gguf.GGUFReader(path)
    assert file.metadata == {key: field.contents() for key, field in reader.fields.items()
                             if not key.startswith("GGUF.")}
    assert {name: (tensor.shape, tensor.begin, tensor.end) for name, tensor in file.tensors.items()} == {
        tensor.name: (tuple(map(int, tensor.shape[::-1])), tensor.data_offset, tensor.data_offset + tensor.n_bytes)
        for tensor in reader.tensors}


def test_alignment(tmp_path: Path) -> None:
    """The package writes at multiples of 32 whatever stands there."""
    assert load_network(of(tmp_path, metadata={"general.alignment": 8})).graph.vocab == 40
    refused(of(tmp_path, metadata={"general.alignment": 4096}), "must begin at a multiple of 4096 bytes")


def test_llama_3_scaling(tmp_path: Path) -> None:
    """The factors alone are stored; the keys that give them are found again."""
    keys, theta, dim = {"rope_theta": 500000.0}, 500000.0, 24
    frequencies = theta ** (-np.arange(0, dim, 2) / dim)
    waves = 8192 * frequencies / (2 * np.pi)
    wanted = np.where(waves < 1, 32.0, np.where(waves > 4, 1.0, 1 / ((1 - (waves - 1) / 3) / 32 + (waves - 1) / 3)))
    path = of(tmp_path, extra={"rope_freqs.weight": wanted.astype(np.float32)}, **keys)
    config, tensors = open_checkpoint(path)
    assert config["rope_scaling"] == {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    assert "rope_freqs.weight" not in tensors.tensors
    path = of(tmp_path, extra={"rope_freqs.weight": np.ones(12, np.float32)}, **keys)
    assert load_network(path).graph == load_network(of(tmp_path, **keys)).graph
    refused(of(tmp_path, extra={"rope_freqs.weight": wanted.astype(np.float32) + 1}, **keys),
            "rope_freqs.weight must be the factors of Llama 3's scaling")
    refused(of(tmp_path, extra={"rope_freqs.weight": np.full(12, np.nan, np.float32)}, **keys), "must hold 12 numbers")
    refused(of(tmp_path, extra={"rope_freqs.weight": np.ones(5, np.float32)}, **keys), "must hold 12 numbers")


def test_linear_scaling(tmp_path: Path) -> None:
    """Where no type stands there the factor counts, as in llama.cpp."""
    wanted = {"rope_type": "linear", "factor": 2.0}
    path = of(tmp_path, metadata={"llama.rope.scaling.factor": 2.0})
    assert open_checkpoint(path)[0]["rope_scaling"] == wanted
    path = of(tmp_path, metadata={"llama.rope.scaling.factor": 2.0, "llama.rope.scaling.type": "linear",
                                  "llama.rope.scaling.original_context_length": 32})
    assert open_checkpoint(path)[0]["rope_scaling"] == wanted
    for changes in ({"llama.rope.scaling.factor": 1.0}, {
            "llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 2.0}):
        assert "rope_scaling" not in open_checkpoint(of(tmp_path, metadata=changes))[0]


def test_long_contexts_are_cut(tmp_path: Path) -> None:
    path = of(tmp_path, metadata={"llama.context_length": 131072})
    assert load_network(path).graph.positions == 1 << 16


def test_an_untied_copy_of_the_table(tmp_path: Path) -> None:
    """Files of GPT-2 hold the head beside the table, often in another type: it is read as it stands."""
    made = make("gpt2", layers=1, vocab=40)
    head = made.tensors["transformer.wte.weight"] + 1
    network = load_network(write_gguf(tmp_path / "model.gguf", made, extra={"output.weight": head}))
    assert np.array_equal(network.weights["logits.weight"], head)


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"general.architecture": "mamba"}, "general.architecture"),
    "no layers": ({"llama.block_count": None}, "llama.block_count is missing"),
    "text": ({"llama.block_count": "5"}, "llama.block_count must be an integer, not '5'"),
    "zero": ({"llama.embedding_length": 0}, "llama.embedding_length must be at least 1, not 0"),
    "by layer": ({"llama.attention.head_count_kv": [3, 3]}, "llama.attention.head_count_kv must be an integer"),
    "no epsilon": ({"llama.attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is missing"),
    "epsilon": ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "must be greater than 0.0, not -1.0"),
    "experts": ({"llama.expert_count": 8}, "llama.expert_count must be 0, not 8"),
    "unknown key": ({"llama.logit_scale": 2.0}, "llama.logit_scale = 2.0 is not known here and may change"),
    "scaling": ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type must be 'none' or 'linear', not 'yarn'"),
    "vocabulary": ({"llama.vocab_size": 41}, "llama.vocab_size must be the rows of token_embd.weight, 40, not 41"),
    "rotated": ({"llama.rope.dimension_count": 12}, "must be the columns of a head, 24, not 12"),
    "values": ({"llama.attention.value_length": 12}, "attention.value_length must be attention.key_length = 24"),
    "heads": ({"llama.attention.head_count": 5}, "num_attention_heads must be a multiple of num_key_value_heads"),
    "layers": ({"llama.block_count": 3}, "lacks the tensor 'blk.2.attn_norm.weight' and 8 more (a model of its meta"),
    "fewer layers": ({"llama.block_count": 1}, "must not hold the tensor 'blk.1.attn_norm.weight' and 8 more"),
    "width": ({"llama.embedding_length": 70}, "token_embd.weight must have shape (40, 70), not (40, 72)"),
    "adapter": ({"general.type": "adapter"}, "merge it into its model first"),
    "part": ({"split.count": 2}, "one of 2 parts (split.count): join them"),
    "projector": ({"general.type": "mmproj"}, "general.type must be 'model', not 'mmproj'"),
    "alignment": ({"general.alignment": 24}, "general.alignment must be a power of two up to 65,536, not 24"),
}


@pytest.mark.parametrize("label", METADATA)
def test_metadata(label: str, tmp_path: Path) -> None:
    changes, says = METADATA[label]
    made = make("llama", layers=2, vocab=40)
    if "general.architecture" in changes or "general.alignment" in changes:
        path = write_gguf(tmp_path / "model.gguf", made)
        data = path.read_bytes()
        if "general.alignment" in changes:
            path = _with_pair(path, "general.alignment", changes["general.alignment"])
        else:
            path.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
    else:
        path = write_gguf(tmp_path / "model.gguf", made, metadata=changes)
    refused(path, says)


def _with_pair(path: Path, key: str, number: int) -> Path:
    """One more pair of metadata, as a plain number of 32 bits, before all others."""
    data = path.read_bytes()
    pairs = int.from_bytes(data[16:24], "little") + 1
    pair = len(key).to_bytes(8, "little") + key.encode() + (4).to_bytes(4, "little") + number.to_bytes(4, "little")
    path.write_bytes(data[:16] + pairs.to_bytes(8, "little") + pair + data[24:])
    return path


def test_types_that_are_not_read(tmp_path: Path) -> None:
    path = of(tmp_path, extra={"blk.0.attn_sinks": np.zeros(4, np.int32)})
    refused(path, "blk.0.attn_sinks has the type I32; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K")


def test_surplus_tensors(tmp_path: Path) -> None:
    refused(of(tmp_path, extra={"blk.0.attn_q_norm.weight": np.zeros(24, np.float32)}),
            "must not hold the tensor 'blk.0.attn_q_norm.weight'")
    refused(of(tmp_path, extra={"model.norm.weight": np.zeros(72, np.float32)}),
            "must hold one of 'output_norm.weight' and 'model.norm.weight'")


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    made = make("llama", layers=1, vocab=40)
    made.tensors["model.norm.weight"][3] = np.inf
    network = load_network(write_gguf(tmp_path / "model.gguf", made))
    with pytest.raises(CompileError, match=r"output_norm.weight must hold finite numbers"):
        network.weights["norm.gamma"]


def test_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    refused(path, "cannot be read: No such file")
    path.write_bytes(b"")
    refused(path, "is not a GGUF file: it must begin with GGUF")
    path.write_bytes(b"GGUF")
    refused(path, "ends within its head: it is cut off")
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(16))
    refused(path, "has GGUF version 1; supported: 2, 3")
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(16))
    refused(path, "is big-endian")
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (1 << 60).to_bytes(8, "little") + bytes(8))
    refused(path, "must have at most 65,536 tensors, not 1,152,921,504,606,846,976")
    path.unlink()
    (tmp_path / "folder").mkdir()
    of(tmp_path / "folder")
    with pytest.raises(CompileError, match=r"has no config.json: name its file model.gguf"):
        load_network(tmp_path / "folder")


def test_any_name(tmp_path: Path) -> None:
    """What begins like one is one."""
    path = of(tmp_path).rename(tmp_path / "blob")
    assert load_network(path).graph.vocab == 40
