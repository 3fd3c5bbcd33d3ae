"""Pruned caches with rows of 4 bits: one text by every method, the device's beside the interpreter's, what is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gemmule.compiler.files.model_file import save_model
from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.pruned import Untimed, pruned_cache
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

from .test_cli import run
from .test_encode import MADE
from .test_prune_pages import TEXTS
from .test_pruned_runs import told

BASE = load_config("base")
VALUES = Pruning(keep=1.0, every=16, last=16, whole=40, four=0.6)
BOTH = replace(VALUES, keep=0.8, halves="both")
PLANES = replace(VALUES, four=None, progressive=0.3)
SPLIT = replace(VALUES, progressive=0.3)
SCHEDULES = {"values": VALUES, "both": BOTH, "progressive": PLANES, "values and progressive": SPLIT}
NEW = 90


def _prompt() -> list[int]:
    return bundled_pair("small").encode(TEXTS[0])


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    pair = bundled_pair("small")
    with ExitStack() as stack:
        yield {name: stack.enter_context(Session(BASE, pair=pair, pruning=schedule))
               for name, schedule in SCHEDULES.items()}


@pytest.fixture(scope="module")
def by_ar(sessions: dict[str, Session]) -> Callable[[str], Generation]:
    """A session's text by autoregressive decoding, decoded once."""
    return cache(lambda name: sessions[name].generate("ar", _prompt(), NEW))


DRAFTING = [name for name, one in METHODS.items()
            if one.drafts and one.common and not (one.needs_general or one.needs_int4)]
SHORT = {("values", "draft"), ("progressive", "pld")}
"""The other two schedules are those of the next test."""


@pytest.mark.parametrize(("name", "method"), [
    pytest.param(name, method, id=f"{name}-{method}", marks=() if (name, method) in SHORT else pytest.mark.long)
    for name in SCHEDULES for method in DRAFTING])
def test_every_method_decodes_the_same_text(
        sessions: dict[str, Session], by_ar: Callable[[str], Generation], name: str, method: str) -> None:
    assert sessions[name].generate(method, _prompt(), NEW, 4).tokens == by_ar(name).tokens


@pytest.mark.parametrize("name", some(["both", "values and progressive", "values", "progressive"], 2))
def test_equals_the_interpreter(by_ar: Callable[[str], Generation], name: str) -> None:
    """The device's text is that of the interpreter; what is told counts the rows as they stand."""
    network, prompt = bundled_pair("small").target(BASE, 0).network, _prompt()
    model = InterpretedModel(TARGET, network, Untimed(network.graph, max_rows=16), None,  # type: ignore[arg-type]
                             below=SCHEDULES[name].progressive or 0.0)
    talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY,  # type: ignore[arg-type]
                        kv=pruned_cache(model, SCHEDULES[name], 16))
    made = by_ar(name)
    assert talk.turn(prompt, NEW).tokens == made.tokens
    assert made.pruned
    assert made.pruned.halved >= 32
    assert 0.5 < made.pruned.bytes / made.pruned.bytes_dense < 1 + made.pruned.selections * 16 * 200 / NEW
    assert (made.pruned.saved > 0) is (name != "both")


def test_too_few_rows_for_pairs_change_nothing() -> None:
    """All of 8 bits: the text of the whole cache."""
    with Session(BASE, pair=bundled_pair("small"), pruning=replace(VALUES, four=0.01)) as none, \
            Session(BASE, pair=bundled_pair("small")) as dense:
        assert none.generate("pld", _prompt(), NEW, 4).tokens == dense.generate("ar", _prompt(), NEW).tokens


def test_pairs_of_a_schedule() -> None:
    """In whole steps of 32 rows; both halves take half as many rows, values alone spare half of theirs."""
    assert [VALUES.pairs(rows) for rows in (53, 54, 106, 107, 160)] == [0, 16, 16, 32, 48]
    assert (VALUES.stand(160), replace(VALUES, halves="both").stand(160)) == (160, 112)
    assert [schedule.spared(160, 128) for schedule in (VALUES, BOTH, PLANES, SPLIT)] == [48 * 64, 0, 0, 48 * 64]
    assert (PLANES.pairs(160), SPLIT.pairs(160), SPLIT.stand(160)) == (80, 48, 160)


def test_generate_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert run(monkeypatch, "generate", "--model", "small", "--prune", "examples/pruning/four_short.yaml", "--prompt",
               TEXTS[0], "--method", "pld", "--max-new-tokens", "120", "--json", str(out)) == 0
    found = json.loads(out.read_text())
    assert "of them with 4 bits" in " ".join(capsys.readouterr().out.split())
    assert found["same_tokens_as_ar"] is True
    assert (found["prune"]["four"], found["prune"]["halves"]) == (0.5, "both")
    assert found["selections"] > 2


def test_run_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Caches and logits are the interpreter's; fewer bytes are read than of 8 bits."""
    sizes = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61,
                  positions=300, prefix=1)
    file = tmp_path / "decoder.safetensors"
    save_model(file, random_network(sizes, 1), MADE.model_copy(update={"prefix": (0,)}), None)
    schedule, words = "keep: 1.0\nevery: 16\nlast: 16\nwhole: 32\n", ("model", str(file), "--seq", "200")
    plain, bytes_timed = told(monkeypatch, tmp_path, schedule, *words), dict[str, int]()
    for more, least in (("four: 0.9\nhalves: values", 0.6), ("four: 0.9\nhalves: both", 0.4),
                        ("progressive: 0.01", 0.6), ("progressive: 0.01\nfour: 0.9", 0.4)):
        text = f"{schedule}{more}\n"
        found, timed = told(monkeypatch, tmp_path, text, *words), told(monkeypatch, tmp_path, text, *words,
                                                                       "--timing-only")
        assert found["output_equals_interpreter"] is True
        assert found["kept_rows_by_layer"] == [200] * 3
        assert found["kv_bytes_dense"] == plain["kv_bytes_dense"] == timed["kv_bytes_dense"]
        assert least * plain["kv_bytes"] < found["kv_bytes"] < plain["kv_bytes"]
        bytes_timed[more] = timed["kv_bytes"]
        assert "progressive" in more or timed["kv_bytes"] == found["kv_bytes"]
        assert found["cycles_dense"] == plain["cycles_dense"]
    values, _, keys, both = bytes_timed.values()  # without data all lower halves of keys are loaded
    assert (keys, both) == (plain["kv_bytes"], values)


@pytest.mark.parametrize(("text", "message"), [
    ("keep: 0.5\nfour: 0", "four must be a share above 0 and up to 1.0, not 0"),
    ("keep: 0.5\nfour: 1.5", "not 1.5"), ("keep: 0.5\nfour: true", "not True"), ("keep: 0.5\nfour: most", "not 'most'"),
    ("keep: 0.5\nfour: 0.5\nhalves: keys", "halves must be one of values, both, not 'keys'"),
    ("keep: 0.5\nhalves: both", "no row has: add four"), ("four: 0.5", "keep or values"),
    ("keep: 0.5\nfour: 0.5\nscore: none", "four goes with score: attention"),
    ("keep: 0.5\nfour: 0.5\nvalues: 2", "without values"),
    ("keep: 0.5\nprogressive: 0", "a probability from 0.01 to 1.0, not 0"), ("keep: 0.5\nprogressive: 2", "not 2"),
    ("keep: 0.5\nprogressive: true", "not True"),
    ("keep: 0.5\nprogressive: 0.3\nvalues: 2", "without values"),
    ("keep: 0.5\nprogressive: 0.3\nfour: 0.5\nhalves: both", "which halves: both does not keep")])
def test_bad_schedules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str,
                       message: str) -> None:
    """One line, exit code 2."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_pruning(file)
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_general_program_has_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--prune", "examples/pruning/four_short.yaml",
               "--temperature", "0.8") == 2
    assert "--prune with four takes greedy decoding" in capsys.readouterr().err
