"""Comparisons with torch: `make parity`. The networks that are trained are those that are quantised, resuming changes
nothing, and what is saved has Hugging Face's names."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Rope
from gemmule.compiler.quantize.accuracy import predictor
from gemmule.sw.limits import DEFAULT
from gemmule.sw.training import recipe, running
from gemmule.sw.training.data import folds, followers, requests, tokenizer
from gemmule.sw.training.data.prepare import Arrays
from gemmule.sw.training.networks import (
    bert,
    building,
    distillation,
    export,
    guidance,
    heads,
    model,
    muon,
    optimizers,
    student,
)
from gemmule.sw.training.networks import trained as networks
from gemmule.sw.training.stages import answers, copying, copying_recipe, draft, encoder, target

pytestmark = pytest.mark.parity

SHAPE = export.ModelShape(hidden_size=32, intermediate_size=64, num_layers=3, num_heads=2, head_dim=16, vocab_size=64,
                          max_positions=300)
STAGES = (recipe.Stage(context=16, rows=4, micro=2, steps=4, most_left_out=0.6),
          recipe.Stage(context=32, rows=2, micro=1, steps=3, most_left_out=0.2))
PLACE = running.open_place(1, compiled=False)
torch.set_num_threads(1)


def arrays() -> Arrays:
    random = np.random.default_rng(1)
    starts = np.arange(0, 2001, 10)
    return Arrays(**{name: random.integers(2, 64, 2000) for name in ("library", "packages", "calibration", "copies")},
                  starts=starts)


def said_twice() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(2)
    bodies = [random.integers(2, 64, int(random.integers(5, 12))) for _ in range(200)]
    return [(np.concatenate(([1], body, [0])), body) for body in bodies]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> recipe.Recipe:
    for module in (target, copying, draft):
        monkeypatch.setattr(module, "load_arrays", lambda out: arrays())
    monkeypatch.setattr(copying, "load_requests", lambda out, tokenizer, seed: (said_twice(), said_twice()[:2]))
    monkeypatch.setattr(copying, "load_tokenizer", lambda path: None)
    monkeypatch.setattr(target, "JUDGED", 2)
    plan = recipe.TargetRecipe(shape=replace(SHAPE, activation="relu2"), stages=STAGES, exits=(1, 2), warm_up=2)
    drafts = recipe.DraftRecipe(candidates={"a": SHAPE, "b": replace(SHAPE, num_layers=1)}, prompt=8, kept=4, chunk=64,
                                pool_chunks=2, text_chunks=(2, 1), judged_rows=4, pool_rows=3, text_rows=2,
                                stages=((16, 2), (32, 2)))
    lessons = copying_recipe.CopyingRecipe(
        context=32, text_context=16, warm_up=1, exit=1, guided_rows=2, before=((0, 1), (0, 2)), behind=(2,),
        behind_heads=1, lessons=(
            copying_recipe.Lesson(steps=3, first=1.0, last=0.5, rows=4, text_rows=2, wanted_weight=1.0, share=0.25),
            copying_recipe.Lesson(steps=1, first=1.0, last=0.0, rows=2, text_rows=3, wanted_weight=2.0, guidance=0.0,
                                  share=0.75)))
    return recipe.Recipe(target=plan, copying=lessons, draft=drafts)


@pytest.mark.parametrize("activation", ["gelu_pytorch_tanh", "relu2"])
def test_torch_and_numpy_agree(tmp_path: Path, activation: str) -> None:
    """Over several blocks of queries; the cached path token by token too."""
    torch.manual_seed(2)
    shape = replace(SHAPE, activation=activation)
    network = model.LanguageModel(shape)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(3)
    export.save_checkpoint(tmp_path, shape, {
        name: weight.detach().numpy() for name, weight in network.named_parameters()})
    tokens = np.random.default_rng(3).integers(0, 64, (2, 2 * model.CHUNK + 17))
    wanted = predictor(load_network(tmp_path))(tokens)
    found = model.predictor(network)(tokens)
    assert np.abs(found - wanted).max() < 2e-3 * np.abs(wanted).max()
    with torch.no_grad():
        cache = network.cache(len(tokens), 150)
        logits = network.extend(torch.from_numpy(tokens[:, :140]), cache, 0)
        for at in range(140, 150):
            assert np.abs(logits.numpy() - wanted[:, at - 1]).max() < 2e-3 * np.abs(wanted).max()
            logits = network.extend(torch.from_numpy(tokens[:, at:at + 1]), cache, at)


def test_left_out_layers_do_nothing() -> None:
    torch.manual_seed(4)
    network, tokens = model.LanguageModel(SHAPE), torch.arange(20)[None]
    found = network.hidden(tokens, frozenset({1}))
    assert len(found) == 4
    assert found[2] is found[1]
    assert not torch.equal(found[3], found[2])


def test_greedy_rows_are_greedy() -> None:
    torch.manual_seed(5)
    network = model.LanguageModel(SHAPE)
    prompts = torch.randint(2, 64, (4, 6))
    text = model.generate(network, prompts, 20, torch.tensor([0.0, 1.0, 0.0, 1.0]), 7)
    best = model.predictor(network)(text.numpy()).argmax(-1)
    for row in (0, 2):
        assert (best[row, 5:-1] == text[row, 6:].numpy()).all()
    assert not (best[1, 5:-1] == text[1, 6:].numpy()).all()


def test_resumed_target_is_the_same(tmp_path: Path, small: recipe.Recipe) -> None:
    """Stopped after every number of steps, also between stages; and the log has each step once."""
    for stop in (0, 1, 4, 5):
        out = tmp_path / str(stop)
        out.mkdir()
        if stop:
            assert target.train_target(small, out, PLACE, most_steps=stop) is None
        done = target.train_target(small, out, PLACE)
        assert done is not None
        assert done["resumed"] == (1 if stop else 0)
        assert done["tokens"] == small.target.tokens
        assert (out / "pretrained" / "model.safetensors").read_bytes() == (
            tmp_path / "0" / "pretrained" / "model.safetensors").read_bytes()
        steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
        assert steps == sorted(set(steps))
    with pytest.raises(ValueError, match="another recipe or seed"):
        target.train_target(replace(small, seed=9), tmp_path / "0", PLACE)


def test_resumed_lessons_are_the_same(tmp_path: Path, small: recipe.Recipe) -> None:
    """Begun with weights that are given and with those of the stage before, stopped on the way."""
    for stop in (0, 1, 3):
        out = tmp_path / str(stop)
        out.mkdir()
        target.train_target(small, out, PLACE)
        if stop:
            assert copying.teach_copying(small, out, PLACE, most_steps=stop) is None
        given = export.load_checkpoint(out / "pretrained", small.target.shape) if stop == 3 else None
        done = copying.teach_copying(small, out, PLACE, given)
        assert done is not None
        assert (done["resumed"], done["tokens"]) == (int(stop > 0), 3 * (4 * 32 + 2 * 16) + 2 * 32 + 3 * 16)
        assert (out / "target" / "model.safetensors").read_bytes() == (
            tmp_path / "0" / "target" / "model.safetensors").read_bytes()
    other = {name: weight + 1 for name, weight in export.load_checkpoint(out / "target", small.target.shape).items()}
    with pytest.raises(ValueError, match="another recipe or seed"):
        copying.teach_copying(small, out, PLACE, other)


def test_the_finished_target_is_a_mean(tmp_path: Path, small: recipe.Recipe) -> None:
    """Of the weights at the ends of lessons, by their shares; without shares it is what the last step left."""
    start = {name: weight.detach().numpy() for name, weight in model.LanguageModel(small.shape).named_parameters()}
    whole = replace(small, copying=replace(small.copying, lessons=tuple(
        replace(lesson, share=0.0) for lesson in small.copying.lessons)))
    done = {}
    for name, plan in (("mean", small), ("first", whole), ("last", whole)):
        (tmp_path / name).mkdir()
        done[name] = copying.teach_copying(plan, tmp_path / name, PLACE, start, 3 if name == "first" else None)
    first = torch.load(tmp_path / "first" / "copying.pt", weights_only=True)["model"]
    last, found = (export.load_checkpoint(tmp_path / name / "target", small.shape) for name in ("last", "mean"))
    for name, weight in found.items():
        np.testing.assert_allclose(weight, 0.25 * first[name].numpy() + 0.75 * last[name], rtol=1e-5, atol=1e-7)
        assert not np.array_equal(weight, last[name])
    finished = model.LanguageModel(small.shape)
    finished.load_state_dict({name: torch.from_numpy(weight) for name, weight in found.items()})
    told = target.judge(finished, target.judged_windows(arrays()), PLACE)
    assert done["mean"]["calibration"] == told != done["last"]["calibration"], "of the mean"


def test_heads_are_those_that_look_there_or_are_not_missed() -> None:
    """By the definition, in a network of random weights that is left as it was."""
    shape = replace(SHAPE, num_heads=4, head_dim=16, hidden_size=64)
    torch.manual_seed(16)
    network = model.LanguageModel(shape)
    tokens, places = torch.randint(2, 64, (2, 30)), torch.full((2, 30), -1)
    places[:, 20:] = torch.arange(20, 30) - 9
    with torch.no_grad():
        network.model.layers[0].self_attn.o_proj.weight.mul_(30)
    plan = copying_recipe.CopyingRecipe(before=((0, 1), (0, 2), (1, 3)), behind=(1, 2), behind_heads=2)
    text, before = torch.randint(2, 64, (2, 31)), [weight.clone() for weight in network.parameters()]
    found = heads.choose_heads(network, plan, tokens, places, text, PLACE)
    assert all(torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True))
    missed = []
    for head in range(4):
        without = copy.deepcopy(network)
        with torch.no_grad():
            without.model.layers[0].self_attn.o_proj.weight[:, 16 * head:16 * head + 16] = 0
            with running.autocast(PLACE):
                missed.append(float(without.cross_entropy(without.hidden(text[:, :-1])[-1], text[:, 1:])))
    states = network.hidden(tokens)
    looks = guidance.look_losses(guidance.head_scores(network, 0, states[0]), guidance.before(places, 1))
    nearest = int(looks.argmin())
    assert found.before[0] == (0, nearest, 1)
    assert found.before[1] == (0, min({0, 1, 2, 3} - {nearest}, key=missed.__getitem__), 2)
    assert [head[0] for head in found.behind] == [1, 1, 2, 2]
    for layer in (1, 2):
        looks = guidance.look_losses(guidance.head_scores(network, layer, states[layer]), places)
        assert {head for number, head in found.behind if number == layer} == set(looks.argsort()[:2].tolist())
    total = heads.heads_loss(network, found, states, places)
    near = [guidance.look_losses(guidance.head_scores(network, layer, states[layer], [head]),
                                 guidance.before(places, distance))
            for layer, head, distance in found.before]
    behind = [guidance.look_losses(guidance.head_scores(network, *head[:1], states[head[0]], [head[1]]), places)
              for head in found.behind]
    assert torch.allclose(total, torch.cat(near).mean() + torch.cat(behind).mean())


def test_slips_are_in_what_is_wanted_alone() -> None:
    windows = requests.Requests(said_twice(), 64, (1,)).step(3, 6)
    read = copying.read_of(windows, 0.5, np.random.default_rng(4)).numpy()
    other = read != windows.tokens[:, :-1]
    assert 0.3 < other[:, 1:][windows.wanted[:, :-1]].mean() < 0.5
    assert not other[:, 1:][~windows.wanted[:, :-1]].any()
    assert (copying.read_of(windows, 0.0, np.random.default_rng(4)).numpy() == windows.tokens[:, :-1]).all()


def test_a_step_learns(small: recipe.Recipe) -> None:
    """The same windows over and over: loss and exit loss fall."""
    plan = small.target
    torch.manual_seed(6)
    network = model.LanguageModel(plan.shape)
    optimizers = target.Optimizers(network, 0.02, 3e-3, PLACE.products)
    windows = torch.randint(2, 64, (4, 17))
    losses = []
    for step in range(60):
        loss, exits = target.gradients(network, plan, STAGES[0], windows, 0, step, PLACE)
        losses.append((loss, exits["exit 1"]))
        optimizers.step(1.0)
    assert np.mean(losses[-10:], axis=0)[0] < 0.5 * losses[0][0]
    assert np.mean(losses[-10:], axis=0)[1] < 0.7 * losses[0][1]


def test_drafts_learn_the_target(tmp_path: Path, small: recipe.Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "choice_table", lambda plan, shape, judged: [
        {"shape": name, "speedup": float(name == "b"), "agreement": float(np.concatenate(rows).mean())}
        for name, rows in judged.items()])
    monkeypatch.setattr(draft, "print_table", lambda rows: None)
    target.train_target(small, tmp_path, PLACE)
    copying.teach_copying(small, tmp_path, PLACE)
    record = draft.train_drafts(small, tmp_path, PLACE)
    assert record["chosen"] == "b"
    assert len(load_network(tmp_path / "draft").graph.attentions) == 1
    first = (tmp_path / "draft" / "model.safetensors").read_bytes()
    (tmp_path / "drafts.pt").unlink()
    draft.train_drafts(small, tmp_path, PLACE)
    assert (tmp_path / "draft" / "model.safetensors").read_bytes() == first
    pool = load_file(next(tmp_path.glob("answers-*")) / "pool_001.safetensors")
    assert pool["tokens"].shape == (4, 17)
    assert len(np.unique(pool["tokens"][:, 8:], axis=0)) > 2
    with pytest.raises(ValueError, match="another recipe or seed"):
        draft.train_drafts(replace(small, seed=9), tmp_path, PLACE)
    with pytest.raises(ValueError, match="does not fit its shape"):  # the first candidate is another one
        draft.train_drafts(small, tmp_path, PLACE, start=export.load_checkpoint(tmp_path / "draft",
                                                                               small.draft.candidates["b"]))


@pytest.fixture
def shipped(tmp_path: Path, small: recipe.Recipe, monkeypatch: pytest.MonkeyPatch) -> recipe.Recipe:
    """A pair below ``models``, what ``docs`` tells of it, and a recipe for it."""
    words = tokenizer.train_tokenizer(["def f(value):\n    return value + 1\n" * 9], vocab_size=280)
    shape = replace(SHAPE, vocab_size=words.get_vocab_size(), activation="relu2")
    results = tmp_path / "docs" / "results"
    torch.manual_seed(11)
    weights = {name: weight.detach().numpy() for name, weight in model.LanguageModel(shape).named_parameters()}
    for name in ("target", "draft"):
        export.save_checkpoint(tmp_path / name, shape, weights)
    floats = {name: load_network(tmp_path / name) for name in ("target", "draft")}
    networks.write_networks(words, floats, tmp_path / "models" / DEFAULT, arrays().calibration[None, :64], 1)
    export.write_json(results / "training.json", {
        "recipe": {"seed": 1}, "stages": {"target": {}, "draft": {}},
        "log": [{"stage": "target", "step": 1}, {"stage": "draft", "step": 99}]})
    export.write_json(results / "models.json", {
        "files": {"target": "kept"}, "seconds": {}, "exits": 1, "texts": {}, "draft, int8, held_out, 256": 1})
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps({"sha256": "0", "prompts": [{"text": "def f(value):\n"}]}))
    monkeypatch.setattr(draft, "PROMPTS", prompts)
    for module in (draft, copying):
        monkeypatch.setattr(module, "prepare", lambda out, seed: {})
        monkeypatch.setattr(module, "calibration_windows", lambda out, positions, seed: arrays().calibration[None, :64])
    monkeypatch.setattr(draft, "choice_table", lambda plan, shape, judged: [{"shape": "b", "speedup": 1.0}])
    monkeypatch.setattr(draft, "print_table", lambda rows: None)
    return replace(small, target=replace(small.target, shape=shape), draft=replace(
        small.draft, candidates={"b": replace(shape, num_layers=1)}))


def changed(pair: Path, before: dict[str, bytes]) -> set[str]:
    return {path.name for path in pair.iterdir() if path.read_bytes() != before[path.name]}


def test_draft_of_the_shipped_target(tmp_path: Path, shipped: recipe.Recipe) -> None:
    """Its draft is replaced and told of; the target's file stays as it is."""
    out, pair, docs = tmp_path / "train", tmp_path / "models" / DEFAULT, tmp_path / "docs"
    before = {path.name: path.read_bytes() for path in pair.iterdir()}
    draft.replace_shipped(shipped, out, tmp_path / "models", docs, PLACE)
    assert changed(pair, before) == {"draft.safetensors", "manifest.json"}
    assert len(load_model(pair / "draft.safetensors").network.graph.attentions) == 1
    done, found = (json.loads((docs / "results" / name).read_text()) for name in ("training.json", "models.json"))
    assert done["stages"]["draft"]["chosen"] == "b"
    assert done["stages"]["draft"]["began_with"] is None
    assert [line["step"] for line in done["log"]] == [1, 4]
    assert found["files"].keys() == {"target", "draft", "draft in float"}
    assert found["texts"]["prompts"] == found["exits"] == 1
    assert "draft, int8, held_out, 256" not in found
    first = (pair / "draft.safetensors").read_bytes()
    with pytest.raises(ValueError, match="another recipe or seed"):  # a checkpoint that began with nothing
        draft.replace_shipped(shipped, out, tmp_path / "models", docs, PLACE, pair / "draft.safetensors")
    (out / "drafts.pt").unlink()
    draft.replace_shipped(shipped, out, tmp_path / "models", docs, PLACE, pair / "draft.safetensors")
    assert (pair / "draft.safetensors").read_bytes() != first
    done = json.loads((docs / "results" / "training.json").read_text())
    assert len(done["stages"]["draft"]["began_with"]) == 64
    (out / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the bundled target's"):
        draft.replace_shipped(shipped, out, tmp_path / "models", docs, PLACE)


def test_shipped_target_is_taught(tmp_path: Path, shipped: recipe.Recipe) -> None:
    """It is replaced and told of; the draft's file stays as it is, and theta is that of what is taught."""
    out, pair, docs = tmp_path / "train", tmp_path / "models" / DEFAULT, tmp_path / "docs"
    before = {path.name: path.read_bytes() for path in pair.iterdir()}
    start = tmp_path / "start.safetensors"
    start.write_bytes(before["target.safetensors"])
    copying.replace_shipped(shipped, out, start, tmp_path / "models", docs, PLACE)
    assert changed(pair, before) == {"target.safetensors", "manifest.json"}
    for graph in (load_network(out / "target").graph, load_model(pair / "target.safetensors").network.graph):
        assert {node.theta for node in graph.nodes if isinstance(node, Rope)} == {1e6}
    done = json.loads((docs / "results" / "training.json").read_text())
    assert done["recipe"].keys() == {"seed", "copying"}
    assert done["stages"]["copying"]["steps"] == 4
    assert len(done["stages"]["copying"]["before"]) == 2
    assert {line["stage"] for line in done["log"]} == {"target", "draft", "copying"}
    wrong = replace(shipped, target=replace(shipped.target, shape=replace(shipped.shape, num_layers=2)))
    with pytest.raises(ValueError, match="does not fit its shape"):
        copying.replace_shipped(wrong, out, start, tmp_path / "models", docs, PLACE)


def test_answers_are_the_teachers() -> None:
    """To texts that it writes and to texts that it reads, the same answers; where it is greedy it writes its best."""
    torch.manual_seed(8)
    teacher, prompts = model.LanguageModel(SHAPE), np.random.default_rng(8).integers(2, 64, (4, 9))
    told = answers.written(teacher, prompts, 20, np.array([0, 1, 0, 1], np.float32), 3, 5, PLACE)
    text = told.tokens.astype(np.int64)
    assert (text[:, :9] == prompts).all()
    assert told.words.shape == told.logs.shape == (4, 11, 5)
    for row in (0, 2):
        assert (told.words[row, :, 0] == text[row, 9:]).all()
    read = answers.answered(teacher, text, 5, PLACE)
    assert read.words.shape == (4, 19, 5)
    assert np.abs(read.logs[:, 8:].astype(float) - told.logs.astype(float)).max() < 0.02
    logs = torch.log_softmax(teacher(torch.from_numpy(text[:, :-1])), -1).detach().numpy()
    assert np.abs(np.take_along_axis(logs, read.words.astype(np.int64), -1) - read.logs).max() < 0.02
    assert (np.diff(read.logs.astype(float), axis=-1) <= 0).all()


def test_answers_that_are_kept_are_read(tmp_path: Path) -> None:
    made = []

    def make(chunk: int) -> answers.Answers:
        made.append(chunk)
        return answers.Answers(np.full((2, 4), chunk, np.uint16), np.full((2, 3, 1), chunk, np.uint16),
                               np.full((2, 3, 1), chunk, np.float16))

    answers.kept(tmp_path, "a", 2, make)
    found = answers.kept(tmp_path, "a", 3, make)
    assert made == [0, 1, 2]
    assert found.tokens[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert found.rows(np.array([5, 0])).logs[:, 0, 0].tolist() == [2, 0]


def test_loss_and_its_gradient_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several parts; against automatic differentiation in float32, up to bfloat16 products."""
    monkeypatch.setattr(distillation, "PART", 64)
    torch.manual_seed(8)
    x, head = torch.randn(150, 16, requires_grad=True), torch.randn(40, 16, requires_grad=True)
    logs, words = torch.log_softmax(2 * torch.randn(150, 40), -1).topk(6, -1)
    found = distillation.answer_loss(x, head, words, logs, 0.5, torch.bfloat16)
    slopes = torch.autograd.grad(2 * found, (x, head))
    rest = (1 - logs.exp().sum(-1, keepdim=True)) / 40
    wanted = rest.expand(-1, 40).scatter_add(-1, words, logs.exp())
    q = torch.log_softmax(x @ head.T, -1)
    loss = -(wanted * q).sum(-1).mean() - 0.5 * q.gather(-1, words[:, :1]).mean()
    assert found.item() == pytest.approx(loss.item(), rel=5e-3)
    for slope, exact in zip(slopes, torch.autograd.grad(2 * loss, (x, head)), strict=True):
        assert (slope - exact).norm() < 0.02 * exact.norm()


def test_guidance_is_how_far_heads_look_elsewhere() -> None:
    """By the definition, with the attention that the network itself computes."""
    torch.manual_seed(12)
    network = model.LanguageModel(replace(SHAPE, num_layers=2))
    tokens = torch.from_numpy(np.tile(np.random.default_rng(13).integers(2, 64, 9), (2, 3)))
    places = torch.full((2, 27), -1)
    places[:, 12:] = torch.arange(12, 27) - 8
    states = network.hidden(tokens)
    cos, sin = network._angles(0, 27)
    wanted = []
    for layer, x in zip(network.model.layers, states, strict=False):
        q, k, _ = layer.self_attn.heads(layer.input_layernorm(x), cos, sin)
        scores = q @ k.transpose(-1, -2) / 4
        wanted.append(-torch.log_softmax(scores.masked_fill(torch.ones(27, 27).triu(1) > 0, -1e30), -1))
    before = [wanted[0][:, head, head + 1:, :].diagonal(0, -2, -1).mean() for head in range(2)]
    behind = torch.stack([wanted[1][:, :, i, i - 8] for i in range(12, 27)]).mean()
    found = guidance.guidance_loss(network, states, places)
    assert torch.allclose(found, (torch.stack(before).mean() + behind) / 2, rtol=1e-4)


@pytest.mark.parametrize("shape", [(24, 24), (8, 40), (40, 8)])
def test_muon_is_that_of_torch(shape: tuple[int, int]) -> None:
    """In bfloat16 bit for bit; in float32 up to its rounding. Three steps, the last after another rate."""
    torch.manual_seed(17)
    start, found = torch.randn(shape), []
    for products in (None, torch.bfloat16, torch.float32):
        weight = torch.nn.Parameter(start.clone())
        kind: torch.optim.Optimizer = torch.optim.Muon([weight], lr=0.05, weight_decay=0.01, momentum=0.95) \
            if products is None else muon.Muon([weight], lr=0.05, weight_decay=0.01, momentum=0.95, products=products)
        for step in range(3):
            weight.grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
            kind.param_groups[0]["lr"] = 0.05 / (1 + step // 2)
            kind.step()
        found.append(weight.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert (found[0] - found[2]).norm() < 0.03 * (found[0] - start).norm()


def test_guided_heads_look_where_they_are_told() -> None:
    """Texts of random tokens said twice, on which nothing else can be learnt."""
    torch.manual_seed(14)
    network = model.LanguageModel(replace(SHAPE, num_layers=2, rope_theta=1e6))
    learning, random, losses = optimizers.Optimizers(network, 0.02, 4e-3, PLACE.products), np.random.default_rng(15), []
    for _ in range(150):
        tokens = np.tile(random.integers(2, 64, (8, 20)), (1, 2))
        places = torch.from_numpy(followers.followers(tokens.astype(np.uint16), 2))
        states = network.hidden(torch.from_numpy(tokens[:, :-1]))
        loss = guidance.guidance_loss(network, states, places)
        loss.backward()
        learning.step(1.0)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_encoder_has_the_names_of_bert() -> None:
    plan = recipe.EncoderRecipe(hidden=32, layers=2, heads=2, inner=64, window=16)
    torch.manual_seed(9)
    network = bert.Bert(plan)
    names = {name for name, _ in network.named_parameters()}
    layer = "bert.encoder.layer.1."
    assert {"bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
            "bert.embeddings.token_type_embeddings.weight", "bert.embeddings.LayerNorm.bias",
            layer + "attention.self.query.bias", layer + "attention.output.dense.weight",
            layer + "attention.output.LayerNorm.weight", layer + "intermediate.dense.weight",
            layer + "output.dense.bias", layer + "output.LayerNorm.weight", "bert.pooler.dense.weight",
            "classifier.weight"} <= names
    assert len(names) == 5 + 16 * 2 + 2 + 2
    tokens = torch.randint(2, tokenizer.VOCAB_SIZE, (3, 16))
    found = encoder.classify(network, tokens.numpy())
    assert found.shape == (3,)


def test_encoder_equals_a_plain_loop() -> None:
    """Post-norm, erf GELU, first token pooled: in numpy, from the tensors alone."""
    plan = recipe.EncoderRecipe(hidden=16, layers=2, heads=2, inner=32, window=8)
    torch.manual_seed(10)
    network = bert.Bert(plan).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    w = {name: value.numpy().astype(np.float64) for name, value in network.state_dict().items()}
    tokens = np.array([1, 70, 3, 9, 9, 500, 2, 8])

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + bert.EPSILON) * w[name + ".weight"] + w[
            name + ".bias"]

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    erf = np.vectorize(__import__("math").erf)
    at = "bert.embeddings."
    x = norm(w[at + "word_embeddings.weight"][tokens] + w[at + "position_embeddings.weight"]
             + w[at + "token_type_embeddings.weight"][0], at + "LayerNorm")
    for index in range(plan.layers):
        at = f"bert.encoder.layer.{index}."
        q, k, v = (dense(x, f"{at}attention.self.{name}") for name in ("query", "key", "value"))
        heads = []
        for part in (slice(0, 8), slice(8, 16)):
            scores = q[:, part] @ k[:, part].T / np.sqrt(8)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(powers / powers.sum(-1, keepdims=True) @ v[:, part])
        x = norm(x + dense(np.concatenate(heads, -1), at + "attention.output.dense"), at + "attention.output.LayerNorm")
        inner = dense(x, at + "intermediate.dense")
        inner = 0.5 * inner * (1 + erf(inner / np.sqrt(2)))
        x = norm(x + dense(inner, at + "output.dense"), at + "output.LayerNorm")
    scores = dense(np.tanh(dense(x[0], "bert.pooler.dense")), "classifier")
    with torch.no_grad():
        found = network(torch.from_numpy(tokens)[None])[0].numpy()
    assert np.abs(found - scores).max() < 1e-4 * np.abs(scores).max() + 1e-4


def test_a_built_encoder_says_what_its_student_says() -> None:
    """Evidence of all pairs, added up: what each part of the network is for."""
    plan, random = recipe.EncoderRecipe(inner=48), np.random.default_rng(12)
    torch.manual_seed(12)
    made = student.Student(plan, tokenizer.VOCAB_SIZE)
    with torch.no_grad():
        made.vectors[:, :len(folds.CLASSES)] = torch.randn(tokenizer.VOCAB_SIZE, len(folds.CLASSES)) * 0.05
        for part in (made.before, made.down):
            part.weight.normal_(std=0.01)
    windows = np.pad(random.integers(2, tokenizer.VOCAB_SIZE, (24, plan.window - 1)), ((0, 0), (1, 0)),
                     constant_values=tokenizer.EOS_ID)
    with torch.no_grad():
        wanted = made(torch.from_numpy(windows[:, 1:-1]).flatten(), torch.from_numpy(windows[:, 2:]).flatten())
        sums = wanted.unflatten(0, (24, -1)).sum(1)
        found = building.build(plan, made)(torch.from_numpy(windows))
    assert float(torch.corrcoef(torch.stack((sums.flatten(), found.flatten())))[0, 1]) > 0.98
    assert float((sums.argmax(1) == found.argmax(1)).float().mean()) > 0.9


def test_positions_tell_the_token_before() -> None:
    code, turn = building.waves(128, 32)
    scores = code @ (code @ turn.T).T
    assert torch.equal(scores[1:].argmax(1), torch.arange(127))
    rows = building.padded(torch.randn(50, 9))
    assert torch.allclose(rows.mean(1), torch.zeros(50), atol=1e-5)
    assert torch.allclose(rows.norm(dim=1), rows.norm(dim=1)[:1].expand(50), atol=1e-4)


def test_student_learns_the_table(tmp_path: Path) -> None:
    random, plan = np.random.default_rng(13), recipe.EncoderRecipe(inner=32, vector=16, steps=200)
    table = np.einsum("ar,brc->abc", random.normal(size=(12, 2)), random.normal(size=(12, 2, 7))).astype(np.float32)
    made = student.fit(plan, (1, 0), table, np.ones((12, 12)), running.Log(tmp_path / "log.jsonl", "encoder"))
    first, second = np.divmod(np.arange(144), 12)
    with torch.no_grad():
        found = made(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    assert ((found - table.reshape(144, 7)) ** 2).mean() < 0.1 * (table ** 2).mean()


@pytest.mark.parametrize(("flags", "native"), [
    ("fpu sse2 avx2 fma", False), ("avx512f avx512bw", False), ("avx512f avx512_bf16", True),
    ("amx_bf16 amx_tile", True), ("fp asimd bf16 i8mm", True), ("", False)])
def test_products_are_what_the_processor_multiplies(flags: str, native: bool) -> None:
    """Bfloat16 by other instructions takes many times as long as float32."""
    assert running.multiplies_bfloat16(flags) == native
