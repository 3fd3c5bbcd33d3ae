"""GGUF files of llama.cpp as the checkpoints that they were made from: a config and tensors for the same importers.

Quantised tensors are dequantised by the package ``gguf`` when they are asked for; an import asks for each some thirty
times, so they are kept while there is room.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.gguf.file import BLOCKS, GgufFile, open_gguf
from gemmule.compiler.importers.gguf.keys import ROPE_FACTORS, config_of, parse_metadata
from gemmule.compiler.importers.gguf.names import ARCHITECTURES, View, views
from gemmule.compiler.importers.rope import MOST_POSITIONS
from gemmule.compiler.importers.shards import DTYPES, Shards, Stored
from gemmule.io.reading import named, shown

__all__ = ["GgufTensors", "gguf_notes", "open_checkpoint"]

KEPT_BYTES = 768 << 20
"""Of dequantised tensors that stay in memory."""


class GgufTensors(Shards):
    """The tensors of a file by their Hugging Face names, in the layouts of a checkpoint.

    Floats lie there as they are in the file; quantised ones become float32 in :meth:`array`.
    """

    dtypes = tuple(BLOCKS)
    describer = "metadata"

    def __init__(self, file: GgufFile, found: dict[str, View]) -> None:
        super().__init__(file.path, {name: _seen(file.tensors[view.origin], view) for name, view in found.items()})
        self._file, self._views = file, found
        self._kept, self._room = dict[str, np.ndarray](), KEPT_BYTES
        self._table = ARCHITECTURES[file.metadata["general.architecture"]]

    def called(self, name: str) -> str:
        """A tensor's name in the file, or the one that it would have there."""
        if name in self._views:
            return self._views[name].origin
        stem, _, role = name.rpartition(".")
        parts = stem.split(".")
        layer = next((part for part in parts if part.isdecimal()), "")
        there = ".".join("N" if part == layer else part for part in parts)
        key = next((key for key, value in self._table.items() if value == there), None)
        return f"{key.replace('.N.', f'.{layer}.')}.{role}" if key else name

    def array(self, name: str) -> np.ndarray:
        """A tensor's numbers: floats as they lie in the file, quantised ones as float32, kept while there is room."""
        if name not in self._kept:
            value = self._array(name)
            if self._file.tensors[self._views[name].origin].dtype in DTYPES or value.nbytes > self._room:
                return value
            self._room -= value.nbytes
            self._kept[name] = value
        return self._kept[name]

    def _array(self, name: str) -> np.ndarray:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        view, stored = self._views[name], self._file.tensors[self._views[name].origin]
        single = len(stored.shape) == 1 and stored.dtype not in DTYPES  # one row of blocks
        rows = self.bytes_of(name).reshape(1 if single else stored.shape[0], -1)
        if view.rows is not None:
            rows = rows[view.rows]
        if stored.dtype in DTYPES:
            value = rows.view(DTYPES[stored.dtype])
        else:
            with np.errstate(all="ignore"):  # whether numbers are finite is looked at by whoever uses them
                value = dequantize(rows, GGMLQuantizationType[stored.dtype])
        value = value.reshape(view.shape[::-1] if view.transposed else view.shape)
        return value.T if view.transposed else value


def _seen(stored: Stored, view: View) -> Stored:
    return Stored(stored.path, stored.dtype, view.shape, stored.begin, stored.end)


def open_checkpoint(path: Path) -> tuple[dict[str, Any], GgufTensors]:
    """The config and the tensors of a GGUF file.

    Raises:
        CompileError: it is damaged, no model, or of an architecture that is not read; one line that names what.
    """
    file = open_gguf(path)
    try:
        return _checkpoint(file)
    except CompileError as error:
        raise CompileError(f"{named(path)}: {error}") from None


def _checkpoint(file: GgufFile) -> tuple[dict[str, Any], GgufTensors]:
    architecture = file.metadata.get("general.architecture")
    _check_kind(file.metadata)
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise CompileError(f"general.architecture must be one of {', '.join(ARCHITECTURES)}, not "
                           f"{shown(architecture)}")
    keys = parse_metadata(architecture, file.metadata)
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise CompileError("must hold the tensor 'token_embd.weight', a matrix")
    scaled = architecture == "llama" and ROPE_FACTORS in file.tensors
    tensors = {name: stored for name, stored in file.tensors.items() if not scaled or name != ROPE_FACTORS}
    found = GgufTensors(file, views(architecture, tensors, keys.head_count, keys.kv_heads))
    config = config_of(
        architecture, keys, vocab=table.shape[0], tied="output.weight" not in tensors,
        biased="blk.0.attn_q.bias" in tensors, factors=_factors(file) if scaled else None)
    return config, found


def _factors(file: GgufFile) -> np.ndarray:
    """Llama 3's factors as they are stored."""
    stored = file.tensors[ROPE_FACTORS]
    if stored.dtype != "F32":
        raise CompileError(f"{ROPE_FACTORS} must be F32, not {stored.dtype}")
    return np.array(GgufTensors(file, {ROPE_FACTORS: View(ROPE_FACTORS, stored.shape)}).array(ROPE_FACTORS))


def _check_kind(metadata: dict[str, Any]) -> None:
    """Whether a file holds a whole model."""
    kind = metadata.get("general.type", "model")
    if kind == "adapter":
        raise CompileError("holds an adapter (general.type) and no model: merge it into its model first")
    if kind != "model":
        raise CompileError(f"general.type must be 'model', not {shown(kind)}")
    parts = metadata.get("split.count", 0)
    if type(parts) is not int or parts > 1:
        raise CompileError(f"must hold the whole model, not one of {shown(parts)} parts (split.count): join them with "
                           "llama-gguf-split --merge")


def gguf_notes(file: GgufFile) -> list[str]:
    """What a reader of the report should know of a file."""
    kinds = Counter(stored.dtype for stored in file.tensors.values())
    notes = ["GGUF: tensors " + ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())]
    context = file.metadata.get(f"{file.metadata.get('general.architecture')}.context_length", 0)
    if context > MOST_POSITIONS:
        notes.append(f"context_length {context:,}: the first {MOST_POSITIONS:,} positions are kept")
    return notes
