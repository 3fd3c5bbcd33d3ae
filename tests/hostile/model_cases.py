"""Bundled model files, damaged or exchanged: with the manifest as it was, and with one that fits the damage."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from gemmule.sw.models.bundled import FILES, write_manifest

from .runner import Case

Tensors = dict[str, np.ndarray]
Damage = Callable[[Path], None]
TARGET, DRAFT, TOKENIZER = FILES["target"], FILES["draft"], FILES["tokenizer"]


def parts(path: Path) -> tuple[Tensors, dict[str, Any], bytes]:
    """(tensors, our metadata, the JSON header) of a model file."""
    data = path.read_bytes()
    header = data[8:8 + int.from_bytes(data[:8], "little")]
    return load(data), json.loads(json.loads(header)["__metadata__"]["gemmule"]), header


def bytes_of(change: Callable[[bytes], bytes], name: str = TARGET) -> Damage:
    """Change a file's bytes; the manifest stays."""
    def damage(models: Path) -> None:
        (models / name).write_bytes(change((models / name).read_bytes()))
    return damage


def fitting(damage: Damage) -> Damage:
    """The damage, and a manifest that fits it: what is inside must be found wrong."""
    def both(models: Path) -> None:
        damage(models)
        write_manifest(models)
    return both


def tensors_of(change: Callable[[Tensors], Any], name: str = DRAFT) -> Damage:
    """Change tensors in place."""
    def damage(models: Path) -> None:
        tensors, header, _ = parts(models / name)
        change(tensors)
        (models / name).write_bytes(save(
            {key: np.ascontiguousarray(value) for key, value in tensors.items()}, {"gemmule": json.dumps(header)}))
    return fitting(damage)


def header_of(change: Callable[[dict[str, Any]], Any], name: str = DRAFT) -> Damage:
    """Change our metadata in place; what ``change`` returns as text replaces it."""
    def damage(models: Path) -> None:
        tensors, header, _ = parts(models / name)
        changed = change(header)
        (models / name).write_bytes(save(tensors, {"gemmule": changed if isinstance(changed, str) else json.dumps(
            header)}))
    return fitting(damage)


def raw_header(change: Callable[[bytes], bytes], name: str = DRAFT) -> Damage:
    """Change the JSON of the header, its length as it becomes."""
    def damage(models: Path) -> None:
        data, header = (models / name).read_bytes(), parts(models / name)[2]
        changed = change(header)
        (models / name).write_bytes(len(changed).to_bytes(8, "little") + changed + data[8 + len(header):])
    return fitting(damage)


def json_of(change: Callable[[dict[str, Any]], Any], name: str = TOKENIZER, *, fit: bool = True) -> Damage:
    """Change a JSON file in place."""
    def damage(models: Path) -> None:
        data = json.loads((models / name).read_text())
        change(data)
        (models / name).write_text(json.dumps(data))
    return fitting(damage) if fit else damage


def graph(**fields: object) -> Damage:
    return header_of(lambda header: header["graph"].update(fields))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


def rename(old: str, new: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[new] = tensors.pop(old)
    return change


def put(name: str, value: Callable[[np.ndarray], np.ndarray]) -> Damage:
    return tensors_of(lambda tensors: tensors.update({name: value(tensors[name])}))


def filled(name: str, value: object) -> Damage:
    """Every value of a tensor's last row is ``value``."""
    def change(tensors: Tensors) -> None:
        tensors[name] = tensors[name].copy()
        tensors[name][-1:] = value
    return tensors_of(change)


def _folder(models: Path) -> None:
    (models / TARGET).unlink()
    (models / TARGET).mkdir()


def _swap(models: Path) -> None:
    (models / TARGET).rename(models / "other")
    (models / DRAFT).rename(models / TARGET)
    (models / "other").rename(models / DRAFT)


def _foreign_tokenizer(data: dict[str, Any]) -> None:
    data["model"] = {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]",
                     "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


def _fewer_tokens(data: dict[str, Any]) -> None:
    data["model"]["vocab"] = {token: at for token, at in data["model"]["vocab"].items() if at < 1000}
    data["model"]["merges"] = data["model"]["merges"][:-24]


def _lost_byte(data: dict[str, Any]) -> None:
    vocab = data["model"]["vocab"]
    vocab["ŁŁ"] = vocab.pop("Ł")


MANIFEST: dict[str, tuple[Damage, str]] = {
    f"{TARGET}: flipped byte": (bytes_of(lambda d: flipped(d, 700_000)), "must have SHA-256"),
    f"{TARGET}: flipped in the header": (bytes_of(lambda d: flipped(d, 100)), "must have SHA-256"),
    f"{TARGET}: cut": (bytes_of(lambda d: d[:-1]), "must have 1,399,252 bytes as in manifest.json, not 1,399,251"),
    f"{TARGET}: longer": (bytes_of(lambda d: d + b"\0"), "must have 1,399,252 bytes"),
    f"{TARGET}: empty": (bytes_of(lambda d: b""), "must have 1,399,252 bytes as in manifest.json, not 0"),
    f"{TARGET}: the draft": (lambda at: shutil.copy(at / DRAFT, at / TARGET) and None,
                             "must hold the target, not the draft"),
    f"{TARGET}: exchanged with the draft": (_swap, "must hold the target, not the draft"),
    f"{TARGET}: the tokenizer": (lambda at: shutil.copy(at / TOKENIZER, at / TARGET) and None,
                                 "must hold the target, not the tokenizer"),
    f"{TARGET}: missing": (lambda at: (at / TARGET).unlink(), "cannot be read: No such file"),
    f"{TARGET}: a folder": (_folder, "must be a regular file, not a folder"),
    "manifest.json: missing": (lambda at: (at / "manifest.json").unlink(), "cannot be read: No such file"),
    "manifest.json: cut": (bytes_of(lambda d: d[:100], "manifest.json"), "is not JSON"),
    "manifest.json: large": (bytes_of(lambda d: d + b" " * 70000, "manifest.json"), "must hold at most 65,536 bytes"),
    "manifest.json: a list": (bytes_of(lambda d: b"[]", "manifest.json"), "must hold a JSON object, not []"),
    "manifest.json: brackets": (bytes_of(lambda d: b"[" * 60000, "manifest.json"), "its nesting too deep"),
    "manifest.json: digits": (bytes_of(lambda d: b'{"a": ' + b"9" * 5000 + b"}", "manifest.json"),
                              "a number is too long"),
    "manifest.json: no draft": (json_of(lambda d: d["files"].pop("draft"), "manifest.json", fit=False),
                                "files.draft is missing"),
    "manifest.json: another file": (
        json_of(lambda d: d["files"]["target"].update(file="../../x"), "manifest.json", fit=False),
        "files.target.file must be target.safetensors, not '../../x'"),
    "manifest.json: no hash": (
        json_of(lambda d: d["files"]["target"].update(sha256="0"), "manifest.json", fit=False), "files.target.sha256"),
}
"""By file and what was done to it, while the manifest says otherwise."""

INSIDE: dict[str, tuple[Damage, str]] = {
    "flipped in the header's length": (fitting(bytes_of(lambda d: flipped(d, 2), DRAFT)), "is not a safetensors file"),
    "empty": (fitting(bytes_of(lambda d: b"\0" * 8, DRAFT)), "is not a safetensors file"),
    "header of 2**63 bytes": (fitting(bytes_of(lambda d: (1 << 63).to_bytes(8, "little") + d[8:], DRAFT)),
                              "its header would have 9,223,372,036,854,775,808 bytes"),
    "header of 1 GiB": (fitting(bytes_of(lambda d: (1 << 30).to_bytes(8, "little") + d[8:], DRAFT)),
                        "its header would have 1,073,741,824 bytes"),
    "cut data": (fitting(bytes_of(lambda d: d[:-100], DRAFT)), "is not a safetensors file"),
    "offsets beyond the file": (raw_header(lambda h: re.sub(rb"\[0,\d+\]", b"[0,99]", h, count=1)),
                                "is not a safetensors file"),
    "deep header": (raw_header(lambda h: b'{"a":' + b"[" * 50000), "is not a safetensors file"),
    "tensor twice": (raw_header(lambda h: h.replace(b"layers.0.key.weight", b"layers.0.query.weight")),
                     "draft.safetensors"),
    "renamed tensor": (tensors_of(rename("layers.0.key.weight", "layers.0.Key.weight")),
                       "lacks the tensor 'layers.0.key.weight' and must not hold the tensor 'layers.0.Key.weight'"),
    "missing tensor": (tensors_of(lambda t: t.pop("norm.gamma")), "lacks the tensor 'norm.gamma'"),
    "surplus tensor": (tensors_of(lambda t: t.update(evil=np.zeros(3))), "must not hold the tensor 'evil'"),
    "long name": (tensors_of(lambda t: t.update({"x" * 5000: np.zeros(3)})), "must not hold the tensor 'xxx"),
    "name of controls": (tensors_of(lambda t: t.update({"a\n\x1b[31m": np.zeros(3)})), "tensor 'a\\n\\x1b[31m'"),
    "swapped shape": (put("layers.0.up.weight", lambda v: v.T), "layers.0.up.weight must have shape (256, 64)"),
    "flat shape": (put("layers.0.key.weight", np.ravel), "layers.0.key.weight must have shape (64, 64), not (4096,)"),
    "wrong dtype": (put("logits.weight", lambda v: v.view(np.uint8)), "logits.weight must have dtype I8, not U8"),
    "float": (put("norm.gamma", lambda v: v.astype(np.float32)), "norm.gamma must have dtype I16, not F32"),
    "shift": (filled("logits.shift", 48), "logits.shift must hold values from 0 to 47, not 48"),
    "embedding's shift": (filled("embedding.shift", 255), "embedding.shift must hold values from 0 to 47"),
    "score's multiplier": (filled("layers.0.context.score", [65536, 3]), "must have the SHA-256 that it tells"),
    "a weight": (filled("layers.0.down.weight", 3), "must have the SHA-256 that it tells"),
    "angles exchanged": (tensors_of(lambda t: t.update({"sin": t["cos"], "cos": t["sin"]})),
                         "must have the SHA-256 that it tells"),
    "no layer": (graph(nodes=[]), "graph"),
    "vocabulary": (graph(vocab=65537), "must have vocab = 65537 rows, not 1024"),
    "positions": (graph(positions=1 << 40), "graph"), "large number": (graph(positions=10**300), "graph"),
    "text for a size": (graph(vocab="many"), "graph.vocab"), "unknown size": (graph(kv_heads=1), "graph.kv_heads"),
    "another output": (graph(output="nothing"), "output 'nothing' must be a node"),
    "no graph": (header_of(lambda h: h.pop("graph")), "graph"),
    "other context": (graph(positions=128), "draft.safetensors"),
    "bits": (header_of(lambda h: h["made"].update(bits=5)), "made.bits"),
    "ends": (header_of(lambda h: h.update(ends=[-1])), "ends"),
    "digits": (header_of(lambda h: '{"graph": ' + "9" * 5000 + "}"), "a number is too long"),
    "format": (header_of(lambda h: h.update(format="gemmule-decoder-1")), "format must be 'gemmule-network-1'"),
    "no metadata": (header_of(lambda h: "{}"), "format is missing"),
    "metadata of another kind": (header_of(lambda h: "[1]"), "draft.safetensors"),
    "metadata that is none": (header_of(lambda h: "{'graph'"), "is not JSON"),
    "deep metadata": (header_of(lambda h: "[" * 50000), "its nesting too deep"),
    "key twice": (header_of(lambda h: json.dumps(h)[:-1] + ', "format": "x"}'), "names 'format' twice"),
}
"""What is inside the draft, while the manifest fits."""

TOKENS: dict[str, tuple[Damage, str]] = {
    "flipped byte": (bytes_of(lambda d: flipped(d, 20_000), TOKENIZER), "must have SHA-256"),
    "cut": (bytes_of(lambda d: d[:30_000], TOKENIZER), "must have 54,055 bytes as in manifest.json, not 30,000"),
    "missing": (lambda at: (at / TOKENIZER).unlink(), "cannot be read: No such file"),
    "cut, fitting": (fitting(bytes_of(lambda d: d[:30_000], TOKENIZER)), "is not JSON"),
    "binary": (fitting(bytes_of(lambda d: b"\xff" * 99, TOKENIZER)), "is not UTF-8 text at byte 0"),
    "brackets": (fitting(bytes_of(lambda d: b"[" * 99999, TOKENIZER)), "its nesting too deep"),
    "another kind": (json_of(_foreign_tokenizer), "model must be of type BPE, not 'WordPiece'"),
    "no model": (json_of(lambda d: d.pop("model")), "model must be of type BPE, not None"),
    "another pre-tokenizer": (json_of(lambda d: d.update(pre_tokenizer={"type": "Whitespace"})),
                              "pre_tokenizer must be of type ByteLevel, not 'Whitespace'"),
    "no decoder": (json_of(lambda d: d.update(decoder=None)), "decoder must be of type ByteLevel, not None"),
    "normalizer": (json_of(lambda d: d.update(normalizer={"type": "Lowercase"})), "normalizer must be null"),
    "truncation": (json_of(lambda d: d.update(truncation={"max_length": 3})), "truncation must be null"),
    "dropout": (json_of(lambda d: d["model"].update(dropout=0.5)), "model.dropout must be null, not 0.5"),
    "fewer tokens": (json_of(_fewer_tokens), "must have the 1,000 tokens of tokenizer.json"),
    "an id twice": (json_of(lambda d: d["model"]["vocab"].update({"Ł": 5})), "must number its tokens from 0 to 1,023"),
    "an id of text": (json_of(lambda d: d["model"]["vocab"].update({"Ł": "5"})), "must number its tokens"),
    "a byte lost": (json_of(_lost_byte), "model.vocab must hold every byte; it lacks 1, the first as 'Ł'"),
    "merge of nothing": (json_of(lambda d: d["model"]["merges"].append(["ŁŁŁ", "Ł"])), "is not a tokenizer"),
    "merges of another kind": (json_of(lambda d: d["model"].update(merges=5)), "is not a tokenizer"),
    "no specials": (json_of(lambda d: d.update(added_tokens=[])), "added_tokens must be [(0, '<pad>', True), (1, '"),
}
"""The tokenizer."""


def cases() -> Iterator[Case]:
    """All of them."""
    for label, (damage, says) in MANIFEST.items():
        yield Case(label=f"model: {label}", arguments=("gemmule", "disasm", "target"), damage=damage, says=says,
                   names=label.partition(":")[0])
    for label, (damage, says) in INSIDE.items():
        yield Case(label=f"draft: {label}", arguments=("gemmule", "disasm", "draft"), damage=damage, says=says,
                   names=DRAFT)
    for label, (damage, says) in TOKENS.items():
        command = (("disasm", "draft") if label == "fewer tokens" else
                   ("generate", "--model", "small", "--prompt", "x = ", "--method", "ar"))
        yield Case(label=f"tokenizer: {label}", arguments=("gemmule", *command), damage=damage, says=says,
                   names=TOKENIZER)
