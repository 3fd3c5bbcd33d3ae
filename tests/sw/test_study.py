"""`gemmule study`: hosts, what is left to them, and the rows of each study."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.quantize.accuracy import perplexity
from gemmule.config import load_config
from gemmule.sim.result import Result
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.bundled_models import bundled_model, encode
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.studies import STUDIES, Row, study_of
from gemmule.sw.studies.activation import error_rows, quality_rows, time_rows
from gemmule.sw.studies.attention import attention_rows, decoder_rows
from gemmule.sw.studies.bass import bass_rows
from gemmule.sw.studies.fusion import fusion_rows
from gemmule.sw.studies.overlap import Ahead, Overlap, overlap_rows
from gemmule.sw.studies.smollm2 import _Board, smollm2_rows
from gemmule.sw.studies.softmax import perplexities
from gemmule.sw.studies.spatten import SCHEDULES, spatten_rows
from gemmule.sw.studies.survey import CLOCKS, SPEEDS, published_host, survey_rows
from gemmule.sw.studies.topk import quick_select, top_k_cycles, topk_rows, worst_quick_select
from gemmule.sw.workloads.architectures import Work
from gemmule.sw.workloads.host_model import IN_ORDER, KERNELS, VECTOR, Host, Operator
from gemmule.sw.workloads.offload import offload

from .test_cli import run

ROOT = Path(__file__).resolve().parents[2]
TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
BERT = architecture("bert-base")


def small_bert() -> Architecture:
    """One layer, 64 columns, a head."""
    found = BERT.resized("layers", 1).resized("hidden", 64)
    return replace(found, config=found.config | {"vocab_size": 50})


def small_gpt2() -> Architecture:
    """Two layers, 64 columns."""
    found = architecture("gpt2").resized("layers", 2).resized("hidden", 64)
    return replace(found, name="small-gpt2", config=found.config | {"vocab_size": 50})


def test_every_study_is_one_file() -> None:
    files = {path.stem for path in (ROOT / "sw" / "studies").glob("*.py")} - {"__init__"}
    assert set(STUDIES) == files
    for name in STUDIES:
        assert load_config(study_of(name).config).name == study_of(name).config


def test_a_host_is_bound_by_arithmetic_or_by_memory() -> None:
    """By hand: 1,000 elements of 3 cycles; 64,000 bytes at 4 a cycle less refresh take longer."""
    host = Host(name="h", source="", cycles=dict.fromkeys(KERNELS, 1.5))
    few = Operator(name="o", elements=1000, kernels=("add", "quantise"), bytes=0)
    assert host.spends(few, TINY) == 3000
    assert host.spends(few, TINY, speed=4) == 750
    rate = TINY.bus_bytes / TINY.dram.beat_cycles * (1 - TINY.dram.refresh_share)
    many = replace(few, bytes=64000)
    assert host.spends(many, TINY) == host.spends(many, TINY, speed=16) == pytest.approx(64000 / rate)


def test_what_is_left_to_a_host() -> None:
    """Counted by hand: one layer of 64 columns, 256 inner ones, one head, 8 tokens."""
    left = offload(small_bert().graph(), TINY, 8)
    assert left.launches == 6 + 2
    assert left.macs == 8 * (4 * 64 * 64 + 2 * 64 * 256 + 2 * 8 * 64)
    assert left.macs / TINY.dim ** 2 < left.product_cycles < 3 * left.macs / TINY.dim ** 2
    assert {part.name: (part.elements, part.bytes) for part in left.operators} == {
        "softmax": (64, 128), "GELU": (2048, 4096), "residual and LayerNorm": (1024, 10240),
        "embedding and LayerNorm": (512, 6656)}
    alone, both = (left.cycles(IN_ORDER, TINY, overlapped=overlapped) for overlapped in (False, True))
    assert alone == pytest.approx(left.product_cycles + both)
    assert left.cycles(IN_ORDER, TINY, speed=1e9, overlapped=True) == left.product_cycles


def test_the_published_host_is_what_was_published() -> None:
    """Beside the published products, 39.6 times the time with units, of which softmax has its share."""
    left = offload(small_bert().graph(), TINY, 64)
    host = published_host(left, TINY)
    products = left.macs / TINY.dim ** 2 / 0.74
    spent = {part.name: part.elements * sum(host.cycles[k] for k in part.kernels) for part in left.operators}
    assert (products + sum(spent.values())) * 0.87 / products == pytest.approx(39.6)
    softmax = left.operators[0].elements * host.cycles["softmax"]
    assert softmax / (products + sum(spent.values())) == pytest.approx(0.19)


def test_survey() -> None:
    rows = {row.setting: row for row in survey_rows(small_bert(), TINY, 16)}
    units, alone = rows["integer units, whole network"].here, rows["products alone"].here
    left = offload(small_bert().graph(), TINY, 16)
    assert alone == left.product_cycles
    assert rows["speed-up over the in-order host"].here == pytest.approx(left.cycles(IN_ORDER, TINY) / units)
    for host in ("published host", "in-order host", "vector host"):
        speeds = [rows[f"{host}: speed-up, {speed} x its speed"].here for speed in SPEEDS]
        assert speeds == sorted(speeds, reverse=True)
        assert len([name for name in rows if name.startswith(f"{host}: speed-up, clocked")]) == len(CLOCKS)


def test_hosts_are_what_was_measured() -> None:
    measured = {row["kernel"]: row for row in json.loads((ROOT / "docs/results/host.json").read_text())["rows"]}
    assert set(measured) == set(KERNELS)
    for kernel, row in measured.items():
        assert IN_ORDER.cycles[kernel] == row["rv64gc_instructions"]
        assert VECTOR.cycles[kernel] == row["cycles_here"]


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = study_of("survey")
    made = [Row(setting="a", published=None, here=2.0, unit="times", why="b")]
    monkeypatch.setattr("gemmule.sw.studies.study_of", lambda name: replace(study, run=lambda config: made))
    assert run(monkeypatch, "study", "survey", "--config", "tiny", "--json", str(tmp_path / "f.json")) == 0
    record = json.loads((tmp_path / "f.json").read_text())
    assert (record["study"], record["config"]) == ("survey", "tiny")
    assert record["rows"] == [{"setting": "a", "published": None, "here": 2.0, "unit": "times", "why": "b"}]
    assert run(monkeypatch, "study", "poem") == 2
    assert "NAME must be one of" in capsys.readouterr().err


def test_the_committed_survey_keeps_its_bar() -> None:
    rows = {row["setting"]: row for row in json.loads((ROOT / "docs/results/study_survey.json").read_text())["rows"]}
    assert rows["speed-up over the published host"]["here"] >= 60


def test_attention() -> None:
    """The standard way costs cycles and ten bytes a score, whole column groups; online moves about what exact does."""
    network = small_bert()
    rows = {row.setting: row.here for row in attention_rows(network, TINY, (16,))}
    assert rows["standard, 16 tokens: attention"] > rows["exact, 16 tokens: attention"]
    assert rows["standard, 16 tokens: whole network"] > rows["exact, 16 tokens: whole network"]
    loads = rows["standard, 16 tokens: DRAM"] - rows["exact, 16 tokens: DRAM"]
    assert 10 * 16 * 16 <= loads < 10 * 16 * 16 + 2000  # and commands
    assert abs(rows["online, 16 tokens: DRAM"] - rows["exact, 16 tokens: DRAM"]) < 2000


def test_attention_of_decoders() -> None:
    """The standard way costs cycles and bytes; online the bytes of exact."""
    works = {"behind {}": [Work(phase="decode", seq=64, context=96)]}
    rows = {row.setting: row.here for row in decoder_rows(small_gpt2(), EDGE, works)}
    exact, standard, online = (tuple(rows[f"{way}, small-gpt2, behind 64: {what}"] for what in ("cycles", "DRAM"))
                               for way in ("exact", "standard", "online"))
    assert standard > exact
    assert standard[1] - exact[1] >= 10 * 64 * 2  # layers of a head
    assert abs(online[1] - exact[1]) < 6000  # of commands


def test_perplexities() -> None:
    """Exponentials that differ little differ little, the polynomial more; the order is the options'."""
    network = bundled_model("target", "default").network
    windows = np.array(encode(Path(json.__file__).read_text(), "default")[:2 * 24]).reshape(2, 24)
    rows = perplexities(network, windows)
    assert [row.setting.partition(":")[0] for row in rows] == [
        f"{name}{online}" for online in ("", ", online by 128 keys") for name in ("exact", "softermax", "ibert")]
    exact = rows[0].here
    assert exact == pytest.approx(perplexity(network, windows))
    near, far = ([abs(row.here / exact - 1) for row in rows if row.setting.startswith("ibert") == polynomial]
                 for polynomial in (False, True))
    assert max(near) < 0.05 < min(far)
    assert max(far) < 0.3, "it was made for networks trained with it, which the bundled target was not"
    assert len({row.here for row in rows}) > 1


def test_activation() -> None:
    """Words are nearer than bytes, the polynomial as near as its authors say, and quality follows."""
    errors = {row.setting: row for row in error_rows()}
    for name, row in errors.items():
        if row.published:
            assert row.published <= row.here < 1.5 * row.published, name
    stored = [errors[f"{name}: root mean square error of what is stored"].here for name in ("word", "table", "ibert")]
    assert stored == sorted(stored)
    assert 0 < stored[0] < 0.29  # of a number between two steps
    network = bundled_model("target", "default").network
    windows = np.array(encode(Path(json.__file__).read_text(), "default")[:2 * 24]).reshape(2, 24)
    rows = quality_rows(network, windows)
    assert [row.setting for row in rows] == ["table: perplexity", "word: perplexity"]  # its function is no GELU
    assert rows[1].here == pytest.approx(rows[0].here, rel=0.1)
    assert rows[1].here != rows[0].here


def test_time_of_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vector unit reads twice as often for words."""
    monkeypatch.setattr("gemmule.sw.studies.activation.WORKS", {"small": Work(phase="encode", seq=16)})
    monkeypatch.setattr("gemmule.sw.studies.activation.architecture", lambda name: small_bert())
    rows = {row.setting: row.here for row in time_rows(TINY)}
    assert rows["word, small at 16: cycles"] != rows["table, small at 16: cycles"]
    assert len(rows) == 6


def test_overlap_by_hand() -> None:
    """A pass of 1,000 cycles, 900 of them with data; a draft of 100, 60 with data; a quarter of drafts count."""
    def launch(cycles: int, moved: int) -> Result:
        nothing = np.zeros(0, dtype=np.int64)
        return Result(cycles, nothing, nothing, nothing, dram_bytes={"load": moved * BASE.bus_bytes})

    dram = BASE.dram.model_copy(update={"refresh_cycles": 390})  # a tenth
    config = BASE.model_copy(update={"dram": dram})
    found = Overlap(config, launch(1000, 870), launch(100, 60), 0.25)
    assert found.idle == pytest.approx(30)
    assert found.fits == pytest.approx(0.5)
    step = 1000 + 100 + 2500
    assert found.gain(found.fits) == pytest.approx(step / (step - 0.25 * 50) - 1)
    assert found.gain(1.0) == pytest.approx(step / (step - 25) - 1)
    assert replace(found, verify=launch(1000, 950)).idle == 0.0
    assert replace(found, draft=launch(4000, 60)).gain(1.0) == pytest.approx(7500 / (7500 - 250) - 1)


def test_drafts_begun_ahead_count_where_all_is_right() -> None:
    """Counted again by the golden network of the draft: its own next token behind each step that was accepted whole."""
    ids = encode("import os\nimport sys\nimport ")
    network = bundled_model("draft").network
    with Session(BASE, interpreted=True) as session:
        assert session.draft is not None
        drafter = Ahead(session.draft, 2)
        run = generate(session.target, drafter, ids, 40, Ledger(BASE))
        assert run.tokens == session.generate("ar", ids, 40).tokens
    length, expected = 0, 0
    for drafted, accepted in run.steps:
        length += accepted + 1
        if drafted and drafted == accepted:
            logits = IntegerInterpreter(network).forward(
                Rows.chain([*ids, *run.tokens[:length - 1]]), Cache(network.graph))
            expected += int(np.argmax(logits[-1])) == run.tokens[length - 1]
    assert drafter.steps == sum(drafted > 0 for drafted, _ in run.steps)
    assert drafter.useful == expected > 0


def test_overlap() -> None:
    """The pass leaves hardly an idle cycle; what it leaves, and what it moves, are the pass."""
    rows = {row.setting: row for row in overlap_rows(bundled_pair(), BASE, [encode("import os\n")], (2,), 12)}
    assert all(setting.startswith("2 drafts: ") for setting in rows)
    here = {setting.removeprefix("2 drafts: "): row.here for setting, row in rows.items()}
    assert 0 <= here["its bus idle, refresh aside"] < 0.2 * here["the pass that verifies"]
    assert 0 <= here["of a draft, what fits the idle bus"] <= 1
    assert 0 <= here["gain at most"] <= here["gain at most, a device for each model"] < 0.12


def test_fusion() -> None:
    """Without it more cycles, and as many bytes more out as in, commands aside."""
    rows = {row.setting: row for row in fusion_rows(small_bert(), TINY, "small", Work(phase="encode", seq=16))}
    assert rows["small, fusion off: cycles"].here > rows["small, fusion on: cycles"].here
    assert rows["small, fusion off: DRAM"].here > 1.1 * rows["small, fusion on: DRAM"].here
    assert rows["small, fusion off: DRAM"].why.startswith("+")


def test_a_board_for_each_byte_of_its_bus() -> None:
    """By hand, from the device's own cycles; a bus that is not told counts as no more than its tokens need."""
    boards = (_Board("known", 8.0, 16, "a"), _Board("unknown", 50.0, None, "b"))
    found = {row.setting.partition(":")[0]: row for row in smollm2_rows(small_gpt2(), TINY, boards)
             if row.unit == "tokens/s"}
    cycles = next(row.here for row in smollm2_rows(small_gpt2(), TINY, ()) if row.unit == "cycles")
    assert found["known"].published == pytest.approx(0.5)
    assert found["known"].here == found["unknown"].here == pytest.approx(1e8 / cycles / TINY.bus_bytes)
    shares = [row for row in smollm2_rows(small_gpt2(), TINY, boards) if row.unit == "share"]
    assert len(shares) == 1
    assert found["unknown"].published == pytest.approx(1e8 / (shares[0].published * 1e8 * 16 / 8.0))
    assert 0 < shares[0].here < 1


@pytest.mark.parametrize(("keys", "kept"), [(1, 1), (16, 4), (17, 4), (1000, 999), (1024, 16)])
@pytest.mark.parametrize("config", [TINY, BASE], ids=["tiny", "base"])
def test_top_k_takes_what_the_contract_says(config, keys: int, kept: int) -> None:
    """docs/timing.md: 6 (g + 4) + g + 4 steps, whatever is kept, between issue and finish."""
    groups = -(-keys // config.dim)
    assert top_k_cycles(config, keys, kept) - top_k_cycles(config, 1, 1) == 7 * (groups - 1)


def test_quick_select() -> None:
    """All ranks end; the mean is within a tenth of what the released model's own runs gave (1,024 to 512: 254)."""
    random = np.random.default_rng(1)
    assert [quick_select(1, 1, random), worst_quick_select(64), worst_quick_select(1024)] == [4, 352, 36352]
    assert 230 < np.mean([quick_select(1024, 512, random) for _ in range(300)]) < 280
    rows = list(topk_rows(BASE))
    assert all(row.here < (row.published or 0) for row in rows if "worst" in row.setting)


def test_cascade_pruning_by_shape() -> None:
    """Rows are the schedule's, and cycles fall nearly as much; what is told is what stands in the results."""
    found = {row.schedule: row for row in spatten_rows(BASE)}
    for name, (schedule, published) in SCHEDULES.items():
        row = found[name]
        assert row.rows_fetched == schedule.rows
        assert row.rows_ratio == schedule.dense.rows / schedule.rows
        assert row.published_bytes_ratio == published
        assert 0.75 * row.rows_ratio < row.attention_cycles_ratio < row.rows_ratio
        assert row.top_k_exposed < 0.06 * row.top_k_cycles
    kept = json.loads((ROOT / "docs" / "results" / "study_spatten.json").read_text())["rows"]
    assert {row["schedule"]: row["attention_cycles_ratio"] for row in kept} == {
        name: row.attention_cycles_ratio for name, row in found.items()}


def test_bass_by_its_own_texts() -> None:
    """Texts are checked by the study itself; PAD never takes fewer cycles than SPLIT."""
    prompts = [pair.encode(text) for pair, text in (
        (bundled_pair(), text) for text in ("import os\n", "def main(arguments):\n    for name in arguments:\n"))]
    rows = list(bass_rows(bundled_pair(), load_config("base"), prompts, 12, batches=(2,), rows=(4,)))
    assert [row.unit for row in rows] == ["times ar of the batch"] * 2 + ["times the cycles"]
    assert all(row.published is None for row in rows), "published is batch 8 alone"
    assert rows[-1].here >= 1
