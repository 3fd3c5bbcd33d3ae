"""The committed results of benchmarks are those of their own rows."""

import importlib.util
import json
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.models.trained.drafter import drafter_path
from gemmule.sw.models.trained.read import read_trained
from gemmule.sw.prompts.choose import load
from gemmule.sw.reports.markdown import fill

ROOT = Path(__file__).resolve().parents[1]


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda path: path.stem)
def test_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is there with what it imports of others, whether run as a script or as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT))
    runpy.run_path(str(path), run_name="imported")


def test_committed_speed_ups_are_those_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lossless = benchmark("lossless", monkeypatch)
    result = json.loads((ROOT / "docs" / "results" / "lossless.json").read_text())
    record, found = load()
    assert result["conditions"]["prompts"]["sha256"] == record["sha256"]
    assert [row["prompt"] for row in result["rows"]] == [prompt.name for prompt in found]
    lengths = result["conditions"]["lengths"]
    assert {1, 3, 7} <= set(lengths)
    assert result["summaries"] == [lossless.summary(result["rows"], length) for length in lengths]
    assert all(s["equal"] == s["prompts"] == 50 for s in result["summaries"])


def test_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: three texts, one of them looping, one slower."""
    lossless = benchmark("lossless", monkeypatch)

    def row(speedup: float, distinct: float, kind: str) -> dict:
        cell = {"equal": True, "none": 1, "some": 2, "all": 3, "tokens_per_step": 2.0, "acceptance": 0.5}
        return {"kind": kind, "distinct_4grams": distinct, "3": cell | {"speedup": speedup}}

    found = lossless.summary([row(3.0, 0.1, "middle"), row(0.9, 0.5, "middle"), row(1.2, 0.9, "beginning")], 3)
    assert (found["mean"], found["median"], found["min"], found["max"]) == (pytest.approx(1.7), 1.2, 0.9, 3.0)
    assert (found["slower"], found["equal"], found["steps"]) == (1, 3, {"none": 3, "some": 6, "all": 9})
    assert found["parts"]["looping"] == {"prompts": 1, "mean": 3.0, "min": 3.0, "max": 3.0}
    assert found["parts"]["not looping"]["prompts"] == found["parts"]["middle"]["prompts"] == 2
    assert "definition" not in found["parts"]
    assert found["correlation_with_distinct_4grams"] < 0


def test_the_sentence_encoder_ranks_as_float() -> None:
    """The committed figures keep the bar, and are of the committed sentences."""
    found = json.loads((ROOT / "docs" / "results" / "sentences.json").read_text())
    folder = ROOT / "benchmarks"
    lists = [(folder / f"{name}.txt").read_text().splitlines() for name in ("sentences", "sentences_unseen")]
    assert len({*lists[0], *lists[1], *(folder / "calibration.txt").read_text().splitlines()}) == 2 * 64 + 50
    assert found["sentences"] == {"seen": 64, "unseen": 64}
    ranks = {(row["setting"], row["sentences"]): row["spearman"] for row in found["rows"]}
    for side in ("seen", "unseen"):
        assert min(ranks["int8", side], ranks["int8, second-order", side]) >= 0.99
        assert ranks["int8, ranges not evened out", side] < ranks["int8", side]


@pytest.mark.parametrize(("a", "b", "wanted"), [
    ([1, 2, 3, 4], [10, 20, 30, 99], 1.0), ([1, 2, 3, 4], [4, 3, 2, 1], -1.0), ([1, 2, 3, 4], [2, 1, 4, 3], 0.6)])
def test_rank_correlation(a: list[float], b: list[float], wanted: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("benchmarks.sentences")
    assert module.spearman(a, b) == pytest.approx(wanted)


def test_twice_the_numbers_in_half_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed pairs are of nearly equal bytes, and both tables of the page are theirs."""
    rows = json.loads((ROOT / "docs" / "results" / "weights.json").read_text())["halves"]
    for few, more in zip(rows[::2], rows[1::2], strict=True):
        assert (few["weights"], more["weights"]) == ("int8", "int4 by 32")
        assert more["numbers"] == 2 * few["numbers"]
        assert more["bytes"] == pytest.approx(few["bytes"], rel=0.07)
        assert few["cycles"] < more["cycles"] < 2 * few["cycles"]
    page = (ROOT / "docs" / "models.md").read_text()
    readme = benchmark("readme", monkeypatch)
    for part in (readme.weights(), readme.halves()):
        assert part in page


def test_a_launch_a_step_is_worth_its_launches() -> None:
    """The committed figures: a launch a step, the same texts, and the more the dearer a launch is."""
    rows = json.loads((ROOT / "docs" / "results" / "launches.json").read_text())["rows"]
    assert {row["equal"] for row in rows} == {2}
    told = {(row["drafts"], row["launch"]): row for row in rows}
    for drafts in (1, 3, 7):
        whole, passes = told[drafts, "step"], told[drafts, "pass"]
        assert whole["launches a step"] == 1.0 < told[drafts, "draft"]["launches a step"]
        gains = [whole[key] / passes[key] for key in whole if key.startswith("speed-up")]
        assert gains == sorted(gains)
        assert gains[0] > 1


def test_prompts_by_programs_of_their_own() -> None:
    """The committed figures: the same texts, prompts in half the cycles, and drafting gains more over the same."""
    found = json.loads((ROOT / "docs" / "results" / "prefill.json").read_text())
    assert all(row["equal"] for row in found["runs"])
    cycles = {(row["model"], row["rows"]): row["400 tokens"] for row in found["prompts"] if "400 tokens" in row}
    for model in ("target", "draft"):
        mine = [count for (role, _), count in cycles.items() if role == model]
        assert min(mine[1:]) < 0.55 * mine[0]
    told = {(row["method"], row["target_rows"]): row for row in found["means"]}
    for method in ("draft", "pld"):
        (_, before), (_, now) = sorted((rows, row) for (name, rows), row in told.items() if name == method)
        assert now["prefill_cycles"] < 0.5 * before["prefill_cycles"]
        assert now["speedup"] > before["speedup"]


def test_results_of_the_pair_are_recorded_once_for_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done is passed over until the files change; what fails ends the run and is tried again."""
    pair = importlib.import_module("benchmarks.pair")
    (tmp_path / "script.py").write_text(
        "import pathlib, sys\n"
        "with open('said', 'a') as file: print(*sys.argv[1:], file=file)\n"
        "sys.exit(3 * (sys.argv[1] == 'b' and pathlib.Path('broken').exists()))\n")
    (folder := tmp_path / "default").mkdir()
    for name in ("target", "draft"):
        (folder / f"{name}.safetensors").write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pair, "MODELS_FOLDER", tmp_path)
    monkeypatch.setattr(pair, "COMMANDS", {"a": "script.py a {train}", "b": "script.py b", "c": "script.py c"})
    monkeypatch.setattr(pair, "PAGES", {"page": "script.py page"})

    def run(*options: str) -> list[str]:
        Path("said").write_text("")
        monkeypatch.setattr("sys.argv", ["pair", "--train", "floats", *options])
        pair.main()
        return Path("said").read_text().splitlines()

    Path("broken").touch()
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 3
    assert Path("said").read_text().splitlines() == ["a floats", "b"]
    Path("broken").unlink()
    assert run("--only", "c") == ["c", "page"]
    assert run() == ["b", "page"]
    assert run() == ["page"]
    (folder / "draft.safetensors").write_bytes(b"another")
    assert run() == ["a floats", "b", "c", "page"]


def test_commands_of_the_pair_are_there() -> None:
    pair = importlib.import_module("benchmarks.pair")
    for command in (*pair.COMMANDS.values(), *pair.PAGES.values()):
        words = command.split()
        if words[0] == "-m":
            assert importlib.util.find_spec(words[1]), command
        else:
            assert (ROOT / words[0]).is_file(), command
        for word in words:
            if word.endswith(".json"):
                assert (ROOT / word).is_file(), command


def test_readme_says_of_smollm2_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, then a table that grows part by part; the headline when its numbers are there."""
    from benchmarks import readme_smollm2

    monkeypatch.setattr(readme_smollm2, "RESULT", tmp_path / "smollm2.json")
    record: dict[str, Any] = {}

    def rows() -> list[str]:
        (tmp_path / "smollm2.json").write_text(json.dumps(record))
        return (readme_smollm2.numbers() or "").splitlines()[2:]
    assert readme_smollm2.numbers() is readme_smollm2.headline() is None
    assert rows() == []
    record["speed"] = {"config": "base", "bus_bytes": 16, "clock_mhz": 1000, "passes": [
        {"weights": bits, "context": context, "rows": count, "tokens_per_second": 100.0 if count == 1 else None,
         "roofline_fraction": 0.97, "dram_bytes": 10**8, "over_one_row": 1.0 + count / 1000}
        for bits in ("int8", "int4") for context in (64, 512) for count in (1, 8, 16)]}
    assert len(rows()) == 6
    assert rows()[1].endswith("| 6.25 | 6.25 |")
    assert readme_smollm2.headline() is None
    found = {"perplexity_float": 20.0, "perplexity_int": 20.4, "kl_mean": 0.01, "top1_agreement": 0.94}
    record["quality"] = {"conditions": {"windows": 16, "window": 512},
                         "rows": [{"bits": "int8", "variant": "all remedies", "whole": found},
                                  {"bits": "int8", "variant": "nearest", "whole": found | {"kl_mean": 9}}]}
    assert [row.split(" | ")[2:] for row in rows()[6:]] == [["+2.00%", "- |"], ["0.0100", "- |"], ["94.0%", "- |"]]
    record["decoding"] = {"int8": {"summary": [
        {"method": "pld", "part": part, "requests": 10, "tokens_per_step": 2.5, "distinct_4grams": 0.9, "speedup": gain}
        for part, gain in (("all", 1.9), ("chat", 1.4), ("grounded", 2.8), ("looping", 5.0))]}}
    assert rows()[-1].split(" | ")[2:] == ["5.00x", "- |"]
    said = " ".join((readme_smollm2.headline() or "").split())
    assert "1.90 times as fast on 10 requests, and 2.80 times as fast on grounded requests" in said
    assert "Perplexity changes by +2.0% against float" in said


def test_rows_that_leave_the_sentence_encoder() -> None:
    """The committed figures: half of the rows in 1.6 times fewer cycles; at a quarter drawn rows are clearly worse."""
    found = json.loads((ROOT / "docs" / "results" / "pruned_sentences.json").read_text())
    for row in found["best"]:
        assert row["drawn_unseen"] < row["spearman_unseen"] <= row["dense_rows_pooled_unseen"] + 1e-9
        if row["goal"] == "rows / 4":
            assert row["drawn_unseen"] < row["spearman_unseen"] - 0.1
    half = {row["schedule"] for row in found["best"] if row["goal"] == "rows / 2"}
    ratios = [row["cycles_ratio"] for row in found["cycles"] if row["schedule"] in half]
    assert len(ratios) == 2
    assert min(ratios) >= 1.6


def test_heads_that_leave_the_sentence_encoder() -> None:
    """The committed figures say what the page says: better than heads of each text, seldom than the same for all."""
    found = json.loads((ROOT / "docs" / "results" / "pruned_sentences.json").read_text())
    passages = [row for row in found["heads"] if row["texts"] == "passages"]
    gains = [row["spearman_unseen"] - row["each_drawn_unseen"] for row in passages]
    assert 0.015 < min(gains) <= max(gains) < 0.065
    assert max(row["spearman_unseen"] for row in found["heads"]) < found["bar"]
    early, late = (next(row for row in passages if row["schedule"] == schedule) for schedule in (
        "6 heads", "12, 12, 12, 12, 8 heads"))
    assert round(early["spearman_unseen"], 2) == 0.8
    for row, better in ((early, False), (late, True)):
        assert (row["spearman_unseen"] > sum(row["drawn_unseen"]) / len(row["drawn_unseen"])) is better
    ratios = {row["tokens"]: round(row["cycles_ratio"], 2) for row in found["heads_cycles"]
              if row["schedule"] == "6 heads"}
    assert ratios == {128: 1.1, 256: 1.13}


def test_free_rows_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows than the first that costs more; a pass of one row takes no less behind more; the page tells it."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.free_rows import CONTEXTS, OWN, PAGE, PARTS, RESULTS, SHAPES

    rows = json.loads(RESULTS.read_text())["rows"]
    assert {row["model"] for row in rows} == {OWN, *SHAPES}
    for row in rows:
        assert bool(row["refused"]) is not bool(row["contexts"])
        if row["contexts"]:
            assert [one["cached"] for one in row["contexts"]] == list(CONTEXTS)
            assert [one["one_row"] for one in row["contexts"]] == sorted(one["one_row"] for one in row["contexts"])
            assert all(1 <= one["free"] <= row["most_rows"] for one in row["contexts"])
            assert all((one["wide"] <= 1.03) >= (one["free"] >= 16) for one in row["contexts"] if one["wide"])
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.free_rows --page"


def test_adaptive_page_tells_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.adaptive_page import PAGE, PARTS, RESULTS

    assert all(row["equal"] for row in json.loads((RESULTS / "batches.json").read_text())["texts"])
    found = json.loads((RESULTS / "never_slower.json").read_text())
    assert all(row["equal"] for part in ("alone", "together") for row in found[part])
    assert {row["method"] for row in found["alone"]} | {*found["left_out"]} == {*METHODS} - {"ar"}
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.adaptive_page"


def test_tables_of_all_methods_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method that a model has has a row; each text is that of `ar`, or of a lossy method's policy."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.all_methods_page import PAGE, PARTS, RESULTS

    lossy = {name for name, one in METHODS.items() if not one.lossless}  # of SmolLM2: early_exit.json has these
    heads = {"blockwise", "medusa", "hydra"}
    for name, most in (("bench_all_default", {"parallel", "joined", "eagle", "streaming"}),  # bench_tuned
                       ("bench_all_smollm2", {"draft", "draft-tree", "eagle", "streaming", *heads, *lossy})):
        rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
        assert {*METHODS} - {row["method"] for row in rows} <= most
        assert all(row["policy_equal" if row["method"] in lossy else "equal_to_ar"] == row["prompts"] for row in rows)
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.all_methods_page"


def test_tables_of_heads_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text is that of `ar`, and what acceptance and passes predict is what was measured."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.heads_page import PAGE, PARTS, RESULT, TOLD, TRAINING, predicted

    for kind in ("medusa", "blockwise"):
        path = drafter_path("default", kind)
        assert path
        told = json.loads(TRAINING.read_text())["kinds"][kind]["not looping"]["paths"]
        assert {tuple(ranks): share for ranks, share in told} == read_trained(path, kind).shares
    rows = json.loads(RESULT.read_text())["rows"]
    assert {row["method"] for row in rows} == {"ar", "blockwise", "medusa", "hydra"}
    for row in rows:
        assert row["equal_to_ar"] == row["prompts"]
        if row["method"] != "ar":
            assert abs(predicted(row) / row["decode_speedup"] - 1) < 0.05, (row["category"], row["method"])
    record = json.loads(TOLD.read_text())
    for row in record["rows"]:
        for method in record["methods"]:
            assert row[method]["behind_prompt"] == pytest.approx(row[method]["predicted_behind_prompt"], rel=0.05)
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.heads_page"


def test_tables_of_what_drafters_gain_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What acceptance and passes predict is what was measured, with the same files of the drafters."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.drafters_page import EAGLE, JOINED, PAGE, PARTS

    records = [json.loads(path.read_text()) for path in (JOINED, EAGLE)]
    for record, methods in zip(records, (["parallel", "joined"], ["parallel", "eagle"]), strict=True):
        assert record["methods"] == list(record["extra_parameters"]) == methods
        for row in record["rows"]:
            for method in methods:
                assert row[method]["behind_prompt"] == pytest.approx(row[method]["predicted_behind_prompt"], rel=0.05)
    for key in ("target_sha256", "config_sha256"):
        assert records[0][key] == records[1][key]
    assert records[0]["drafters_sha256"]["parallel"] == records[1]["drafters_sha256"]["parallel"]
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.drafters_page"


def test_tables_of_the_tuned_target_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What acceptance and passes predict is what was measured; every text is that of `ar`."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.tuned_page import PAGE, PARTS, RESULTS, predicted

    for name in ("bench_tuned", "bench_tuned_each"):
        rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
        assert {row["method"] for row in rows} == {"draft", "layerskip", "streaming"}
        assert all(row["equal_to_ar"] == row["prompts"] for row in rows)
    for row in rows:  # of single texts
        assert row["category"] == "all" or abs(predicted(row) / row["decode_speedup"] - 1) < 0.05, row["method"]
    text = PAGE.read_text()
    for marker, content in PARTS.items():
        assert fill(text, marker, content()) == text, f"{marker}: run python -m benchmarks.tuned_page"


def test_small_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front and the gain by hand; the committed rows give what is told, and the page tells it."""
    small = benchmark("small_targets", monkeypatch)

    def row(shape: str, perplexity: float, cycles: int, pj: float) -> dict[str, Any]:
        return {"shape": shape, "perplexity": perplexity, "cycles": cycles, "pj": pj}

    found = small.judged([row("a", 10.0, 100, 4.0), row("b", 10.1, 50, 4.0), row("c", 10.1, 60, 4.0),
                          row("d", 9.0, 200, 8.0), row("e", 10.2, 10, 1.0)])
    assert [each["front"] for each in found] == [True, True, False, True, True]
    assert small.gain(found, "a") == ("b", 2.0)
    assert small.gain(found, "a", 0.2) == ("e", 40.0)
    assert small.gain(found, "d") == ("d", 1.0)
    names = [small.name_of(shape) for shape in small.shapes()]
    assert len(set(names)) == len(names)
    assert small.name_of(small.SMALL_TARGET) in names
    record = json.loads(small.RESULT.read_text())
    rows = [{name: value for name, value in each.items() if name not in ("edp", "front")} for each in record["rows"]]
    assert [each["shape"] for each in rows] == names
    assert small.judged(rows) == record["rows"]
    assert record["gain"] == list(small.gain(record["rows"], record["baseline"]))
    text = small.PAGE.read_text()
    for marker, content in small.tables(record).items():
        assert fill(text, marker, content) == text, f"{marker}: run python -m benchmarks.small_targets --page"
