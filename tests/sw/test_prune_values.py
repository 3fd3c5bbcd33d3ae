"""Values that no probability meets: one text by every method, the device's beside the interpreter's, what is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.files.model_file import save_model
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.pruned import Untimed, losses, pruned_cache
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import of_methods, some

from .test_cli import run
from .test_encode import MADE
from .test_prune_pages import TEXTS
from .test_pruned_runs import told

BASE = load_config("base")
VALUES = Pruning(values=40)
BOTH = Pruning(keep=0.5, every=16, last=16, whole=32, values=40)
NEW, LONG = 56, 110
"""Of a short text one piece has all values."""


def _prompts() -> list[list[int]]:
    return [bundled_pair("small").encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    pair = bundled_pair("small")
    with Session(BASE, pair=pair, pruning=VALUES) as plain, \
            Session(BASE, pair=pair, pruning=VALUES, general=True) as general, \
            Session(BASE, pair=pair, pruning=BOTH) as both:
        yield {"plain": plain, "general": general, "both": both}


@pytest.fixture(scope="module")
def by_ar(sessions: dict[str, Session]) -> Callable[[str, int], Generation]:
    """A session's text of a prompt by autoregressive decoding, decoded once."""
    return cache(lambda name, number: sessions[name].generate("ar", _prompts()[number], NEW))


@pytest.mark.parametrize("method", of_methods((
    name for name, one in METHODS.items()
    if one.drafts and one.common and not (one.needs_int4 or one.schedule)), ("suffix",)))
def test_every_method_decodes_the_same_text(
        sessions: dict[str, Session], by_ar: Callable[[str, int], Generation], method: str) -> None:
    name = "general" if METHODS[method].needs_general else "plain"
    for number, drafts in enumerate((1, 8)):
        found = sessions[name].generate(method, _prompts()[number], NEW, drafts)
        assert found.tokens == by_ar(name, number).tokens, drafts


@pytest.mark.parametrize("method", some(["draft", "pld"]))
def test_beside_a_selection(sessions: dict[str, Session], method: str) -> None:
    """Rows that are kept, and of these the values that a probability meets."""
    session, prompt = sessions["both"], _prompts()[0]
    plain = session.generate("ar", prompt, LONG)
    assert session.generate(method, prompt, LONG, 4).tokens == plain.tokens
    assert plain.pruned
    assert plain.pruned.selections > 3
    assert 0 < plain.pruned.saved < plain.pruned.rows * plain.pruned.row_bytes / 2


def test_sampled_text_is_the_same(sessions: dict[str, Session]) -> None:
    rule, prompt = Match(Sampling(0.8), Noise(3)), _prompts()[0]
    session = sessions["general"]
    assert session.generate("pld", prompt, NEW, rule=rule).tokens == session.generate(
        "ar", prompt, NEW, rule=rule).tokens


@pytest.mark.parametrize("name", some(["both", "plain"]))
def test_equals_the_interpreter(by_ar: Callable[[str, int], Generation], name: str) -> None:
    """The device's text is that of the interpreter, and not that of all values."""
    schedule = {"plain": VALUES, "both": BOTH}[name]
    network = bundled_pair("small").target(BASE, 0).network
    differ = False
    with Session(BASE, pair=bundled_pair("small")) as dense:
        for number, prompt in enumerate(_prompts()):
            model = InterpretedModel(TARGET, network, Untimed(network.graph, max_rows=16), None,  # type: ignore[arg-type]
                                     values=40)
            talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY,  # type: ignore[arg-type]
                                kv=pruned_cache(model, schedule, 16))
            found = by_ar(name, number).tokens
            assert talk.turn(prompt, NEW).tokens == found
            differ |= dense.generate("ar", prompt, NEW).tokens != found
    assert differ


def test_zeros_alone_change_nothing() -> None:
    with Session(BASE, pair=bundled_pair("small"), pruning=Pruning(values=1)) as listing, \
            Session(BASE, pair=bundled_pair("small")) as dense:
        assert isinstance(listing.target.program.choice.mappings[0].attention, ValuesMapping)
        prompt = _prompts()[0]
        tokens = dense.generate("ar", prompt, LONG).tokens
        assert listing.generate("draft", prompt, NEW).tokens == tokens[:NEW]
        made = listing.generate("ar", prompt, LONG)
        assert made.tokens == tokens
        assert made.pruned
        assert 0 < made.pruned.saved < made.pruned.bytes_dense / 2
        assert made.pruned.bytes == made.pruned.bytes_dense - made.pruned.saved


def test_losses() -> None:
    """Zeros cost nothing, more than zeros something; the probability that is too small is told."""
    network = bundled_pair("small").target(BASE, 0).network
    window = np.array((_prompts()[0] * 4)[:150])
    dense, zeros, few = (losses(network, window, pruning, 8) for pruning in (None, Pruning(values=1), VALUES))
    np.testing.assert_array_equal(zeros.nats, dense.nats)
    assert zeros.dropped == 0
    assert 0.02 < few.dropped < 0.6
    assert few.seen == 1
    assert (few.nats != dense.nats).any()


def test_generate_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert run(monkeypatch, "generate", "--model", "small", "--prune", "examples/pruning/values.yaml", "--prompt",
               TEXTS[0], "--max-new-tokens", "110", "--json", str(out)) == 0
    found = json.loads(out.read_text())
    assert "values that no probability of at least 4 of 255 meets are not loaded" in " ".join(
        capsys.readouterr().out.split())
    assert found["same_tokens_as_ar"] is True
    assert (found["prune"]["values"], found["prune"]["keep"]) == (4, 1.0)
    assert (found["selections"], found["selection_cycles"]) == (0, 0)
    assert 0 < found["kv_bytes"] < found["kv_bytes_dense"]
    assert 0 <= found["topk_exposed_cycles"] <= found["topk_cycles"]
    assert found["topk_cycles"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61,
                  positions=300)
    file = tmp_path_factory.mktemp("models") / "decoder.safetensors"
    save_model(file, random_network(sizes, 1), MADE, None)
    return file


@pytest.mark.parametrize("text", ["values: 3\n", "values: 3\nkeep: 0.5\nevery: 16\nlast: 16\nwhole: 32\n"])
def test_run_model(decoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """With data the logits are the interpreter's; without any nothing is left out."""
    words = ("model", str(decoder), "--seq", "200")
    dense = told(monkeypatch, tmp_path, text.replace("values: 3\n", "") or "values: 1\n", *words)
    found, timed = told(monkeypatch, tmp_path, text, *words), told(monkeypatch, tmp_path, text, *words, "--timing-only")
    assert found["output_equals_interpreter"] is True
    assert found["kv_bytes"] < timed["kv_bytes"]
    assert found["cycles"] < timed["cycles"]
    assert found["kv_bytes_dense"] == timed["kv_bytes_dense"] == dense["kv_bytes_dense"]
    assert found["cycles_dense"] == timed["cycles_dense"] == dense["cycles_dense"]
    assert 0 < found["dropped_probability"] < 0.9
    assert timed["dropped_probability"] is None
    assert 0 <= found["topk_exposed_cycles"] <= found["topk_cycles"]


def test_run_arch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = told(monkeypatch, tmp_path, "values: 2\n", "arch", "llama-68m", "--seq", "100", "--context", "128")
    assert found["kv_bytes"] == found["kv_bytes_dense"]
    assert found["cycles"] > 0.95 * found["cycles_dense"]


@pytest.mark.parametrize(("text", "message"), [
    ("values: 0", "values must be a whole number from 1 to 255, not 0"), ("values: 256", "from 1 to 255, not 256"),
    ("values: true", "not True"), ("values: 0.5", "not 0.5"), ("values: many", "not 'many'"),
    ("values: 2\nevery: 16", "every is of rows that are kept"), ("values: 2\nlayers: 3", "has no key 'layers': keys"),
    ("values: 2\nkeep: 0.5\nscore: pages", "values does not go with score: pages"), ("every: 16", "keep or values")])
def test_bad_schedules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str,
                       message: str) -> None:
    """One line, exit code 2."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_pruning(file)
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(("options", "message"), [
    (["--launch", "step", "--method", "draft"], "does not go with --launch step"),
    (["--compute", "interpreter"], "no --prune"), (["--batch", "2"], "does not go with --batch 2")])
def test_what_excludes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                          options: list[str], message: str) -> None:
    (file := tmp_path / "values.yaml").write_text("values: 2\n")
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file), *options) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(message, said), said
