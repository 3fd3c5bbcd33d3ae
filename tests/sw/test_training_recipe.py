"""The recipe, its windows, its yardstick, the encoder's folds, and the page: all that needs no torch."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Rows
from gemmule.compiler.quantize.network import Options, quantize_network
from gemmule.sw.limits import MODELS, MODELS_FOLDER, resolve_pair
from gemmule.sw.models.bundled import FILES
from gemmule.sw.training import measure, recipe, report, yardstick
from gemmule.sw.training.data import batches, folds, followers, tokenizer
from gemmule.sw.training.data.prepare import Arrays
from gemmule.sw.training.networks import export, teacher
from gemmule.sw.training.stages import copying_recipe

MOST_SHIPPED = 24_000_000
"""Bytes of all weights, drafters of published models among them."""


def arrays() -> Arrays:
    sizes = np.random.default_rng(1).integers(5, 60, 300)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return Arrays(library=np.arange(5000), packages=np.arange(10_000, 40_000), calibration=np.arange(10),
                  copies=np.arange(50_000, 50_000 + starts[-1]), starts=starts)


def test_weights_that_are_shipped() -> None:
    sizes = {path: path.stat().st_size for path in MODELS_FOLDER.rglob("*.safetensors")}
    assert len(sizes) >= 2
    assert sum(sizes.values()) <= MOST_SHIPPED, sizes


def test_pairs_by_name(tmp_path: Path) -> None:
    assert resolve_pair("small") == "small"
    assert resolve_pair("default", tmp_path) == "small"
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "manifest.json").write_text("{}")
    assert resolve_pair("default", tmp_path) == "default"
    assert {path.name for path in (MODELS_FOLDER / "small").iterdir()} == {
        *FILES.values(), "manifest.json", "quality.json"}
    assert MODELS == ("default", "small", "tuned")


def test_sizes_are_as_asked() -> None:
    plan = recipe.Recipe()
    assert plan.target.shape.head_dim == 32
    assert plan.target.shape.max_positions == 1024
    for name, shape in recipe.CANDIDATES.items():
        assert export.parameters(shape) <= 150_000, name
        assert (shape.vocab_size, shape.max_positions) == (plan.target.shape.vocab_size, 1024)
    assert all(stage.rows % stage.micro == 0 and stage.context <= 1024 for stage in plan.target.stages)
    assert max(plan.target.exits) < plan.target.shape.num_layers
    assert plan.target.exits.count(2) * 2 == len(plan.target.exits), "a quarter of the layers, every other time"


def test_schedule_rises_stays_and_falls() -> None:
    shares = [recipe.factor(step, 1000, 100, 0.5) for step in range(1000)]
    assert shares[0] == 0.01
    assert shares[99] == shares[499] == 1.0
    assert shares[999] == pytest.approx(0.002)
    assert all(b >= a for a, b in zip(shares[:100], shares[1:100]))
    assert all(b <= a for a, b in zip(shares[100:], shares[101:]))


def test_lessons_in_copying_rise_and_fall_by_stage() -> None:
    lessons = (copying_recipe.Lesson(steps=100, first=1.0, last=0.5, wanted_weight=1.0),
               copying_recipe.Lesson(steps=50, first=0.8, last=0.0, wanted_weight=2.0, rows=2, text_rows=8))
    plan = copying_recipe.CopyingRecipe(lessons=lessons, warm_up=10)
    assert (plan.steps, plan.tokens) == (
        150, 100 * (8 * 640 + 4 * 1024) + 50 * (2 * 640 + 8 * 1024))
    found = [plan.lesson(step) for step in range(150)]
    assert [lesson for lesson, _ in found] == [plan.lessons[0]] * 100 + [plan.lessons[1]] * 50
    shares = [share for _, share in found]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(9)] + [0.955])
    assert (shares[60], shares[100], shares[125], shares[149]) == pytest.approx((0.7, 0.8, 0.4, 0.016))
    with pytest.raises(ValueError, match="less than 150, not 150"):
        plan.lesson(150)
    plan = recipe.Recipe().copying
    shares = [plan.ended(step) for step in range(plan.steps + 1)]
    assert [share for share in shares if share] == [lesson.share for lesson in plan.lessons if lesson.share]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[plan.steps] > 0
    heads = plan.behind_heads * len(plan.behind)
    assert len({layer for layer, _ in plan.before} & set(plan.behind)) == 0 < heads
    assert max(plan.before) < (min(plan.behind), 0), "what is gathered before is what matches look for"
    assert recipe.Recipe().scaled(0.01).copying.steps == 2 + 1 + 3 + 4 + 1 + 3 + 1 + 3
    assert recipe.Recipe().shape.rope_theta == plan.rope_theta > recipe.Recipe().target.shape.rope_theta


def test_deeper_layers_are_left_out_more_often() -> None:
    shares = [recipe.left_out_share(layer, 8, 0.3) for layer in range(8)]
    assert shares[0] == 0.0
    assert shares[7] == pytest.approx(0.3)
    assert all(b > a for a, b in zip(shares, shares[1:]))


def test_fingerprint_sees_every_field() -> None:
    plan = recipe.Recipe()
    marks = {recipe.fingerprint(part, seed) for part in (plan.target, plan.draft, plan.encoder, plan.scaled(0.5).target)
             for seed in (1, 2)}
    assert len(marks) == 8
    assert recipe.fingerprint(plan.target, 1) == recipe.fingerprint(recipe.TargetRecipe(), 1)
    assert plan.scaled(0.0001).target.steps == len(plan.target.stages)


def test_batches_are_what_the_recipe_says() -> None:
    made = batches.Batches(arrays(), 32, 10, 0.15, (1, 2))
    counts = np.array([made.counts(step) for step in range(200)])
    assert (counts.sum(1) == 10).all()
    assert (counts[:, 0] >= 5).all(), "the library is at least half of each batch"
    assert counts[:, 2].sum() == 300, "15 % are copies"
    rows = made.step(7)
    assert rows.shape == (10, 33)
    assert np.array_equal(rows, batches.Batches(arrays(), 32, 10, 0.15, (1, 2)).step(7)), "a resumed run is the same"
    assert not np.array_equal(rows, made.step(8))
    assert (np.diff(rows) == 1).all(), "windows are whole"
    origin = [(row < 10_000).all() + 2 * (row >= 50_000).all() for row in rows]
    assert [origin.count(1), origin.count(0), origin.count(2)] == list(made.counts(7))


def test_epochs_see_everything_once() -> None:
    epochs = batches.Epochs(np.arange(1000), 30, (5,))
    for epoch in range(3):
        starts = np.sort([epochs.window(epoch * epochs.count + i)[0] for i in range(epochs.count)])
        assert (np.diff(starts) == 30).all(), "pieces of an epoch neither overlap nor leave a gap"
    phases = {int(epochs.window(epoch * epochs.count)[0]) % 30 for epoch in range(20)}
    assert len(phases) > 5, "every epoch cuts elsewhere"
    with pytest.raises(ValueError, match="does not fit a stream of 20"):
        batches.Epochs(np.arange(20), 30, (5,))


def test_shuffled_rows_see_everything_once() -> None:
    seen = np.concatenate([batches.shuffled(10, 4, step, (3,)) for step in range(10)]).reshape(4, 10)
    assert (np.sort(seen) == np.arange(10)).all(), "every epoch, over the borders of steps too"
    assert len({tuple(epoch) for epoch in seen}) == 4
    assert np.array_equal(batches.shuffled(10, 4, 2, (3,)), seen.ravel()[8:12]), "a step needs no earlier one"


def wanted_follower(text: list[int], last: int, least: int) -> int:
    """By the definition."""
    def match(place: int) -> int:
        count = 0
        while count < followers.MOST and count <= place and text[place - count] == text[last - count]:
            count += 1
        return count

    best = max(range(last), key=lambda place: (match(place), place), default=-1)
    return best + 1 if best >= 0 and match(best) >= least and text[best + 1] == text[last + 1] else -1


@pytest.mark.parametrize("least", [1, 2, 5])
def test_followers_are_those_of_the_definition(least: int) -> None:
    random = np.random.default_rng(4)
    texts = np.stack([
        random.integers(0, 2, 60), random.integers(0, 9, 60), np.tile(random.integers(0, 99, 20), 3),
        np.full(60, 7), np.arange(60)]).astype(np.uint16)
    found = followers.followers(texts, least)
    wanted = [[wanted_follower(row, last, least) for last in range(59)] for row in texts.tolist()]
    assert found.tolist() == wanted
    assert found[2, 19 + least:].tolist() == list(range(least, 40)), "a repeated text follows itself"
    assert (found[4] == -1).all(), "nothing stands twice"


def test_windows_of_copies_hold_both_functions() -> None:
    one = arrays()
    pairs = batches.Pairs(one, 40, (1,))
    starts = set((one.starts[:-1] + 50_000).tolist())
    for index in range(100):
        window = pairs.window(index)
        begin = int(window[0]) - 50_000
        assert begin + 50_000 in starts
        assert one.starts[np.searchsorted(one.starts, begin) + 1] - begin <= 40


def test_acceptance_by_place() -> None:
    row = np.array([1, 1, 0, 0, 1, 0, 1, 1, 1, 1], dtype=bool)
    assert yardstick.accepted_runs(row, 3) == [(3, 2), (3, 0), (3, 1), (3, 3)]
    assert yardstick.acceptance_by_place([row], 3) == [3 / 4, 2 / 3, 1 / 2]
    assert yardstick.tokens_per_step([row], 3) == 10 / 4
    assert yardstick.accepted_runs(np.ones(7, dtype=bool), 3) == [(3, 3), (3, 3)], "the target adds one to each step"
    assert yardstick.tokens_per_step([np.zeros(5, dtype=bool)], 4) == 1.0


def test_loss_by_position() -> None:
    nats = np.tile(np.arange(64, dtype=float), 3)
    bins = yardstick.by_position(np.concatenate((nats, [99.0])), 64)
    assert [(first, end) for first, end, _ in bins] == [(0, 16), (16, 32), (32, 64)]
    assert [mean for *_, mean in bins] == [7.5, 23.5, 47.5]


def test_lengths_of_files_add_up() -> None:
    documents = [("a.py", "x = 1\n" * 30), ("b.py", "def f(value):\n    return value\n" * 9)]
    words = tokenizer.train_tokenizer([text for _, text in documents], vocab_size=300)
    vocab = words.get_vocab_size()
    weights = np.random.default_rng(2).standard_normal((vocab, vocab)).astype(np.float32)
    found = measure.lengths(words, documents, lambda ids: weights[ids], 16)
    sizes = [len(text) for _, text in documents]
    bits = sum(found["files"][path] * size for (path, _), size in zip(documents, sizes))
    assert found["bits_per_byte"] == pytest.approx(bits / sum(sizes))
    nats = yardstick.token_nats(lambda ids: weights[ids], tokenizer.token_stream(words, documents[:1]), 16)
    assert found["files"]["a.py"] == pytest.approx(nats.sum() / np.log(2) / sizes[0]), "a file ends with its <eos>"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    shape = export.ModelShape(hidden_size=16, intermediate_size=32, num_layers=3, num_heads=2, head_dim=8,
                              vocab_size=64, max_positions=48, activation="relu2")
    random = np.random.default_rng(6)
    folder = tmp_path_factory.mktemp("tiny")
    weights = {name: random.standard_normal(size).astype(np.float32) for name, size in shape.weight_shapes().items()}
    export.save_checkpoint(folder, shape, weights)
    one = replace(shape, num_layers=1)
    export.save_checkpoint(folder / "one", one, {name: weights[name] for name in one.weight_shapes()})
    return folder


def test_exit_of_the_last_layer_is_the_model(tiny) -> None:
    windows = np.random.default_rng(7).integers(0, 64, (2, 20))
    shares = measure.exit_agreement(load_network(tiny), windows)
    assert len(shares) == 3
    assert shares[-1] == 1.0
    rows = Rows.ragged(windows.tolist(), [0, 0])
    first, whole = (FloatInterpreter(network).forward(rows, Cache(network.graph)).argmax(-1)
                    for network in (load_network(tiny / "one"), load_network(tiny)))
    assert shares[0] == (first == whole).mean()


def test_greedy_text_is_the_interpreter_s(tiny) -> None:
    calibration = np.random.default_rng(8).integers(0, 64, (4, 32))
    network = quantize_network(load_network(tiny), calibration, Options(group=0)).network
    prompt = [3, 1, 4, 1, 5]
    text = measure.greedy(network, prompt, 10)
    whole = IntegerInterpreter(network).forward(Rows.chain(prompt + text), Cache(network.graph)).argmax(-1)
    assert text == whole[4:14].tolist()
    assert len(measure.greedy(network, prompt, 100)) == 48 - 5, "the context ends it"


def test_folds_share_no_file_and_have_every_class() -> None:
    words = tokenizer.train_tokenizer(["a = 1\n"], vocab_size=258)
    documents = [(f"{name}/m{i}.py", f"{name} = {i}\n" * 40) for name in folds.CLASSES for i in range(8)]
    documents += [("email.py", "x = 1\n" * 99), ("json/a.py", "x = 1\n" * 99), ("email/tiny.py", "x\n")]
    files = folds.label(words, documents, 4, 32)
    assert len(files) == 56
    assert {(file.label, file.fold) for file in files} == {(label, fold) for label in range(7) for fold in range(4)}
    assert [file.path for file in folds.label(words, documents[::-1], 4, 32)] == [file.path for file in files]
    rows, labels = folds.windows_of(files, 32)
    assert (rows[:, 0] == tokenizer.EOS_ID).all()
    assert rows.shape == (len(labels), 32)


def test_naive_bayes_learns_which_tokens_are_whose() -> None:
    random = np.random.default_rng(9)
    labels = random.integers(0, 7, 700)
    rows = np.where(random.random((700, 30)) < 0.3, 10 * labels[:, None] + random.integers(0, 10, (700, 30)),
                    random.integers(0, 80, (700, 30)))
    found = folds.naive_bayes((rows[:500], labels[:500]), rows[500:], 80)
    assert (found == labels[500:]).mean() > 0.95
    shuffled = folds.naive_bayes((rows[:500], random.permutation(labels[:500])), rows[500:], 80)
    assert (shuffled == labels[500:]).mean() < 0.4


def test_teacher_is_a_bigram_model_of_each_class() -> None:
    """Against sums in plain Python."""
    random = np.random.default_rng(11)
    files = [folds.Labelled(f"{i}", random.integers(0, 8, 40), i % len(folds.CLASSES), 0) for i in range(21)]
    windows = random.integers(0, 8, (3, 12))
    found = teacher.score(teacher.evidence(files, 8), windows)
    for row, window in enumerate(windows.tolist()):
        wanted = np.zeros(len(folds.CLASSES))
        for index in range(len(folds.CLASSES)):
            pairs = [pair for file in files if file.label == index
                     for pair in zip(file.tokens.tolist(), file.tokens.tolist()[1:])]
            seconds = [b for _, b in pairs]
            for a, b in zip(window[1:], window[2:]):
                unigram = (seconds.count(b) + 1) / (len(seconds) + 8)
                first = sum(one == a for one, _ in pairs)
                wanted[index] += np.log((pairs.count((a, b)) + teacher.BACKING * unigram) / (first + teacher.BACKING))
        np.testing.assert_allclose(found[row], wanted - wanted.mean(), rtol=1e-4, atol=1e-4)


def test_page_has_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled from numbers, and with what is said where none are."""
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "MODELS", tmp_path)
    (tmp_path / "results").mkdir()
    for name, part in report.PARTS.items():
        assert "ot yet trained" in part(), name
    lengths = {"bits_per_byte": 1.1, "mean_of_files": 1.2, "files": {"a.py": 1.3}, "nats_by_position": [(0, 16, 2.5)]}
    keys = [f"target, {kind}, {chosen}, {window}" for kind in ("float", "int8") for chosen in ("held_out", "second")
            for window in (256, 1024)]
    keys += [f"target, int4 {method}, held_out, 256" for method in ("nearest", "second-order")]
    numbers = {key: lengths for key in keys if key != "target, int8, second, 1024"} | {
        "context": 1024, "exits": {"windows": 4, "agreement": [0.5, 1.0]},
        "texts": {"new_tokens": 8, "prompts": 2, "distinct_4grams": [0.5, 0.9], "distinct_4grams_median": 0.7,
                  "agreement": 0.66, "acceptance": {"8": [0.7, 0.6]}},
        "copies": {"reproduced": 3, "functions": 4, "like": 0.8}}
    (tmp_path / "results" / "models.json").write_text(json.dumps(numbers))
    page = report.quality()
    (tmp_path / "results" / "encoder.json").write_text(json.dumps({
        "folds": [{"fold": 0, "files": 2, "windows": 8, "right": 6, "naive_bayes_right": 4, "teacher_right": 7}],
        "accuracy": 0.75, "naive_bayes": 0.5, "teacher": 0.875, "parameters": 1234, "unseen_files": ["a.py", "b.py"],
        "int8_right": 5}))
    line = {"stage": "copying", "step": 10, "copied": 0.61, "wanted": 0.52, "looks": 0.33, "calibration": 2.171}
    without = {name: value for name, value in line.items() if name != "looks"}
    (tmp_path / "results" / "training.json").write_text(json.dumps({
        "stages": {"copying": {"before": [[1, 7, 1], [2, 4, 8]], "behind": [[5, 3]], "seconds": 120, "resumed": 1,
                               "calibration": 2.1234, "copied": 0.789}},
        "log": [line, {"stage": "copying", "step": 5}, {**without, "step": 20}]}))
    said = " ".join(report.copying().split())
    assert "1.7 at 1, 2.4 at 8; to tokens after matches: 5.3" in said
    assert "| 10 | 0.61 | 0.52 | 0.33 | 2.171 |" in said
    assert "| 20 | 0.61 | 0.52 | no guidance | 2.171 |" in said
    assert "The finished target has a similarity of 0.79 and a loss on text of 2.123. 2 min, resumed 1 times" in said
    (tmp_path / "results" / "training.json").unlink()
    said = report.encoder()
    assert "| 1 | 2 | 8 | 75.0% | 50.0% | 87.5% |" in said
    assert "75.0% of their windows correctly in float, 62.5% in int8" in " ".join(said.split())
    for said in ("1.1000", "66.0%", "3 of 4", "| 50.0% | 100.0% |", "| a.py | 1.300 | 1.300 |"):
        assert said in page
