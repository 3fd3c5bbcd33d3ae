"""Commands: their examples, prompts from files, why a text ends, estimates of long work."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.programs.product import compile_product
from gemmule.config import load_config
from gemmule.csr import CAUSE_MEANING, CAUSES
from gemmule.isa import Unit
from gemmule.sw.commands.shared.common import conditions
from gemmule.sw.commands.shared.texts import PROMPT
from gemmule.sw.decoding.session import Session
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.pages.command_line import OUTPUTS, commands, examples
from gemmule.sw.text.byte_level import EOS_ID as EOS
from gemmule.sw.workloads import estimate as estimating
from gemmule.sw.workloads.estimate import Estimate, announce_tokens, estimate

from .test_cli import run

EXAMPLES = [(name, line) for name, command in commands().items() for line in examples(command)]
CHEAP = [line for _, line in EXAMPLES if line.startswith(("gemmule run gemm", "gemmule disasm"))]


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_are_understood(name: str, line: str) -> None:
    """Every option is known and every value has its type; what it stands for is checked too."""
    words = shlex.split(line)
    command = commands()[name]
    assert words[:1 + len(name.split())] == ["gemmule", *name.split()]
    with command.make_context(name, words[1 + len(name.split()):]) as context:
        if config := context.params.get("config"):
            load_config(config)


@pytest.mark.parametrize("line", CHEAP)
def test_cheap_examples_give_what_the_page_shows(monkeypatch, capsys, tmp_path: Path, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert run(monkeypatch, *shlex.split(line)[1:]) == 0
    seen = [row.rstrip() for row in capsys.readouterr().out.splitlines()]
    recorded = json.loads(OUTPUTS.read_text())[line].splitlines()
    if recorded[-1] == "..":
        assert len(seen) >= len(recorded)
        seen, recorded = seen[:len(recorded) - 1], recorded[:-1]
    assert seen == recorded, "run: python benchmarks/examples.py --only run --only disasm, and make pages"


# Prompts ------------------------------------------------------------------------------------------


def generated(monkeypatch, tmp_path: Path, *arguments: str) -> dict:
    path = tmp_path / "a.json"
    assert run(monkeypatch, "generate", "--no-baseline", "--max-new-tokens", "2", "--json", str(path), *arguments) == 0
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize("text", ["import os\n", "\ufeffimport os\n"])
def test_prompt_file(monkeypatch, tmp_path: Path, text: str) -> None:
    """The same as the text itself; a byte order mark is not text."""
    (tmp_path / "prompt.py").write_text(text, encoding="utf-8")
    from_file = generated(monkeypatch, tmp_path, "--prompt-file", str(tmp_path / "prompt.py"))
    assert from_file["prompt"] == "import os\n"
    assert from_file["prompt_tokens"] == len(encode("import os\n"))
    assert from_file["tokens"] == generated(monkeypatch, tmp_path, "--prompt", "import os\n")["tokens"]


def test_prompt_from_standard_input(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    assert generated(monkeypatch, tmp_path, "--prompt-file", "-")["prompt"] == PROMPT


@pytest.mark.parametrize(("content", "message"), [
    (b"caf\xe9", "must be UTF-8 text, not with byte 0xe9 at 3: convert it"),
    (b"", "must hold at least one character, not none"),
    (b"x" * 65537, "must hold at most 65536 bytes"),
    (b"x = 1\n" * 300, "the prompt must hold at most 1023 tokens, not 1200; shorten it"),
])
def test_wrong_prompt_files_are_named(monkeypatch, capsys, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert run(monkeypatch, "generate", "--prompt-file", str(path)) == 2
    error = capsys.readouterr().err
    assert f"--prompt-file {path}" in error
    assert message in error


# Endings and reports ------------------------------------------------------------------------------


def test_why_a_text_ends() -> None:
    session = Session(load_config("base"))
    most = session.target.program.max_positions
    ids = encode(PROMPT)
    assert session.generate("draft", ids, 4).finish_reason == "length"
    full = session.generate("draft", ids, most)
    assert (full.finish_reason, len(full.tokens)) == ("context", most - len(ids))
    assert session.generate("ar", ids, most - len(ids)).finish_reason == "length"
    stop = full.tokens[5]
    stopped = session.generate("draft", ids, most, stop=frozenset({stop}))
    assert (stopped.finish_reason, stopped.tokens[-1]) == ("stop", stop)
    assert EOS not in full.tokens


def test_report_of_a_generation(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert run(monkeypatch, "generate", "--prompt", "import os", "--max-new-tokens", "5", "--json", str(path)) == 0
    record, shown = json.loads(path.read_text()), capsys.readouterr()
    out = " ".join(shown.out.split())
    for unit in Unit:
        assert re.search(rf"^  {unit.label} +[\d,]+ +[\d,]+ *$", shown.out, re.MULTILINE), unit
    assert "2 prompt tokens, 5 new tokens" in out
    assert "ended at --max-new-tokens" in out
    assert record["milliseconds"] == pytest.approx(record["cycles"] / (record["clock_mhz"] * 1000))
    assert record["tokens_per_second"] == pytest.approx(5000 / record["milliseconds"])
    assert f"{record['tokens_per_second']:,.0f} tokens per second" in out
    assert f"memory-bound: draft keeps the DRAM bus busy in {record['dram_bound']:.1%}" in out
    assert "simulated in" in shown.err
    assert record["simulation_seconds"] > 0


@pytest.mark.parametrize(("shape", "bound"), [("64x64x64", "compute"), ("1x64x64", "memory")])
def test_report_of_a_product(monkeypatch, capsys, shape: str, bound: str) -> None:
    assert run(monkeypatch, "run", "gemm", "--shape", shape, "--config", "tiny", "--timing-only") == 0
    out = " ".join(capsys.readouterr().out.split())
    traffic, macs = (float(n) for n in re.search(
        rf"{bound}-bound: DRAM bus busy in ([\d.]+)% of cycles \([\d,]+ bytes\), mesh in ([\d.]+)% ", out).groups())
    assert (macs > traffic) == (bound == "compute")
    assert set(CAUSE_MEANING) == set(CAUSES)
    for cause, meaning in CAUSE_MEANING.items():
        assert f"{cause}: {meaning}" in out
    assert not re.search(r"(?<![.\d])\d{5,}", out), "large numbers have separators"


def test_the_head_of_a_report_has_the_real_bandwidth() -> None:
    slow = load_config({"name": "slow", "dram": {"beat_cycles": 3, "refresh_period": 0, "turnaround": 7}})
    text = conditions(slow)
    assert "5.33 bytes per cycle" in text
    assert "turnaround 7, no refresh;" in text
    assert "16 bytes per cycle" in conditions(load_config("base"))


# Long work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 333, 70), (7, 500, 200)])
def test_estimate_of_commands(shape: tuple[int, int, int]) -> None:
    tiny = load_config("tiny")
    seen = len(compile_product(tiny, *shape).commands)
    assert seen / 3 <= estimate(tiny, shape, WeightFormat(), "ws").commands <= seen * 3


def test_long_work_is_announced(capsys) -> None:
    Estimate(5, 5, 100).announce("it", "do not")
    assert not capsys.readouterr().err
    cost = estimate(load_config("base"), (8192, 8192, 8192), WeightFormat(), "ws", backend="model", timing_only=True)
    assert cost.seconds > 60
    cost.announce("8192x8192x8192", "a smaller shape is quicker")
    line = capsys.readouterr().err
    assert re.match(r"8192x8192x8192: about \d+ min on this computer \(about [\d,]+ commands; ", line)
    assert line.endswith("a smaller shape is quicker\n")


def test_long_generation_is_announced(capsys) -> None:
    announce_tokens(3, "rtl", 1_312_384)
    announce_tokens(200, "model", 1_312_384)
    assert not capsys.readouterr().err
    announce_tokens(200, "rtl", 1_312_384)
    assert re.match(r"200 tokens on rtl: up to \d+ min on this computer; --backend model", capsys.readouterr().err)


def test_products_that_fit_no_memory_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(estimating.os, "sysconf", lambda name: 1024)
    with pytest.raises(InputError, match="--shape must fit this computer's memory of 0 GiB"):
        estimate(load_config("base"), (512, 512, 512), WeightFormat(), "ws", backend="model")
    assert estimate(load_config("base"), (512, 512, 512), WeightFormat(), "ws", backend="model", timing_only=True)
    with pytest.raises(CompileError, match="a product must fit"):
        estimate(load_config("base"), (100000, 100000, 10), WeightFormat(), "ws")
