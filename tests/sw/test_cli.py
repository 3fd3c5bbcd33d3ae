"""The command line as a user meets it: output, JSON, one-line errors with exit code 2."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from gemmule import __version__
from gemmule.compiler.kernels.product import DATAFLOWS
from gemmule.compiler.passes.map import MOST_ROWS
from gemmule.config import PRESETS
from gemmule.hw.flow.standard.library import LIBRARIES
from gemmule.hw.flow.target import TARGETS
from gemmule.sw import limits
from gemmule.sw.cli import main
from gemmule.sw.commands.shared.group import COMMANDS
from gemmule.sw.decoding.methods import METHODS, of_option
from gemmule.sw.limits import either
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.pages.command_line import commands, examples

DRAFTING = tuple(name for name in METHODS if name != "ar")
SCHEDULED = tuple(name for name, one in METHODS.items() if one.drafts and one.scheduled)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gemmule", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "gemm", "--shape", "3x4"], "--shape must be MxKxN with integers from 1 to 1048576, not '3x4'"),
    (["run", "gemm", "--shape", "0x4x4"], "--shape must be MxKxN"),
    (["run", "gemm", "--config", "huge"], "config: 'huge' is neither a preset"),
    (["run", "gemm", "--dataflow", "rs"], "--dataflow must be one of ws, os, any, not 'rs'"),
    (["run", "gemm", "--search", "guess"], "--search must be one of formula, exhaustive, optuna, cp-sat, not 'guess'"),
    (["run", "gemm", "--trials", "9"], "--trials needs a --search that simulates, not formula; leave out --trials 9"),
    (["run", "gemm", "--weights", "int2"], "--weights must be one of int8, int4, not 'int2'"),
    (["cosim", "gemm", "--rows", "3"], "--rows is not for gemm; leave it out"),
    (["cosim", "target", "--shape", "4x4x4"], "--shape is not for target; leave it out"),
    (["run", "gemm", "--group-size", "32"],
     "groups of scales are of int4 weights, not of int8: take int4, or group size 0"),
    (["run", "gemm", "--dataflow", "os", "--weights", "int4"], "the output-stationary dataflow takes int8 weights"),
    (["run", "gemm", "--backend", "fpga"], "--backend must be one of model, rtl, not 'fpga'"),
    (["run", "gemm", "--backend", "rtl", "--timing-only"], "--timing-only needs --backend model"),
    (["generate", "--prompt", ""], "--prompt must hold at least one character"),
    (["generate", "--method", "magic"], f"--method must be one of {', '.join(METHODS)}, not 'magic'"),
    (["generate", "--backend", "gpu"], "--backend must be one of model, rtl, not 'gpu'"),
    (["generate", "--max-new-tokens", "0"], "--max-new-tokens must be from 1 to 1023 (prompt and new tokens share"),
    (["generate", "--num-speculative-tokens", "16"], "--num-speculative-tokens must be from 1 to 15"),
    (["generate", "--prompt", "x = 1\n" * 300], "the prompt must hold at most 1023 tokens"),
    (["generate", "--model", "small", "--prompt", "x = 1\n" * 300], "the prompt must hold at most 255 tokens"),
    (["generate", "--model", "small", "--config", "tiny"], "target does not run on config 'tiny': use --config base"),
    (["cosim", "draft", "--config", "tiny"], "use --config base or edge"),
    (["generate", "--method", "ar", "--num-speculative-tokens", "3"],
     f"needs --method {either(of_option('--num-speculative-tokens'))}, not ar"),
    (["generate", "--method", "ar", "--no-baseline"],
     f"--no-baseline needs --method {either(DRAFTING)}, not ar"),
    (["generate", "--method", "ar", "--baseline"], f"--baseline needs --method {either(DRAFTING)}, not ar"),
    (["generate", "--method", "ar", "--draft-lengths", "cost"],
     f"--draft-lengths cost needs --method {either(SCHEDULED)}"),
    (["generate", "--draft-lengths", "long"], "--draft-lengths must be one of constant, heuristic, confidence, cost"),
    (["generate", "--launch", "step", "--temperature", "1"], "--launch step does not go with --temperature above 0"),
    (["generate", "--launch", "draft", "--draft-lengths", "confidence"],
     "--launch draft does not go with --draft-lengths confidence"),
    (["generate", "--launch", "none"], "--launch must be one of pass, draft, step, not 'none'"),
    (["generate", "--top-k", "3"], "--top-k 3 needs --temperature above 0"),
    (["generate", "--verify", "match"], "--verify match needs --temperature above 0"),
    (["generate", "--verify", "typical"], "--verify must be one of match, rejection, not 'typical'"),
    (["generate", "--temperature", "-1"], "--temperature must be 0 or from 0.001 to 1000, not -1"),
    (["generate", "--temperature", "nan"], "--temperature must be 0 or from 0.001 to 1000, not nan"),
    (["generate", "--temperature", "1", "--top-p", "0"], "--top-p must be above 0 and at most 1, not 0"),
    (["generate", "--prompt", "a", "--prompt-file", "b"], "--prompt and --prompt-file exclude each other"),
    (["generate", "--prompt-file", "/none"], "--prompt-file /none must name a file that can be read: No such file"),
    (["generate", "--prompt-file", "/"], "--prompt-file / must name a file that can be read: Is a directory"),
    (["generate", "--prompt-file", "/dev/null"], "--prompt-file /dev/null must hold at least one character"),
    (["generate", "--prompt-file", "/dev/zero"], "--prompt-file /dev/zero must hold at most 65536 bytes"),
    (["generate", "--prompt-file", "/dev/full\x1b[31m"], "/dev/full\\x1b[31m must name"),
    (["generate", "--num-speculative-tokens", "0"], "--num-speculative-tokens must be from 1 to 15"),
    (["generate", "--seed", "4294967296"], "--seed must be from 0 to 4294967295, not 4294967296"),
    (["run", "gemm", "--shape", "8192x8192x8192", "--backend", "rtl"], "--shape must fit the 64 MiB DRAM of --backend"),
    (["disasm", "0x2x2"], "PROGRAM must be MxKxN with integers from 1"),
    (["cosim", "target", "--position", "256"], "--position must be from 0 to 255, not 256"),
    (["gemerate"], "No such command 'gemerate'. Did you mean 'generate'"),
    (["run", "gem"], "No such command 'gem'. Did you mean 'gemm'"),
    (["disasm", "--jsn", "a"], "No such option: --jsn"),
    (["disasm", "nothing.bin"], "PROGRAM must be a file, target, draft or MxKxN"),
    (["cosim", "--wave", "a.vcd"], "--wave must name a file that ends in .fst, not 'a.vcd'"),
    (["cosim", "conv"], "PROGRAM must be gemm, target or draft, not 'conv'"),
    (["cosim", "target", "--rows", "99"], "--rows must be from 1 to 16"),
    (["fuzz", "--programs", "0"], "--programs must be from 1 to 1000000, not 0"),
    (["verilog", "--unit", "tensor"], "--unit must be one of"),
    (["verilog", "--config", "tiny", "--out", "/dev/null/x"], "--out must be a"),
    (["fuzz", "--commands", "3000000000"], "--commands must be from 40 to 1000"),
    (["generate", "--prompt", "\udcff"], "--prompt must be UTF-8 text"),
    (["generate", "--seed", "-1"], "--seed must be from 0 to 4294967295, not -1"),
    (["generate", "--json", "/"], "--json must name a writable file, not '/'"),
    (["run", "gemm", "--shape", "٣x٣x٣"], "--shape must be MxKxN"),
    (["run", "gemm", "--shape", "100000x100000x10", "--timing-only"], "use a smaller shape"),
    (["disasm", "8x8x8", "--config", "tiny", "--save-image", "/"], "--save-image must name a writable file"),
    (["disasm", "2x2x2.bin"], "PROGRAM must be a file"),
    (["generate", "--colour", "red"], "No such option: --colour"),
    (["run", "gemm", "--seed", "two"], "'--seed': must be a valid integer"),
])
def test_errors_are_one_line(monkeypatch, capsys, arguments: list[str], message: str) -> None:
    assert run(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert error.startswith("error: ")
    assert error.count("error") == 1
    assert "\n" not in error


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run"], ["run", "--help"]])
def test_help(monkeypatch, capsys, arguments: list[str]) -> None:
    assert run(monkeypatch, *arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: gemmule")
    assert not shown.err
    assert "run" in arguments or all(f"\n  {name} " in shown.out for name in COMMANDS)


def test_version(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"gemmule {__version__}\n"
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_completion(monkeypatch, capsys) -> None:
    """Commands, options and choices, with no command's module but the one that is typed."""
    def complete(words: str) -> list[str]:
        monkeypatch.setenv("_GEMMULE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        run(monkeypatch)
        return capsys.readouterr().out.split()

    assert complete("gemmule ge") == ["generate"]
    assert "--num-speculative-tokens" in complete("gemmule generate --n")
    assert complete("gemmule generate --method d") == ["draft", "draft-tree"]
    assert complete("gemmule run g") == ["gemm"]
    assert complete("gemmule run gemm --config e") == ["edge"]


def test_table_of_commands() -> None:
    """Every command's module has it; the choices and limits in the help are those of the code behind."""
    assert {name.split()[0] for name in commands()} == set(COMMANDS)
    assert "run gemm" in commands()
    assert limits.PRESETS == PRESETS
    assert limits.DATAFLOWS == DATAFLOWS
    assert (*TARGETS, *LIBRARIES) == limits.TARGETS
    for pair in dict.fromkeys(map(limits.resolve_pair, limits.MODELS)):
        assert bundled_pair(pair).positions == limits.CONTEXTS[pair]
    assert limits.DRAFTS.high == limits.ROWS.high - 1 == MOST_ROWS - 1
    for name, command in commands().items():
        assert examples(command), name
        assert all(parameter.help for parameter in command.params if parameter.name != "help"), name


def test_run_gemm(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "out" / "gemm.json"
    assert run(monkeypatch, "run", "gemm", "--shape", "20x33x17", "--config", "tiny", "--json", str(path)) == 0
    record = json.loads(path.read_text())
    assert {"cycles", "utilization", "dram_bytes", "roofline_fraction", "simulation_seconds"} <= set(record)
    assert record["correct"] is True
    assert [p.name for p in path.parent.iterdir()] == ["gemm.json"]
    assert run(monkeypatch, "run", "gemm", "--shape", "20x33x17", "--config", "tiny", "--timing-only",
               "--json", str(path)) == 0
    assert json.loads(path.read_text())["cycles"] == record["cycles"]


def test_generate(monkeypatch, capsys, tmp_path: Path) -> None:
    path = tmp_path / "generate.json"
    assert run(monkeypatch, "generate", "--prompt", "import os\n", "--max-new-tokens", "12", "--json", str(path)) == 0
    record = json.loads(path.read_text())
    keys = {"tokens", "text", "cycles", "tokens_per_step", "acceptance", "target_passes", "draft_passes",
            "cycles_by_unit", "dram_bytes", "speedup_over_ar"}
    assert keys <= set(record)
    assert len(record["tokens"]) == 12
    assert record["same_tokens_as_ar"] is True
    assert record["target_passes"] >= len(record["tokens"]) / 4
    shown = " ".join(capsys.readouterr().out.split())
    assert "identical to that of autoregressive decoding" in shown
    prefill = 1  # pass, in front of those of autoregressive decoding
    assert record["target_passes_saved"] == pytest.approx(1 - record["target_passes"] / (prefill + 12))
    assert record["extra_parameters"] == 131_392
    assert f"{record['target_passes_saved']:.0%} fewer passes of the target and 131,392 more weights" in shown


def test_json_that_cannot_be_written(monkeypatch, capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = run(monkeypatch, "run", "gemm", "--shape", "4x4x4", "--config", "tiny", "--json",
               str(tmp_path / "file" / "x.json"))
    assert code == 2
    assert "--json must name a writable file" in capsys.readouterr().err


def test_json_goes_into_devices_and_through_links(monkeypatch, capsys, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    arguments = ("run", "gemm", "--shape", "2x2x2", "--config", "tiny", "--json")
    assert run(monkeypatch, *arguments, str(link)) == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["correct"] is True
    assert real.stat().st_mode & 0o077 == 0o077 & ~_umask() & 0o666
    assert run(monkeypatch, *arguments, "/dev/null") == 0
    assert Path("/dev/null").is_char_device()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_disassembly_of_a_saved_image(monkeypatch, capsys, tmp_path: Path) -> None:
    image = tmp_path / "program.bin"
    assert run(monkeypatch, "disasm", "8x8x8", "--config", "tiny", "--save-image", str(image)) == 0
    listing = capsys.readouterr().out
    assert "matrix" in listing
    assert run(monkeypatch, "disasm", str(image)) == 0
    assert [line.split("#")[0].rstrip() for line in listing.splitlines()] == capsys.readouterr().out.splitlines()
    image.write_bytes(b"\x07" * 32)
    assert run(monkeypatch, "disasm", str(image)) == 2
    assert "program.bin: command 0: unit must be from 0 to 5" in capsys.readouterr().err


def test_generate_by_drawing(monkeypatch, tmp_path: Path) -> None:
    """The same seed gives the same text; another one another."""
    path, seen = tmp_path / "generate.json", []
    for seed, verify in ((1, "match"), (1, "match"), (2, "match"), (1, "rejection")):
        assert run(monkeypatch, "generate", "--model", "small", "--prompt", "import os\n", "--max-new-tokens", "10",
                   "--temperature", "1.2", "--top-k", "50", "--top-p", "0.9", "--seed", str(seed), "--verify", verify,
                   "--json", str(path)) == 0
        record = json.loads(path.read_text())
        assert record["same_tokens_as_ar"] is (True if verify == "match" else None)
        assert (record["verify"], record["top_k"], record["top_p"]) == (verify, 50, 0.9)
        seen.append(record["tokens"])
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]
