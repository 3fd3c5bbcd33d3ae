"""The driver in C against the exported Verilog: tokens, launches, cycles and counters of the RTL back end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.csr import CAUSES
from gemmule.isa import Unit
from gemmule.sim.rtl.build import Build
from gemmule.sw.device.backends import open_device
from gemmule.sw.driver.bench import WAITS, BenchError, build_bench, run_bench
from gemmule.sw.driver.decoder import placed_decoder, reference
from gemmule.sw.driver.decoder_image import decoder_image
from gemmule.sw.models.pair import bundled_pair

from ..test_cli import run

TINY = load_config("tiny")
PROMPT = "def fib(n):\n    if n"
pytestmark = [pytest.mark.rtl, pytest.mark.long]


@pytest.fixture(scope="module")
def bench() -> Build:
    return build_bench(TINY)


@pytest.mark.parametrize("answers", ["tokens", "logits"])
def test_it_decodes_as_the_rtl_does(bench: Build, tmp_path: Path, answers: str) -> None:
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", TINY, rows=4, answers=answers)
    prompt, image = pair.encode(PROMPT), tmp_path / "decoder.gmd"
    image.write_bytes(decoder_image(placed, prompt=prompt))
    runs = {wait: run_bench(bench, image, tokens=4, wait=wait) for wait in WAITS}
    expected = reference(placed, "rtl", prompt, 4, ())
    for seen in runs.values():
        assert (seen.tokens, seen.launches, seen.device_cycles) == (
            expected.tokens, expected.launches, expected.device_cycles)
        assert seen.cycles > seen.device_cycles
        for unit in Unit:  # every cycle has one cause
            assert sum(seen.last_launch[f"{unit.label}_{cause}"] for cause in CAUSES) == seen.last_launch["cycles"]
    assert runs["irq"].last_launch == runs["poll"].last_launch


def test_it_refuses_in_one_line(bench: Build, tmp_path: Path) -> None:
    pair = bundled_pair()
    edge = placed_decoder(pair, "draft", load_config("edge"))
    image = decoder_image(edge, prompt=[5])
    for name, content, why in (("other", image, "bench: the image is for another configuration"),
                               ("short", image[:-4], "bench: the file is no decoder image")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BenchError, match=f"^{why}$"):
            run_bench(bench, path, tokens=1)
    for words, why in (([], "name a decoder image"), (["a", "--wait", "never"], "--wait must be IMAGE"),
                       ([str(tmp_path / "none")], "none cannot be read")):
        done = subprocess.run([bench.executable, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_difference_is_an_error(bench: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a slower memory the device takes other cycles: the command says so."""
    slow = TINY.model_copy(update={"dram": TINY.dram.model_copy(update={"latency": 61})})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gemmule.sw.driver.decoder.open_device",
                        lambda backend, config, size: open_device(backend, slow, size))
    words = ("driver", "--config", "tiny", "--network", "draft", "--rows", "4", "--run", "--prompt", "def",
             "--max-new-tokens", "1", "--wait", "irq", "--json", "a.json")
    assert run(monkeypatch, *words) == 1
    record = json.loads(Path("a.json").read_text())
    assert record["equal"] is False
    assert record["runs"][0]["tokens"] == record["tokens"]
    assert record["runs"][0]["device_cycles"] < record["device_cycles"]
