"""Every rule of the weights' files: one line that names the file and what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.importers import load_network

from ..families import Checkpoint, make, packed, write

Change = Callable[[Checkpoint], Any]


def refused(folder: Path) -> str:
    """The line that a directory is refused with, without the directory's name."""
    with pytest.raises(CompileError) as caught:
        list(load_network(folder).weights.values())
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 600
    assert str(folder) in text, text
    return text.replace(f"{folder}/", "").replace(str(folder), "FOLDER")


def value(name: str, number: float, kind: str = "float32") -> Change:
    """One number of a tensor is another one, the tensor of another type."""
    def change(made: Checkpoint) -> None:
        made.tensors[name] = made.tensors[name].astype(kind)
        made.tensors[name].reshape(-1)[3] = number
    return change


NORM, TABLE, QUERY = "model.norm.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"
TENSORS: dict[str, tuple[Change, str]] = {
    "missing": (lambda made: made.tensors.pop(QUERY), f"model.safetensors lacks the tensor '{QUERY}' (a model of its"),
    "several missing": (lambda made: [made.tensors.pop(name) for name in (QUERY, NORM)],
                        f"model.safetensors lacks the tensor '{QUERY}' and 1 more"),
    "extra": (lambda made: made.tensors.update({"model.layers.1.x": np.zeros(1, np.float32)}),
              "model.safetensors must not hold the tensor 'model.layers.1.x'"),
    "renamed": (lambda made: made.tensors.update({"model.Norm.weight": made.tensors.pop(NORM)}),
                "lacks the tensor 'model.norm.weight' and must not hold the tensor 'model.Norm.weight'"),
    "a bias": (lambda made: made.tensors.update({QUERY[:-6] + "bias": np.zeros(144, np.float32)}),
               "must not hold the tensor 'model.layers.0.self_attn.q_proj.bias'"),
    "transposed": (lambda made: made.tensors.update({TABLE: made.tensors[TABLE].T}),
                   "model.safetensors: model.embed_tokens.weight must have shape (40, 72), not (72, 40)"),
    "flat": (lambda made: made.tensors.update({TABLE: made.tensors[TABLE].reshape(-1)}),
             "must have shape (40, 72), not (2880,)"),
    "integers": (value(NORM, 1, "int32"), "model.norm.weight must have dtype F64 or F32 or F16 or BF16, not I32: conv"),
    "NaN": (value(TABLE, np.nan), f"{TABLE} must hold finite numbers, not NaN or infinity"),
    "infinity": (value("model.layers.0.mlp.up_proj.weight", -np.inf), "up_proj.weight must hold finite numbers"),
}


@pytest.mark.parametrize("label", TENSORS)
def test_tensors(label: str, tmp_path: Path) -> None:
    made = make("llama", layers=1, vocab=40)
    change, says = TENSORS[label]
    change(made)
    assert says in refused(write(tmp_path, made))


@pytest.mark.parametrize(("dtype", "number", "says"), [
    ("float16", np.inf, "must hold finite numbers"), ("bfloat16", np.nan, "must hold finite numbers"),
    ("float64", 1e200, f"{TABLE} must hold numbers of float32, not 1e+200"),
    ("float64", np.inf, "must hold finite numbers"),
])
def test_numbers_of_other_types(dtype: str, number: float, says: str, tmp_path: Path) -> None:
    made = make("llama", layers=1, vocab=40)
    made.tensors[TABLE] = made.tensors[TABLE].astype(np.float64 if dtype == "float64" else np.float32)
    made.tensors[TABLE][1, 2] = number
    assert says in refused(write(tmp_path, made, dtype=dtype))


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (lambda at: (at / "model.safetensors").unlink(),
                   "FOLDER has no model.safetensors and no model.safetensors.index.json: give a directory"),
    "pickles": (lambda at: (at / "model.safetensors").rename(at / "pytorch_model.bin"),
                "has no model.safetensors and no model.safetensors.index.json: convert pytorch_model.bin to it"),
    "no config": (lambda at: (at / "config.json").unlink(), "FOLDER has no config.json: give a directory"),
    "config a folder": (lambda at: [(at / "config.json").unlink(), (at / "config.json").mkdir()],
                        "config.json: must be a regular file, not a folder"),
    "empty": (lambda at: os.truncate(at / "model.safetensors", 0), "model.safetensors is not a safetensors file"),
    "seven bytes": (lambda at: os.truncate(at / "model.safetensors", 7), "model.safetensors is not a safetensors file"),
    "half a header": (lambda at: os.truncate(at / "model.safetensors", 600), "model.safetensors is not a safetensors"),
    "cut": (lambda at: os.truncate(at / "model.safetensors", 50_000), "model.safetensors is not a safetensors file"),
    "header of 2**63 bytes": (lambda at: (at / "model.safetensors").write_bytes(b"\0" * 7 + b"\x80"),
                              "its header would have 9,223,372,036,854,775,808 bytes"),
    "a folder": (lambda at: [(at / "model.safetensors").unlink(), (at / "model.safetensors").mkdir()],
                 "model.safetensors must be a regular file, not a folder"),
    "a pipe": (lambda at: [(at / "model.safetensors").unlink(), os.mkfifo(at / "model.safetensors")],
               "model.safetensors must be a regular file, not a pipe"),
    "longer than its header says": (
        lambda at: (at / "model.safetensors").write_bytes((at / "model.safetensors").read_bytes() + b"\0"),
        "model.safetensors is not a safetensors file"),
    "both": (lambda at: (at / "model.safetensors.index.json").write_text("{}"),
             "FOLDER has both model.safetensors and model.safetensors.index.json: remove the one"),
}


@pytest.mark.parametrize("label", FILES)
def test_files(label: str, tmp_path: Path) -> None:
    change, says = FILES[label]
    change(write(tmp_path, make("llama", layers=1, vocab=40)))
    assert says in refused(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").startswith("FOLDER has no config.json")


def _header(path: Path, change: Callable[[dict[str, Any]], Any] | bytes) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if isinstance(change, bytes):
        text = change
    else:
        header = json.loads(data[8:8 + size])
        change(header)
        text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])


@pytest.mark.parametrize(("change", "says"), [
    (lambda header: header[NORM].update(shape=[73]), "is not a safetensors file"),
    (lambda header: header[NORM].update(data_offsets=[0, 288]), "is not a safetensors file"),
    (lambda header: header[NORM].update(dtype="F31"), "is not a safetensors file"),
    (lambda header: header[NORM].update(shape=[-72]), "is not a safetensors file"),
    (lambda header: header[NORM].update(shape=[1 << 62, 1 << 62]), "is not a safetensors file"),
    (lambda header: header[NORM].update(dtype="BF16", shape=[144]), "must have shape (72,), not (144,)"),
    (lambda header: header[NORM].update(dtype="I32"), "must have dtype"),
    (b"[]", "is not a safetensors file"), (b"{}", "is not a safetensors file"), (b"", "is not a safetensors file"),
    (b"\xff" * 40, "is not a safetensors file"),
])
def test_headers(change: Callable[[dict[str, Any]], Any] | bytes, says: str, tmp_path: Path) -> None:
    _header(write(tmp_path, make("llama", layers=1, vocab=40)) / "model.safetensors", change)
    assert says in refused(tmp_path)


def test_a_name_twice_in_a_header(tmp_path: Path) -> None:
    """The library would take one of the two."""
    write(tmp_path, make("llama", layers=1, vocab=40))
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    twice = (data[8:8 + size].decode().rstrip()[:-1] + f', "{NORM}": ' + json.dumps(header[NORM]) + "}").encode()
    path.write_bytes(len(twice).to_bytes(8, "little") + twice + data[8 + size:])
    assert "model.safetensors" in refused(tmp_path)
    assert "twice" in refused(tmp_path) or "is not a safetensors file" in refused(tmp_path)


# Shards -------------------------------------------------------------------------------------------


def sharded(folder: Path, change: Callable[[dict[str, Any], Path], Any]) -> Path:
    """Three shards whose index was changed."""
    write(folder, make("llama", layers=1, vocab=40), shards=3)
    at = folder / "model.safetensors.index.json"
    index = json.loads(at.read_text())
    change(index, folder)
    at.write_text(json.dumps(index))
    return folder


ONE, TWO = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS: dict[str, tuple[Callable[[dict[str, Any], Path], Any], str]] = {
    "no map": (lambda index, at: index.pop("weight_map"), f"{INDEX}: weight_map must name a file for each tensor, not"),
    "an empty map": (lambda index, at: index.update(weight_map={}), "weight_map must name a file for each tensor, not"),
    "a list": (lambda index, at: index.update(weight_map=[1]), "weight_map must name a file for each tensor, not [1]"),
    "above": (lambda index, at: index["weight_map"].update({NORM: "../x.safetensors"}),
              f"{INDEX}: {NORM} must lie in a .safetensors file of the same folder, not '../x.safetensors'"),
    "absolute": (lambda index, at: index["weight_map"].update({NORM: "/etc/passwd"}), "of the same folder, not '/etc/"),
    "another kind": (lambda index, at: index["weight_map"].update({NORM: "config.json"}), "must lie in a .safetensors"),
    "a number": (lambda index, at: index["weight_map"].update({NORM: 3}), "must lie in a .safetensors file of the sam"),
    "a missing shard": (lambda index, at: (at / TWO).unlink(), f"{TWO} is missing, which {INDEX} names"),
    "in another shard": (lambda index, at: index["weight_map"].update({TABLE: TWO}),
                         f"{ONE}: {TABLE} must lie where {INDEX} says, '{TWO}'"),
    "not in the index": (lambda index, at: index["weight_map"].pop(TABLE),
                         f"{ONE}: {TABLE} must lie where {INDEX} says, which does not name it"),
    "nowhere": (lambda index, at: index["weight_map"].update({"x": TWO}), f"{TWO} lacks the tensor 'x', which {INDEX}"),
    "twice": (lambda index, at: (at / TWO).write_bytes(packed({TABLE: np.zeros((40, 72), np.float32)})),
              f"{TWO}: {TABLE} stands in {ONE} too: keep one"),
    "a cut shard": (lambda index, at: os.truncate(at / TWO, 9000), f"{TWO} is not a safetensors file"),
    "many files": (lambda index, at: index.update(weight_map={f"t{i}": f"{i}.safetensors" for i in range(5000)}),
                   "weight_map must name at most 4,096 files, not 5,000"),
}


@pytest.mark.parametrize("label", SHARDS)
def test_shards(label: str, tmp_path: Path) -> None:
    change, says = SHARDS[label]
    assert says in refused(sharded(tmp_path, change))


def test_messages_name_the_shard(tmp_path: Path) -> None:
    made = make("llama", layers=1, vocab=40)
    made.tensors[TABLE][2, 2] = np.nan
    assert refused(write(tmp_path, made, shards=3)).startswith(f"{ONE}: {TABLE} must hold finite numbers")
    made.tensors[TABLE] = made.tensors[TABLE][:, :71]
    assert refused(write(tmp_path, made, shards=3)).startswith(f"{ONE}: {TABLE} must have shape (40, 72), not (40, 71)")
    made.tensors.pop(NORM)
    assert refused(write(tmp_path, made, shards=3)).startswith(f"{INDEX} lacks the tensor '{NORM}'")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weight_map": {"a": "b", "a": "c"}}', b"\xff"])
def test_an_index_that_is_none(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, make("llama", layers=1, vocab=40), shards=2)
    (tmp_path / INDEX).write_bytes(content)
    assert refused(tmp_path).startswith(INDEX)
