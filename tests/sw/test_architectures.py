"""`gemmule run arch`: what it reports of networks by shape, over lengths, and in figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import load_config
from gemmule.sw.errors import InputError
from gemmule.sw.workloads import architectures
from gemmule.sw.workloads.architectures import Work, run_architecture, sweep_values, swept
from gemmule.sw.workloads.passes import Passes
from tests.compiler.integer_networks import Sizes, random_network

from .test_cli import run

EDGE = load_config("edge")


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMMULE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def small(name: str = "llama-68m") -> Architecture:
    found = architecture(name).resized("hidden", 128).resized("positions", 128).resized("layers", 2)
    return replace(found, config=found.config | {"vocab_size": 97})


def test_time_is_that_of_a_network_with_numbers() -> None:
    """Scalings differ from layer to layer there, and are fetched from the parameter memory."""
    sizes = Sizes(family="llama", hidden=128, inner=512, layers=2, heads=2, kv_heads=2, head_dim=64, vocab=97,
                  positions=128)
    network = random_network(sizes, 1, weights=False)
    program = compile_network(network, EDGE, rows=1, tokens=True)
    with Passes(program, network, "model", 0, True) as passes:
        passes.fill_cache(50)
        passes.run(1, 1)
    record = run_architecture(small(), EDGE, Work(seq=50))
    assert record["macs"] == passes.macs
    assert record["network_bytes"] == passes.ideal_bytes
    assert record["cycles"] == pytest.approx(passes.cycles, rel=2e-3)


def test_prefill_adds_up() -> None:
    record = run_architecture(small("gpt2"), EDGE, Work(phase="prefill", seq=10, rows=4, bits="int4"))
    assert (record["passes"], record["rows"], record["context"], record["group"]) == (3, 4, 10, 32)
    assert sum(part["cycles"] for part in record["operators"]) == record["cycles"]
    assert sum(part["macs"] for part in record["operators"]) == record["macs"]
    assert sum(part["network_bytes"] for part in record["operators"]) == record["network_bytes"]
    assert record["dram_bytes"] == sum(record["dram_bytes_by_purpose"].values())


def test_encoder() -> None:
    record = run_architecture(small("bert-base"), EDGE, Work(seq=20))
    assert (record["phase"], record["passes"], record["rows"]) == ("encode", 1, 20)
    assert sum(part["cycles"] for part in record["operators"]) == record["cycles"]
    assert sum(part["macs"] for part in record["operators"]) == record["macs"]


def test_encoder_searched() -> None:
    """The command's search: each phase no worse than the first mapping, the whole with the mapping that was found."""
    first, searched = (run_architecture(small("bert-base"), EDGE, Work(seq=20, search=search))
                       for search in ("first", "branch-and-bound"))
    assert first["search"] is None
    for phase in searched["search"]["phases"]:
        assert phase["bound"] <= phase["cycles"] <= phase["cycles_first"]
        assert phase["certified"]
        assert {"cycles": phase["cycles"], **phase["mapping"]} in phase["tried"]
    layer = searched["search"]["layer"]
    assert layer["bound"] <= layer["cycles"] <= sum(phase["cycles"] for phase in searched["search"]["phases"])
    assert searched["macs"] == first["macs"]
    assert searched["cycles"] <= 1.02 * first["cycles"]


def test_decoder_has_no_such_search() -> None:
    with pytest.raises(InputError, match="--search must be first for a decoder, not branch-and-bound: use --effort"):
        run_architecture(small(), EDGE, Work(search="branch-and-bound"))


def test_int4_moves_half() -> None:
    moved = {bits: run_architecture(small(), EDGE, Work(seq=0, bits=bits, head_bits=bits))["dram_bytes_by_purpose"]
             for bits in ("int8", "int4")}
    assert moved["int4"]["load"] < 0.6 * moved["int8"]["load"]


@pytest.mark.parametrize(("work", "message"), [
    (Work(seq=128), "--seq must be from 0 to 127"), (Work(phase="prefill", seq=0), "--seq must be from 1 to 128"),
    (Work(context=129), "--context must be from 1 to 128, the positions that the network sees, not 129"),
    (Work(context=20, seq=20), r"--seq must be from 0 to 19 \(20 positions at most\), not 20")])
def test_positions_out_of_range(work: Work, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_architecture(small(), EDGE, work)


def test_a_sweep_is_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run_architecture(small(), EDGE, Work(seq=60))
    point = swept(small(), EDGE, Work(), "seq", 60)
    assert (point["cycles"], point["cycles_per_token"]) == (alone["cycles"], alone["cycles"])
    assert point["operations_per_byte"] == 2 * alone["macs"] / alone["network_bytes"]
    assert swept(small(), EDGE, Work(seq=60), "rows", 2)["cycles_per_token"] < 0.6 * alone["cycles"]
    seen = []
    monkeypatch.setattr(architectures, "run_architecture", lambda found, *rest: seen.append(found) or alone)
    swept(small(), EDGE, Work(), "layers", 5)
    assert seen[0].graph().layers == 5


def test_values() -> None:
    found = architecture("llama-68m")
    assert sweep_values(found, Work(), "seq", "") == [64, 256, 1024]
    assert sweep_values(found, Work(), "hidden", "") == [384, 768, 1536]
    assert sweep_values(found, Work(), "layers", "1,2") == [1, 2]
    for text in ("1,x", "0", "1,,2", "-1"):
        with pytest.raises(InputError, match="--values must be 1 to 64 positive whole numbers with commas"):
            sweep_values(found, Work(), "seq", text)


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "arch", "gpt5"], "NAME must be one of bert-base, bert-large, gpt2"),
    (["run", "arch", "gpt2", "--values", "1"], "--values needs --sweep"),
    (["run", "arch", "gpt2", "--sweep", "width"], "--sweep must be one of seq, rows, layers, hidden, not 'width'"),
    (["run", "arch", "gpt2", "--figure", "a.gif"], "--figure must end in .svg, .png, .pdf, not 'a.gif'"),
    (["run", "arch", "tinyllama-1.1b", "--activation", "ibert"],
     "--activation ibert needs a network with GELU, not silu: use table or word"),
    (["run", "arch", "bert-base", "--search", "branch-and-bound", "--fusion", "off"],
     "--search branch-and-bound goes with --fusion on, not off: leave one out"),
    (["run", "arch", "bert-base", "--phase", "decode"],
     "--phase must be encode for bert-base, an encoder, not decode"),
    (["run", "arch", "gpt2", "--phase", "encode"],
     "--phase must be prefill or decode for gpt2, a decoder, not encode")])
def test_errors_are_one_line(monkeypatch, capsys, arguments: list[str], message: str) -> None:
    assert run(monkeypatch, *arguments) == 2
    text = capsys.readouterr().err
    assert message in text.splitlines()[-1]
    assert "Traceback" not in text


def test_command(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gemmule.compiler.importers.architectures.architecture", lambda name: small(name))
    line = "run arch llama-68m --config edge --seq 9 --rows 2 --sweep seq --values 8,16 --json a.json"
    assert run(monkeypatch, *line.split()) == 0
    record = json.loads(Path("a.json").read_text())
    assert record["schema"] == "gemmule/run-arch/1"
    assert {"cycles", "utilization", "roofline_fraction", "dram_bytes", "dram_bytes_by_purpose", "commands",
            "program_bytes", "compile_seconds", "simulation_seconds", "layers", "operators"} <= set(record)
    assert [(point["value"], point["phase"]) for point in record["sweep"]] == [
        (value, phase) for value in (8, 16) for phase in ("decode", "prefill")]
    assert "a generated token takes" in capsys.readouterr().out


def test_figures(tmp_path: Path) -> None:
    from gemmule.sw.reports.figures import operators_figure, sweep_figure

    record = run_architecture(small(), EDGE, Work(seq=50))
    for _ in range(2):
        operators_figure(tmp_path / "a.svg", "small", record)
        first = (tmp_path / "a.svg").read_text()
    assert ">logits<" in first or "logits" in first
    points = [swept(small(), EDGE, Work(phase=phase, rows=2), "seq", 20) for phase in ("decode", "prefill")]
    sweep_figure(tmp_path / "b.png", "small", "seq", points)
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
