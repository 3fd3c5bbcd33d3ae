"""The target and its prompts as files that need no other package to be read: parts of at most some 32 MiB.

``target-0.bin`` … hold the bytes of the tensors as the GGUF file has them, one behind another; ``pack.json`` says which
lie where; ``tokens.npz`` holds prompts as tokens, so that the run needs no tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmule.io.files import write_atomically

__all__ = ["Pack", "Shape", "Tokens", "dequantise", "quantised_bytes", "read_pack", "save_arrays", "write_pack"]

BLOCK = 32
"""Numbers that share a scale in GGUF's Q8_0 and Q4_1."""
Tokens = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A network like Llama with tied embeddings and adjacent pairs in its rotations, as GGUF files have it."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocab: int
    theta: float
    eps: float

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return self.hidden // self.heads


@dataclass(frozen=True)
class Pack:
    """What a run reads.

    Attributes:
        shape: of the target.
        tensors: by the names of the GGUF file, float32.
        before: tokens of a conversation up to where the user's text begins.
        turn: tokens between the user's text and the answer.
        end: the token that ends a text.
        lists: texts as tokens, by purpose (see ``prompts``).
        names: a word for each text of a list, its category.
    """

    shape: Shape
    tensors: Mapping[str, NDArray[np.float32]]
    before: Tokens
    turn: Tokens
    end: int
    lists: Mapping[str, list[Tokens]]
    names: Mapping[str, list[str]]

    def mark(self) -> str:
        """SHA-256 of target and prompts: what was made of others is not taken for theirs."""
        found = hashlib.sha256(repr((self.shape, self.end, self.names)).encode())
        for value in (*(self.tensors[name] for name in sorted(self.tensors)), self.before, self.turn,
                      *(text for name in sorted(self.lists) for text in self.lists[name])):
            found.update(np.ascontiguousarray(value).data)
        return found.hexdigest()


def dequantise(kind: str, data: NDArray[np.uint8], shape: Sequence[int]) -> NDArray[np.float32]:
    """Numbers of a tensor of GGUF's type F32, Q8_0 or Q4_1.

    Raises:
        ValueError: it is of another type.
    """
    if kind == "F32":
        return data.view(np.float32).reshape(shape).copy()
    if kind == "Q8_0":  # a scale in float16, 32 signed bytes
        blocks = data.reshape(-1, 2 + BLOCK)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return (scale * blocks[:, 2:].view(np.int8)).reshape(shape).astype(np.float32)
    if kind == "Q4_1":  # scale and minimum in float16, then 16 bytes: numbers 0 to 15 in the low halves
        blocks = data.reshape(-1, 4 + BLOCK // 2)
        scale, least = blocks[:, :4].copy().view(np.float16).astype(np.float32).T
        codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return (codes * scale[:, None] + least[:, None]).reshape(shape).astype(np.float32)
    raise ValueError(f"a packed tensor must be F32, Q8_0 or Q4_1, not {kind}")


def quantised_bytes(tensors: Mapping[str, NDArray[np.float32]]) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Float tensors in the form that :func:`write_pack` takes."""
    return [(name, "F32", value.shape, np.ascontiguousarray(value, np.float32).tobytes())
            for name, value in tensors.items()]


def write_pack(folder: Path, shape: Shape, tensors: Iterable[tuple[str, str, tuple[int, ...], bytes]],
               before: Sequence[int], turn: Sequence[int], end: int,
               lists: Mapping[str, Sequence[tuple[str, Sequence[int]]]], parts: int = 3) -> list[Path]:
    """Write a pack; the paths of its files, in the order in which they may travel.

    ``lists`` holds (category, tokens) by purpose.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index, blob, at = list[dict[str, Any]](), list[bytes](), 0
    for name, kind, sizes, data in tensors:
        index.append({"name": name, "kind": kind, "shape": list(sizes), "at": at, "bytes": len(data)})
        blob.append(data)
        at += len(data)
    whole, each = b"".join(blob), -(-at // parts)
    paths = [folder / f"target-{number}.bin" for number in range(parts)]
    for number, path in enumerate(paths):
        path.write_bytes(whole[number * each:(number + 1) * each])
    arrays: dict[str, NDArray[Any]] = {}
    for name, texts in lists.items():
        arrays[name] = np.array([token for _, text in texts for token in text], np.int32)
        arrays[f"{name}.ends"] = np.cumsum([len(text) for _, text in texts], dtype=np.int64)
    save_arrays(folder / "tokens.npz", arrays)
    write_atomically(folder / "pack.json", json.dumps({
        "shape": asdict(shape), "parts": parts, "bytes": at, "tensors": index, "before": list(before),
        "turn": list(turn), "end": end, "names": {name: [word for word, _ in texts] for name, texts in lists.items()},
    }))
    return [folder / "pack.json", folder / "tokens.npz", *paths]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name, compressed."""
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_pack(folder: Path) -> Pack:
    """Read a pack.

    Raises:
        ValueError: a part is missing or cut.
    """
    head: dict[str, Any] = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
    found = [folder / f"target-{number}.bin" for number in range(head["parts"])]
    if missing := [path.name for path in found if not path.exists()]:
        raise ValueError(f"{folder}: lacks {', '.join(missing)}: bring all parts of the pack")
    whole = np.frombuffer(b"".join(path.read_bytes() for path in found), np.uint8)
    if len(whole) != head["bytes"]:
        raise ValueError(f"{folder}: its parts must have {head['bytes']:,} bytes in all, not {len(whole):,}: "
                         "they are of another pack or cut")
    tensors = {one["name"]: dequantise(one["kind"], whole[one["at"]:one["at"] + one["bytes"]], one["shape"])
               for one in head["tensors"]}
    lists: dict[str, list[Tokens]] = {}
    with np.load(folder / "tokens.npz") as arrays:
        for name in head["names"]:
            lists[name] = np.split(arrays[name], arrays[f"{name}.ends"][:-1])
    return Pack(Shape(**head["shape"]), tensors, np.array(head["before"], np.int32), np.array(head["turn"], np.int32),
                head["end"], lists, head["names"])
