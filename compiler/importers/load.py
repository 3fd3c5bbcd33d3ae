"""A Hugging Face directory or a GGUF file as a network: the family by ``model_type``, tensors checked and mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.config import read_config
from gemmule.compiler.importers.families.bert import BERT
from gemmule.compiler.importers.families.gpt2 import GPT2
from gemmule.compiler.importers.families.gpt_neox import GPT_NEOX
from gemmule.compiler.importers.families.llama import LLAMA
from gemmule.compiler.importers.families.opt import OPT
from gemmule.compiler.importers.families.phi import PHI
from gemmule.compiler.importers.families.qwen import QWEN
from gemmule.compiler.importers.family import Blueprint, Family
from gemmule.compiler.importers.gguf.checkpoint import open_checkpoint
from gemmule.compiler.importers.gguf.file import is_gguf
from gemmule.compiler.importers.shards import Shards, open_shards
from gemmule.compiler.importers.weights import Weights, equal
from gemmule.compiler.ir import Network
from gemmule.io.reading import named, shown

__all__ = ["FAMILIES", "assemble", "describe", "end_tokens", "label_names", "load_network"]

FAMILIES: tuple[Family, ...] = (GPT2, OPT, LLAMA, QWEN, GPT_NEOX, PHI, BERT)
"""Every importer; another family is one more file and its name here."""


def _family(config: dict[str, Any]) -> tuple[Family, str]:
    """The importer of a config, and its model_type."""
    known = {name: family for family in FAMILIES for name in family.model_types}
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in known:
        text = "is missing" if model_type is None else f"is {shown(model_type)}"
        raise CompileError(f"model_type {text}; supported: {', '.join(sorted(known))}")
    family = known[model_type]
    classes = config.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise CompileError(f"architectures must be a list of names, not {shown(classes)}")
    for name in classes:
        if name not in family.architectures:
            raise CompileError(f"architectures names {shown(name)}; supported of model_type {model_type}: "
                               f"{', '.join(family.architectures)}")
    return family, model_type


def describe(config: dict[str, Any], names: frozenset[str]) -> tuple[Family, Blueprint]:
    """The importer of a config and the network that it describes; ``names``: tensors that are stored.

    Raises:
        CompileError: no importer knows it, or not what a key asks for; the message names the key.
    """
    family, model_type = _family(config)
    rest = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    return family, family.describe(model_type, rest, names)


def end_tokens(folder: str | Path, vocab: int) -> tuple[int, ...]:
    """``eos_token_id`` of ``config.json``: the tokens that end a text.

    Raises:
        CompileError: they are no tokens.
    """
    at = Path(folder) / "config.json"
    given = read_config(at).get("eos_token_id")
    found = given if isinstance(given, list) else [] if given is None else [given]
    for token in found:
        if type(token) is not int or not 0 <= token < vocab:
            raise CompileError(f"{named(at)}: eos_token_id must be tokens from 0 to {vocab - 1}, not {shown(given)}")
    return tuple(found)


def label_names(folder: str | Path) -> tuple[str, ...]:
    """``id2label`` of ``config.json`` in the order of its numbers; none where it tells none.

    Raises:
        CompileError: its keys are not the numbers from 0, or its values no names.
    """
    at = Path(folder) / "config.json"
    given = read_config(at).get("id2label") or {}
    names = [given.get(str(number)) for number in range(len(given))] if isinstance(given, dict) else [None]
    if not all(type(name) is str for name in names):
        raise CompileError(f"{named(at)}: id2label must name each label from '0' on, not {shown(given)}")
    return tuple(map(str, names))


def load_network(source: str | Path) -> Network:
    """Read the config and the headers of the weights; the weights themselves are read when they are used.

    ``source``: a Hugging Face folder, or a GGUF file.

    Half-split rotary columns are permuted to adjacent pairs, GPT-2's matrices transposed and its q, k, v split, all
    numbers become float32, when a tensor is asked for. A tied head that stands beside is compared here. The network's
    ``notes`` tell which keys of the config change nothing here, and what was cut.

    Raises:
        CompileError: a file, key or tensor is missing, unknown, or not what it must be; one line that names it.
    """
    path = Path(source)
    if is_gguf(path):
        config, shards = open_checkpoint(path)
        return assemble(config, shards, path)
    at = path / "config.json"
    if (path / "adapter_config.json").exists():
        raise CompileError(f"{named(path)} holds an adapter (adapter_config.json): merge it into its model first")
    if not at.exists():
        raise CompileError(_without_config(path))
    return assemble(read_config(at), open_shards(path), at)


def _without_config(folder: Path) -> str:
    """Why a folder is none of a model, and what may have been meant."""
    other = next(iter(sorted(folder.glob("*.gguf"))), None) if folder.is_dir() else None
    fix = f"name its file {other.name}" if other else "give a directory in the Hugging Face layout, or a .gguf file"
    return f"{named(folder)} has no config.json: {fix}"


def assemble(config: dict[str, Any], shards: Shards, at: Path) -> Network:
    """The network of a config over its tensors; ``at``: where the config stands.

    Raises:
        CompileError: as of :func:`load_network`.
    """
    try:
        family, plan = describe(config, frozenset(shards.tensors))
        if plan.architecture and plan.architecture not in (config.get("architectures") or [plan.architecture]):
            raise CompileError(f"architectures must be [{plan.architecture!r}], of which the tensors are those, not "
                               f"{shown(config['architectures'])}")
    except CompileError as error:
        raise CompileError(f"{named(at)}: {error}") from None
    beside = {copy: original for copy, original in plan.copies.items() if copy in shards.tensors}
    shapes = {part.name: part.stored for source in plan.sources.values() for part in source.parts}
    shards.check(shapes | {copy: shapes[original] for copy, original in beside.items()}, family.harmless)
    for copy, original in beside.items():
        if not equal(shards, copy, original):
            raise CompileError(f"{shards.where(copy)} must equal {original}, or tie_word_embeddings be false")
    return Network(graph=plan.graph, weights=Weights(shards, plan.sources),
                   notes=tuple(f"{named(at)}: {note}" for note in plan.notes))
