"""The bundled model files and their manifest: what each is for, its size and its SHA-256."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gemmule.compiler.errors import CompileError
from gemmule.io.fields import first_problem
from gemmule.io.files import write_atomically
from gemmule.io.reading import ReadError, named, read_json, read_regular, shown

__all__ = ["ALL", "ENCODER", "FILES", "MANIFEST", "bundled_file", "write_manifest"]

FILES = {"target": "target.safetensors", "draft": "draft.safetensors", "tokenizer": "tokenizer.json"}
"""File names of a pair by role."""
ENCODER = "encoder"
"""The role of the encoder beside a pair, which has its tokens."""
ALL = FILES | {ENCODER: "encoder.safetensors"}
MANIFEST = "manifest.json"
MOST_MANIFEST = 1 << 16
MOST_BYTES = 1 << 26
"""Bytes of a bundled file."""
REMEDY = "install Gemmule again, or make the models again with `make train`"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _File(_Record):
    file: str
    bytes: int = Field(ge=1, le=MOST_BYTES)
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Files(_Record):
    target: _File
    draft: _File
    tokenizer: _File
    encoder: _File | None = None


class _Manifest(_Record):
    format: Literal["gemmule-models-1"]
    files: _Files


def write_manifest(folder: Path) -> None:
    """Record the files of ``folder`` as they are."""
    files = {}
    for role, name in ALL.items():
        if role == ENCODER and not (folder / name).exists():
            continue
        content = (folder / name).read_bytes()
        files[role] = {"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(folder / MANIFEST, json.dumps({"format": "gemmule-models-1", "files": files}, indent=1) + "\n")


def bundled_file(folder: Path, role: str) -> Path:
    """The path of the file with this role, after it was found as the manifest has it.

    Raises:
        CompileError: the manifest or the file is missing, damaged or another's.
    """
    try:
        manifest = _Manifest.model_validate(read_json(folder / MANIFEST, MOST_MANIFEST))
    except ReadError as error:
        raise CompileError(f"{named(folder / MANIFEST, error.line)} {error}: {REMEDY}") from None
    except ValidationError as error:
        raise CompileError(f"{named(folder / MANIFEST)}: {first_problem(error, _Manifest)[1]}: {REMEDY}") from None
    wanted: _File | None = getattr(manifest.files, role)
    path = folder / ALL[role]
    if wanted is None:
        raise CompileError(f"{named(folder / MANIFEST)} must list an {role}: {REMEDY}")
    if wanted.file != ALL[role]:
        raise CompileError(
            f"{named(folder / MANIFEST)}: files.{role}.file must be {ALL[role]}, not {shown(wanted.file)}: {REMEDY}")
    try:
        content = read_regular(path, MOST_BYTES)
    except ReadError as error:
        raise CompileError(f"{named(path)} {error}: {REMEDY}") from None
    found = hashlib.sha256(content).hexdigest()
    if found == wanted.sha256:
        return path
    for other in ALL:
        listed: _File | None = getattr(manifest.files, other)
        if listed and found == listed.sha256:
            raise CompileError(f"{named(path)} must hold the {role}, not the {other}: {REMEDY}")
    what = f"{wanted.bytes:,} bytes" if len(content) != wanted.bytes else f"SHA-256 {wanted.sha256[:12]}.."
    has = f"{len(content):,}" if len(content) != wanted.bytes else f"{found[:12]}.."
    raise CompileError(f"{named(path)} must have {what} as in {MANIFEST}, not {has}: {REMEDY}")
