"""What --json writes against the schemas in docs/schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gemmule import __version__
from gemmule.config import Config, load_config
from gemmule.sw.pages.command_line import commands
from gemmule.sw.records import RECORDS, complete

from .test_cli import run

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
COSIM = {"program": "a", "seed": 0, "commands": 1, "cycles_model": 1, "cycles_rtl": 1, "byte_differences": 0,
         "cycle_differences": 0, "counter_differences": 0, "waveform": None, "layout": None}
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
         "null": type(None)}


def conforms(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> None:
    """The part of JSON Schema that the schemas use; unknown words fail, so that nothing is taken on trust."""
    known = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref",
             "title", "description", "default", "$defs", "$schema", "$id"}
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        return conforms(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        fits = 0
        for one in schema["anyOf"]:
            try:
                conforms(value, one, root)
                fits += 1
            except AssertionError:
                continue
        assert fits, (value, schema)
        return None
    if "type" in schema:
        assert isinstance(value, TYPES[schema["type"]]), (value, schema)
        assert schema["type"] == "boolean" or not isinstance(value, bool)
    assert value in schema.get("enum", [value])
    assert value == schema.get("const", value)
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value)
        extra = schema.get("additionalProperties", True)
        for name, part in value.items():
            if name in schema.get("properties", {}):
                conforms(part, schema["properties"][name], root)
            else:
                assert extra, name
                if isinstance(extra, dict):
                    conforms(part, extra, root)
    if isinstance(value, list):
        for part in value:
            conforms(part, schema.get("items", {}), root)
    return None


def read(command: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{command}.json").read_text()))


def test_every_command_has_a_schema() -> None:
    names = {name.replace(" ", "-") for name, command in commands().items()
             if any("--json" in parameter.opts for parameter in command.params)}
    # Those of generate with --beams or --best-of, and of synth with standard cells.
    assert names | {"search", "synth-cells"} == set(RECORDS)
    assert {path.stem for path in SCHEMAS.iterdir()} == set(RECORDS)
    for name in RECORDS:
        schema = read(name)
        assert schema["$id"] == schema["properties"]["schema"]["const"]
        assert {"schema", "version", "config", "config_sha256"} <= set(schema["required"])


@pytest.mark.parametrize(("command", "arguments"), [
    ("run-gemm", ["run", "gemm", "--shape", "5x6x7", "--config", "tiny"]),
    ("run-gemm", ["run", "gemm", "--shape", "5x6x7", "--config", "tiny", "--timing-only"]),
    ("run-gemm", ["run", "gemm", "--shape", "5x6x7", "--config", "tiny", "--dataflow", "any", "--search", "cp-sat",
                  "--trials", "8", "--explain"]),
    ("generate", ["generate", "--prompt", "a", "--max-new-tokens", "3"]),
    ("generate", ["generate", "--prompt", "a", "--max-new-tokens", "3", "--method", "ar"]),
    ("generate", ["generate", "--prompt", "a", "--max-new-tokens", "3", "--no-baseline"]),
    ("disasm", ["disasm", "5x6x7", "--config", "tiny"]),
    pytest.param("cosim", ["cosim", "gemm", "--shape", "5x6x7", "--config", "tiny"], marks=pytest.mark.rtl),
    pytest.param("verilog", ["verilog", "--config", "tiny", "--unit", "control"], marks=pytest.mark.rtl),
])
def test_real_outputs(monkeypatch, tmp_path: Path, command: str, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments, "--json", "a.json") == 0
    record, schema = json.loads(Path("a.json").read_text()), read(command)
    conforms(record, schema, schema)
    assert list(record)[:4] == ["schema", "version", "config", "config_sha256"]
    config = "base" if command == "generate" else "tiny"
    assert record["schema"] == f"gemmule/{command}/1"
    assert record["version"] == __version__
    assert record["config"] == config
    assert record["config_sha256"] == load_config(config).sha256
    wrong = record | {"cycles": "many", "commands": "many", "bytes": "many", "cycles_rtl": "many"}
    with pytest.raises(AssertionError):
        conforms(wrong, schema, schema)


@pytest.mark.rtl
def test_fuzz_output(monkeypatch, tmp_path: Path) -> None:
    """One program covers too little: exit code 1, and the numbers are there."""
    path = tmp_path / "a.json"
    assert run(monkeypatch, "fuzz", "--config", "tiny", "--programs", "1", "--commands", "40", "--json", str(path)) == 1
    record, schema = json.loads(path.read_text()), read("fuzz")
    conforms(record, schema, schema)
    assert record["missing"]


@pytest.mark.parametrize("change", [{"byte_differences": "0"}, {"seed": None}, {"colour": "red"}])
def test_a_wrong_record_is_not_written(change: dict[str, Any]) -> None:
    complete("cosim", Config(), COSIM)
    with pytest.raises(ValidationError):
        complete("cosim", Config(), COSIM | change)


def test_hash_of_the_configuration() -> None:
    """Every field counts, the order in which they were written does not."""
    tiny = load_config("tiny")
    assert re.fullmatch("[0-9a-f]{64}", tiny.sha256)
    fields = tiny.model_dump()
    assert load_config(dict(reversed(fields.items()))).sha256 == tiny.sha256
    assert load_config(fields | {"name": "other", "unit_queue": 16}).sha256 != tiny.sha256
