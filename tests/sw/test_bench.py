"""`gemmule bench`: bounds, equal texts, resuming, what it refuses."""

import gzip
import json
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.sw.benches.batch import groups, measure_batch, rows_for
from gemmule.sw.benches.bench import Case, measure
from gemmule.sw.benches.finished import Finished
from gemmule.sw.benches.rows import best_of, rows_of
from gemmule.sw.benches.theory import theory
from gemmule.sw.datastore import kept
from gemmule.sw.decoding.generation import loops
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.prompts.choose import Prompt
from gemmule.sw.reports.trace import DECODING, RUNS

from .test_cli import run

CASES = [Case(method=method, num_tokens=count, temperature=0, rule="greedy")
         for method, count in (("ar", 0), ("always", 3), ("never", 3), ("draft", 3))]


def test_loops_are_told_apart() -> None:
    """A text with less than half of its 4-grams distinct counts as one that loops, and has no part in that mean."""
    assert [loops(text) for text in ([7] * 30, list(range(30)), [1, 2, 3], [], [5] * 4, [5] * 6)] == [
        True, False, False, False, False, True]
    with Session(load_config("base"), interpreted=True) as session:
        found = list(measure(session, encode("import os\n"), 9, CASES[:2], frozenset(), lambda case: GREEDY))
    ar, always = (result | {"category": "chat", "prompt": "a"} for result in found)
    slow = always | {"run": always["ar"], "looping": 0}
    plain, told = rows_of([ar, always | {"looping": 1}, slow], {}, load_config("base").host)
    assert (plain["looping"], plain["speedup_without_loops"]) == (ar["looping"], None if ar["looping"] else 1)
    assert (told["looping"], told["prompts"], told["speedup_without_loops"]) == (1, 2, 1)
    assert told["speedup_over_ar"] > 1


def test_bounds() -> None:
    """Right drafts are all accepted, wrong ones never; neither runs a draft model."""
    config = load_config("base")
    with Session(config, interpreted=True) as session:
        found = list(measure(session, encode("import os\n"), 17, CASES, frozenset(), lambda case: GREEDY))
    ar, always, never, draft = found
    assert all(result["equal"] == result["prompts"] == 1 for result in found)
    assert always["steps"] == [[3, 3]] * 4 + [[0, 0]]
    assert never["steps"] == [[3, 0]] * 14 + [[2, 0], [1, 0], [0, 0]]
    assert draft["run"]["launches"]["draft"] > 0
    for result in (ar, always, never):
        assert "draft" not in result["run"]["launches"]
    assert ar["run"] == ar["ar"] == draft["ar"]
    rows = rows_of([result | {"category": name, "prompt": "a"} for name in ("copy", "table") for result in found],
                   {"draft": 9}, config.host)
    assert [row["category"] for row in rows] == ["copy"] * 4 + ["table"] * 4 + ["all"] * 4
    assert [row["prompts"] for row in rows] == [1] * 8 + [2] * 4
    assert [row["extra_parameters"] for row in rows[:4]] == [0, 0, 0, 9]
    plain, right, wrong, drafted = rows[-4:]
    assert wrong["speedup_over_ar"] < plain["speedup_over_ar"] == 1 < right["speedup_over_ar"]
    assert right["speedup_by_launch_cycles"]["20000"] > right["speedup_by_launch_cycles"]["2000"]
    assert right["speedup_by_launch_cycles"]["2000"] == right["speedup_over_ar"], "what the configuration has"
    assert right["steps_accepting"] == {"none": 0, "some": 0, "all": 8, "undrafted": 2}
    assert 0.9 < plain["roofline_fraction"] < 1
    assert (right["alpha"], wrong["alpha"], wrong["expected_tokens"]) == (1, 0, 1)
    for row in (right, wrong, drafted):
        assert row["decode_speedup"] == pytest.approx(
            row["theoretical_speedup"] * row["tokens_of_theory"] * row["cycles_of_theory"])
    assert drafted["worst_case"] > 1 == wrong["worst_case"], "only a draft model costs anything"
    assert plain["theoretical_speedup"] is None


def test_batch() -> None:
    """Each text of a batch is the one that its prompt gives alone; passes are shared, so tokens cost less."""
    config, prompts = load_config("base"), [encode("import os\n"), encode("class A:\n    x = 1\n")]
    sampled = Case(method="draft", num_tokens=3, temperature=1, rule="match")
    rules = dict.fromkeys(CASES, GREEDY) | {sampled: Match(Sampling(1.0), Noise(7))}
    with ExitStack() as opened:
        def session(batch: int, rows: int | None) -> Session:
            return opened.enter_context(Session(config, general=True, interpreted=True, batch=batch, rows=rows))

        alone, shared = session(1, None), cache(lambda rows: session(2, rows))
        assert [rows_for(case, 2) for case in CASES] == [8, 8, 8, 8]
        found = list(measure_batch(alone, lambda case: shared(rows_for(case, 2)), prompts, 9, [*CASES, sampled],
                                   frozenset(), rules.__getitem__))
        texts = [alone.generate("ar", ids, 9, rule=rules[sampled].of_text(i)).tokens for i, ids in enumerate(prompts)]
    ar, always, never, *drafted = found
    assert [(result["prompts"], result["equal"]) for result in found] == [(2, 2)] * 5, texts
    assert texts[0] != texts[1]
    assert ar["run"]["launches"]["target"] == ar["alone"]["launches"]["target"] / 2 == 1 + 9
    assert (ar["run"]["prefill_launches"], ar["alone"]["prefill_launches"]) == ({"target": 1}, {"target": 2})
    assert always["steps"] == ([[3, 3]] * 2 + [[0, 0]]) * 2
    assert all(accepted == 0 for _, accepted in never["steps"])
    rows = rows_of([result | {"category": "copy"} for result in found], {}, config.host)
    assert [(row["prompts"], row["equal_to_ar"]) for row in rows] == [(2, 2)] * 5
    assert 1.2 < rows[0]["batch_gain"] < 2, "weights are read once for both, rows computed that no text has"
    for row, result in zip(rows, found):
        assert 0.6 < row["roofline_fraction"] < 1
        run = result["run"]
        assert row["cycles_per_token"] == (
            sum(run["cycles"].values()) + 2000 * sum(run["launches"].values()) + 500 * run["steps"]) / run["tokens"]


def test_prompts_that_go_together() -> None:
    """Of one category, in their order; what is left over goes alone."""
    names = [Prompt(name, name[0], "") for name in ("a1", "a2", "a3", "b1", "b2")]
    assert [[prompt.name for prompt, _ in group] for group in groups([(name, 0) for name in names], 2)] == [
        ["a1", "a2"], ["a3"], ["b1", "b2"]]


def test_the_table_is_of_the_ledger() -> None:
    """Cycles a token, counted again from what is kept of a run, with the configuration's host and another's."""
    for launch in (2000, 7000):
        config = load_config("base")
        config = config.model_copy(update={"host": config.host.model_copy(update={"launch_cycles": launch})})
        ids = encode("import os\n")
        with Session(config, interpreted=True) as session:
            found = list(measure(session, ids, 9, CASES[-1:], frozenset(), lambda case: GREEDY))
            run, ar = (session.generate(method, ids, 9, count) for method, count in (("draft", 3), ("ar", None)))
        (row,) = rows_of([result | {"category": "copy"} for result in found], {}, config.host)
        assert row["cycles_per_token"] == run.ledger.cycles / 9
        assert row["speedup_over_ar"] == ar.ledger.cycles / run.ledger.cycles
        assert row["draft_cycle_share"] == run.ledger.cycles_of("draft") / run.ledger.cycles
        expected = theory(run, ar)
        assert expected is not None
        assert row["decode_speedup"] == pytest.approx(expected.measured)
        assert row["draft_cost"] == pytest.approx(expected.draft_cost)


def test_best_lengths() -> None:
    """Half of all drafts accepted, a tenth of a step each: the closed form's best."""
    def row(length: int, gain: float) -> dict:
        return {"category": "copy", "method": "draft", "temperature": 0, "verify": "greedy", "draft_cost": 0.1,
                "num_speculative_tokens": length, "speedup_over_ar": gain, "verify_cost": 1.0,
                "acceptance_by_position": [0.5] * length}

    (best,) = best_of([row(1, 1.2), row(2, 1.3), row(4, 1.25)])
    gains = {g: (1 - 0.5 ** (g + 1)) / 0.5 / (1 + 0.1 * g) for g in range(1, 5)}
    assert best["measured"] == 2
    assert best["foretold"] == max(gains, key=gains.__getitem__)
    assert best["foretold_speedup"] == pytest.approx(max(gains.values()))
    assert best_of([row(1, 1.2)]) == []


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "prompts.txt").write_text("import os\n---\nclass A:\n    x = 1\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["bench", "--model", "small", "--prompt-file", "prompts.txt", "--method", "ar,draft,pld",
                 "--num-speculative-tokens", "2", "--temperature", "0,1", "--max-new-tokens", "8", "--resume",
                 "kept/runs.jsonl", "--json", "bench.json"]
    assert run(monkeypatch, *arguments) == 0
    first = json.loads(Path("bench.json").read_text())
    assert [(row["method"], row["verify"], row["equal_to_ar"]) for row in first["rows"]] == [
        ("ar", "greedy", 2), ("draft", "greedy", 2), ("pld", "greedy", 2),
        ("ar", "match", 2), ("draft", "rejection", None), ("pld", "match", 2)]
    assert first["best"] == []
    assert first["resident"]["kv_bytes"] == first["resident"]["by_batch"][0]["kv_bytes"]["256"]
    assert "largest context that fits" in " ".join(capsys.readouterr().out.split())
    lines = Path("kept/runs.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert run(monkeypatch, *arguments[:-3], "other.jsonl", "--json", "other.json", "--compute", "interpreter") == 0
    assert json.loads(Path("other.json").read_text())["rows"] == first["rows"]
    Path("kept/runs.jsonl").write_text(lines[0] + "\n" + lines[1][:40])  # as an interruption leaves it
    assert run(monkeypatch, *arguments) == 0
    assert json.loads(Path("bench.json").read_text()) == first
    assert len(Path("kept/runs.jsonl").read_text().splitlines()) == 3
    assert run(monkeypatch, "bench", "--model", "small", "--prompt-file", "prompts.txt", "--method", "ar,pld",
               "--num-speculative-tokens", "2", "--max-new-tokens", "4", "--batch", "2", "--json", "batch.json",
               "--html", "batch.html") == 0
    shared = json.loads(Path("batch.json").read_text())
    assert [(row["method"], row["equal_to_ar"], row["prompts"]) for row in shared["rows"]] == [
        ("ar", 2, 2), ("pld", 2, 2)]
    assert shared["batch"] == shared["resident"]["batch"] == 2
    assert all(row["batch_gain"] > 0 for row in shared["rows"])
    assert [row["batch_gain"] for row in first["rows"]] == [None] * 6
    assert "batch: throughput relative" in " ".join(capsys.readouterr().out.split())


def test_all_methods_in_one_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                  capsys: pytest.CaptureFixture) -> None:
    """What the bundled pair has, each with its own number of drafts; warm rows beside cold ones; Spec-Bench's lines."""
    Path(tmp_path / "prompts.txt").write_text("a = [1, 2, 3]\n---\n" * 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept, "texts_of", lambda corpus: ["a = [1, 2, 3]\nb = [4, 5]\n"])
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    arguments = ["bench", "--model", "small", "--prompt-file", "prompts.txt", "--method", "all", "--warm",
                 "--max-new-tokens", "12", "--skip-layers", "1", "--resume", "runs.jsonl", "--json", "bench.json",
                 "--jsonl", "spec.jsonl"]
    assert run(monkeypatch, *arguments) == 0
    record = json.loads(Path("bench.json").read_text())
    expected = [(name, warm) for name, one in METHODS.items() if one.common
                for warm in ((False, True) if one.warm else (False,))]
    rows = {(row["method"], row["warm"]): row for row in record["overview"]}
    assert set(rows) == set(expected)
    for (name, _), row in rows.items():
        assert row["lossless"] is METHODS[name].lossless
        assert (row["equal_to_ar"] if row["lossless"] else row["policy_equal"]) == 3
    means = [row["speedup_over_ar"] for row in record["overview"]]
    assert means == sorted(means, reverse=True)
    assert (rows["ar", False]["speedup_over_ar"], rows["ar", False]["calls_reduced"]) == (1, 0)
    assert rows["draft", False]["num_speculative_tokens"] == 5
    assert rows["int4-self", False]["extra_parameters"] > 1e6
    assert rows["suffix", True]["tokens_per_step"] > rows["suffix", False]["tokens_per_step"], "the same prompt again"
    assert " ".join(capsys.readouterr().out.split()).count("suffix 15 warm") == 1
    lines = [json.loads(line) for line in Path("spec.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * len(expected)
    texts = {tuple(line["choices"][0]["turns"]) for line in lines
             if METHODS.get(line["model_id"].removeprefix("small-"), METHODS["ar"]).lossless}
    assert len(texts) == 1
    for line in lines:
        (choice,) = line["choices"]
        assert sum(choice["accept_lengths"]) >= choice["new_tokens"][0] == 12
        assert len(choice["accept_lengths"]) == choice["decoding_steps"][0]
    times = {(line["model_id"], line["question_id"]): line["choices"][0]["wall_time"][0] for line in lines}
    plain = sum(times["small-ar", number] for number in (1, 2, 3))
    (row,) = (row for row in record["rows"] if row["method"] == "ar")
    assert plain == pytest.approx(row["cycles_per_token"] * row["tokens"] / 1e9)
    done = Path("runs.jsonl").read_text().splitlines()
    Path("runs.jsonl").write_text("\n".join(done[:2] + done[3:-1]) + "\n")  # one prompt and one warm method less
    assert run(monkeypatch, *arguments) == 0
    assert json.loads(Path("bench.json").read_text()) == record


def test_other_settings_are_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    made = []

    def make() -> list[dict]:
        made.append(1)
        return [{"tokens": len(made)}]

    assert Finished(file, [1]).of("a", make) == Finished(file, [1]).of("a", make) == [{"tokens": 1}]
    assert Finished(file, [2]).of("a", make) == [{"tokens": 2}]
    assert Finished(file, [1]).of("b", make) == [{"tokens": 3}]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--method", "magic"], f"--method must be one of {', '.join(METHODS)}, always, never, not 'magic'"),
    (["--num-speculative-tokens", "1,x"], "--num-speculative-tokens must be numbers between commas, not '1,x'"),
    (["--num-speculative-tokens", "16"], "--num-speculative-tokens must be from 1 to 15"),
    (["--temperature", "-1"], "--temperature must be 0 or from 0.001"),
    (["--verify", "match"], "--verify match needs --temperature above 0"),
    (["--batch", "33"], "--batch must be from 1 to 32, not 33"),
    (["--batch", "2", "--warm"], "--warm takes prompts one by one, not a --batch: drop one of the two"),
    (["--batch", "2", "--jsonl", "x"], "--jsonl takes prompts one by one, not a --batch: drop one of the two"),
    (["--num-speculative-tokens", "0"], "--num-speculative-tokens must be from 1 to 15"),
    (["--batch", "2", "--launch", "step"], "--launch step takes one text a launch, not --batch 2: drop one"),
    (["--category", "poems"], "--category must be one of completion, copy"),
    (["--prompt-file", "/none"], "--prompt-file /none must name a file that can be read"),
    (["--max-new-tokens", "5000"], "--max-new-tokens must be from 1 to 1023"),
])
def test_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str],
                 message: str) -> None:
    assert run(monkeypatch, "bench", *arguments) == 2
    assert message in capsys.readouterr().err


def test_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first prompt by each case, one behind the other: cycles are those of the table."""
    options = ["--model", "small", "--compute", "interpreter", "--prompts", "1", "--category", "completion,copy",
               "--method", "draft,always", "--num-speculative-tokens", "3", "--max-new-tokens", "6"]
    assert run(monkeypatch, "bench", *options, "--resume", str(tmp_path / "kept"),
               "--trace", str(tmp_path / "t.json.gz")) == 0
    events = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    runs = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (DECODING, RUNS)]
    assert [event["name"] for event in runs] == ["draft 3", "always 3"]
    ends = [event["ts"] + event["dur"] for event in runs]
    assert ends[0] == runs[1]["ts"]
    assert all(event["ts"] + event.get("dur", 0) <= ends[1] + 1e-6 for event in events if "ts" in event)
    results = json.loads((tmp_path / "kept").read_text().splitlines()[0])["results"]
    host = load_config("base").host
    for event, result in zip(runs, results, strict=True):
        cycles = sum(result["run"]["cycles"].values()) + host.step_cycles * len(result["steps"])
        cycles += host.launch_cycles * sum(result["run"]["launches"].values())
        assert event["dur"] * host.clock_mhz == pytest.approx(cycles)
