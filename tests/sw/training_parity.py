"""Comparisons with torch: `make parity`. The networks that are trained are those that are quantised, resuming changes
nothing, and what is saved has Hugging Face's names."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gemmule.compiler.importers import load_network
from gemmule.compiler.quantize.accuracy import predictor
from gemmule.sw.training import (
    bert,
    building,
    draft,
    encoder,
    export,
    folds,
    model,
    recipe,
    running,
    student,
    target,
    tokenizer,
)
from gemmule.sw.training.prepare import Arrays

pytestmark = pytest.mark.parity

SHAPE = export.ModelShape(hidden_size=32, intermediate_size=64, num_layers=3, num_heads=2, head_dim=16, vocab_size=64,
                          max_positions=300)
STAGES = (recipe.Stage(context=16, rows=4, micro=2, steps=4, most_left_out=0.6),
          recipe.Stage(context=32, rows=2, micro=1, steps=3, most_left_out=0.2))
PLACE = running.Place(torch.device("cpu"), 1, False)
torch.set_num_threads(1)


def arrays() -> Arrays:
    random = np.random.default_rng(1)
    starts = np.arange(0, 2001, 10)
    return Arrays(**{name: random.integers(2, 64, 2000) for name in ("library", "packages", "calibration", "copies")},
                  starts=starts)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> recipe.Recipe:
    for module in (target, draft):
        monkeypatch.setattr(module, "load_arrays", lambda out: arrays())
    monkeypatch.setattr(target, "JUDGED", 2)
    plan = recipe.TargetRecipe(shape=replace(SHAPE, activation="relu2"), stages=STAGES, exits=(1, 2), warm_up=2)
    drafts = recipe.DraftRecipe(candidates={"a": SHAPE, "b": replace(SHAPE, num_layers=1)}, pool_rows=8, pool_prompt=8,
                                pool_tokens=24, judged_rows=4, rows=4, stages=((16, 2), (32, 2)))
    return recipe.Recipe(target=plan, draft=drafts)


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
        logits, cache = network.extend(torch.from_numpy(tokens[:, :140]), None)
        for at in range(140, 150):
            assert np.abs(logits.numpy() - wanted[:, at - 1]).max() < 2e-3 * np.abs(wanted).max()
            logits, cache = network.extend(torch.from_numpy(tokens[:, at:at + 1]), cache)


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
        assert (out / "target" / "model.safetensors").read_bytes() == (
            tmp_path / "0" / "target" / "model.safetensors").read_bytes()
        steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
        assert steps == sorted(set(steps))
    with pytest.raises(ValueError, match="another recipe or seed"):
        target.train_target(replace(small, seed=9), tmp_path / "0", PLACE)


def test_a_step_learns(small: recipe.Recipe) -> None:
    """The same windows over and over: loss and exit loss fall."""
    plan = small.target
    torch.manual_seed(6)
    network = model.LanguageModel(plan.shape)
    optimizers = target.Optimizers(network, 0.02, 3e-3)
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
    record = draft.train_drafts(small, tmp_path, PLACE)
    assert record["chosen"] == "b"
    assert len(load_network(tmp_path / "draft").graph.attentions) == 1
    first = (tmp_path / "draft" / "model.safetensors").read_bytes()
    (tmp_path / "drafts.pt").unlink()
    draft.train_drafts(small, tmp_path, PLACE)
    assert (tmp_path / "draft" / "model.safetensors").read_bytes() == first
    pool = np.load(tmp_path / "pool.npy")
    assert pool.shape[1] == 24
    assert len(np.unique(pool[:, 8:], axis=0)) > 4


def test_draft_of_the_target_itself_costs_only_its_entropy() -> None:
    torch.manual_seed(8)
    network, tokens = model.LanguageModel(SHAPE), torch.randint(2, 64, (2, 12))
    with torch.no_grad():
        wanted = torch.log_softmax(network(tokens).flatten(0, 1), -1)
        loss = draft.distillation_loss(network, tokens, wanted, wanted.argmax(-1), 0.5)
    assert loss.item() == pytest.approx(-0.5 * wanted.max(-1).values.mean().item(), rel=1e-4)


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
