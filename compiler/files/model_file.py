"""A quantised network as one safetensors file: tensors, and as metadata the graph, how it was made, the tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from safetensors.numpy import save

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.chat import Chat
from gemmule.compiler.files.tensors import Expected, open_tensors
from gemmule.compiler.ir import DType, Graph, Network, Node, Tensor, signature
from gemmule.io.fields import first_problem
from gemmule.io.files import write_atomically
from gemmule.io.reading import ReadError, parse_json
from gemmule.isa import INDEX_BITS

__all__ = ["Made", "ModelFile", "load_model", "model_bytes", "save_model"]

FORMAT: Literal["gemmule-network-1"] = "gemmule-network-1"
_NAMES = {DType.INT8: "I8", DType.UINT8: "U8", DType.INT16: "I16", DType.UINT16: "U16", DType.INT32: "I32"}
_RANGES = {"shift": (0, 47), "scales": (1, 15)}
"""What the device's arithmetic takes of a role's values (docs/numerics.md)."""


class Made(BaseModel):
    """How a network was quantised."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    """Of gemmule."""
    bits: Literal[4, 8]
    group: int
    method: Literal["nearest", "second-order"]
    smooth: bool
    seed: int
    calibration_sha256: str
    """Of the calibration tokens, int64 little-endian."""
    prefix: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Tokens whose keys and values stand in front of every text; as of the following, see
    :class:`gemmule.compiler.quantize.network.Options`."""
    rotate: bool = False
    residual: Literal["one", "layer"] = "one"
    inner: Literal[8, 16] = 8
    down: Literal[4, 8] | None = None

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is as earlier files, which do not tell it, have it."""
        fields = type(self).model_fields
        return {name: value for name, value in whole(self).items()
                if fields[name].is_required() or getattr(self, name) != fields[name].default}


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["gemmule-network-1"]
    graph: Graph
    made: Made
    tokenizer: str | None
    """tokenizer.json."""
    ends: tuple[Annotated[int, Field(ge=0, lt=1 << max(INDEX_BITS))], ...]
    """Tokens that end a text."""
    labels: tuple[str, ...] = ()
    """Names of a classifier's classes."""
    chat: Chat | None = None
    """How a conversation becomes a prompt."""
    sha256: str
    """Of everything else in the file."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.made.prefix) != self.graph.prefix or max(self.made.prefix, default=0) >= self.graph.vocab:
            raise ValueError(f"prefix must be {self.graph.prefix} tokens below {self.graph.vocab}, not "
                             f"{list(self.made.prefix)}")
        if self.labels and len(self.labels) != (columns := self.graph.by_name[self.graph.output].columns):
            raise ValueError(f"labels must be as many as the output's columns, {columns}, not {len(self.labels)}")
        return self


@dataclass(frozen=True)
class ModelFile:
    """What a file holds."""

    network: Network
    made: Made
    tokenizer: str | None
    ends: tuple[int, ...]
    """Tokens that end a text."""
    labels: tuple[str, ...]
    """Names of a classifier's classes, where they are known."""
    sha256: str
    """Of all that."""
    chat: Chat | None = None
    """How a conversation becomes a prompt, where the checkpoint says so."""


def _digest(tensors: Mapping[str, np.ndarray], graph: Graph, made: Made, tokenizer: str | None,
            ends: tuple[int, ...], labels: tuple[str, ...], chat: Chat | None) -> str:
    described: list[object] = [graph.model_dump(mode="json"), made.model_dump(mode="json"), tokenizer, ends]
    # Files from before there were labels or chat templates keep their digest.
    described += [labels] if labels else []
    described += [chat.model_dump(mode="json")] if chat else []
    found = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape}\n".encode())
        found.update(np.ascontiguousarray(tensors[name]).tobytes())
    return found.hexdigest()


def model_bytes(network: Network, made: Made, tokenizer: str | None, ends: tuple[int, ...] = (),
                labels: tuple[str, ...] = (), chat: Chat | None = None) -> bytes:
    """The file's content; equal arguments give equal bytes.

    Raises:
        CompileError: the network is not in integers.
    """
    if not network.graph.integer:
        raise CompileError("only a network in integers is kept in a file: quantise it first")
    tensors = {name: np.ascontiguousarray(network.weights[name], dtype=np.dtype(tensor.dtype.value))
               for name, tensor in network.graph.tensors.items()}
    header = _Header(format=FORMAT, graph=network.graph, made=made, tokenizer=tokenizer, ends=ends, labels=labels,
                     chat=chat, sha256=_digest(tensors, network.graph, made, tokenizer, ends, labels, chat))
    told = header.model_dump(mode="json", exclude={name for name in ("labels", "chat") if not getattr(header, name)})
    # One metadata key: the library keeps metadata in a hash map, whose order would vary.
    return save(tensors, metadata={"gemmule": json.dumps(told, sort_keys=True)})


def save_model(path: str | Path, network: Network, made: Made, tokenizer: str | None,
               ends: tuple[int, ...] = (), labels: tuple[str, ...] = (), chat: Chat | None = None) -> None:
    """Write :func:`model_bytes` whole or not at all."""
    write_atomically(Path(path), model_bytes(network, made, tokenizer, ends, labels, chat))


def _expected(node: Node, role: str, tensor: Tensor) -> Expected:
    low, high = _RANGES.get(role, (None, None))
    if role == "weight" and tensor.dtype is DType.INT8:
        low, high = -127, 127
    return Expected(shape=tensor.shape, dtypes=(_NAMES[tensor.dtype],), low=low, high=high)


def load_model(path: str | Path) -> ModelFile:
    """Read what :func:`save_model` wrote, checked as a whole.

    Raises:
        CompileError: the file is missing, damaged, or no quantised network; one line that begins with its path.
    """
    with open_tensors(Path(path)) as file:
        try:
            header = _Header.model_validate(parse_json(file.metadata.get("gemmule", "{}")))
        except ReadError as error:
            raise CompileError(f"{file.path}: its metadata {error}: import it again") from None
        except ValidationError as error:
            raise CompileError(f"{file.path}: {first_problem(error, _Header)[1]}: import it again") from None
        if not header.graph.integer:
            raise CompileError(f"{file.path}: its network must be in integers: import it again")
        wanted = {node.tensors[role]: _expected(node, role, tensor) for node in header.graph.nodes
                  for role, tensor in signature(node).tensors.items()}
        tensors = file.read(wanted)
        if _digest(tensors, header.graph, header.made, header.tokenizer, header.ends, header.labels,
                   header.chat) != header.sha256:
            raise CompileError(f"{file.path}: it must have the SHA-256 that it tells, and is damaged: import it again")
    return ModelFile(Network(header.graph, tensors), header.made, header.tokenizer, header.ends, header.labels,
                     header.sha256, header.chat)


