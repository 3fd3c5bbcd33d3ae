"""A cache pruned by running sums: what the device sums and chooses, and one text by every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler.files.model_file import save_model
from gemmule.compiler.programs.selecting import selecting_rows
from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.architectures import Work, run_architecture
from gemmule.sw.workloads.pruned import Untimed, losses, pruned_cache
from tests.compiler.integer_networks import random_network
from tests.thinned import of_methods, some

from .test_architectures import small
from .test_cli import run
from .test_encode import MADE
from .test_pruned_runs import ROW, SIZES, told
from .test_pruning import NEW, _kept, _prompt

BASE = load_config("base")
SCHEDULE = Pruning(keep=0.5, every=16, first=4, last=16, whole=32, score="heavy")
Sums = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    pair = bundled_pair("small")
    with Session(BASE, pair=pair, pruning=SCHEDULE) as pruned, \
            Session(BASE, pair=pair, pruning=SCHEDULE, general=True) as general:
        yield {"plain": pruned, "general": general}


def _watch(session: Session, kv: SelectedKV) -> Sums:
    """The running sums on the device behind every commit at which they change, with the rows that they have."""
    found: Sums = []
    choose = kv._choose_if_due

    def watched(*, entered: bool) -> None:
        before = len(kv.selections)
        choose(entered=entered)
        if len(kv.selections) > before:
            found.append((kv.counted, _sums(session, kv).tobytes()))

    kv._choose_if_due = watched  # type: ignore[method-assign]
    return found


def _sums(session: Session, kv: SelectedKV) -> np.ndarray:
    assert session.target.selection
    return session.target.selection.select.running_sums(session.device.read_dram, kv.counted)


def _text(session: Session, method: str, **options: Any) -> tuple[list[int], bytes, Sums, SelectedKV]:
    talk = session.converse(method, **options)
    kv = talk.cached
    assert isinstance(kv, SelectedKV)
    sums = _watch(session, kv)
    made = talk.turn(_prompt(), NEW)
    kv.rewind(len(_prompt()) + NEW - 1)
    return made.tokens, _kept(session, kv), sums, kv


@pytest.fixture(scope="module")
def plain(sessions: dict[str, Session]) -> dict[str, tuple[list[int], bytes, Sums, SelectedKV]]:
    """By autoregressive decoding."""
    return {name: _text(session, "ar") for name, session in sessions.items()}


@pytest.mark.parametrize("method", of_methods((
    name for name, one in METHODS.items()
    if one.drafts and one.common and not (one.needs_int4 or one.schedule)), ("draft", "layerskip")))
def test_every_method_decodes_the_pruned_text(
        sessions: dict[str, Session], plain: dict[str, tuple[list[int], bytes, Sums, SelectedKV]], method: str) -> None:
    """Tokens, the kept cache and the running sums behind every selection are those of autoregressive decoding."""
    name = "general" if METHODS[method].needs_general else "plain"
    session, (tokens, kept, sums, kv) = sessions[name], plain[name]
    first = (len(_prompt()) - 1) // 16 * 16
    assert [counted for counted, _ in sums] == [first, *range(first + 16, len(_prompt()) + NEW, 16)]
    for drafts in (1, 8):
        found, caches, others, other = _text(session, method, num_speculative_tokens=drafts)
        assert (found, caches, other.selections == kv.selections) == (tokens, kept, True), (method, drafts)
        assert others == sums


def test_equals_the_interpreter(sessions: dict[str, Session]) -> None:
    """The device's text and sums are those of the interpreter, which counts a whole interval at once."""
    tokens, _, sums, kv = _text(sessions["plain"], "ar")
    placed = bundled_pair("small").target(BASE, 0, prefill=None, pruning=SCHEDULE)
    model = InterpretedModel(TARGET, placed.network, Untimed(placed.network.graph, max_rows=16), None)  # type: ignore[arg-type]
    cache = pruned_cache(model, SCHEDULE, kv.chooser.observed)
    assert isinstance(cache, SelectedKV)
    talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY, kv=cache)  # type: ignore[arg-type]
    assert talk.turn(_prompt(), NEW).tokens == tokens
    assert isinstance(cache.chooser, InterpretedChooser)
    assert np.stack([*cache.chooser.sums.values()]).astype("<i4").tobytes() == sums[-1][1]
    assert [(one.cached, one.kept) for one in cache.selections] == [(one.cached, one.kept) for one in kv.selections]


def test_each_row_counts_once(sessions: dict[str, Session]) -> None:
    """A row gives each position at most one probability of each head: sums of all rows are the number of these."""
    *_, kv = _text(sessions["plain"], "ar")
    sums, node = _sums(sessions["plain"], kv), sessions["plain"].target.program.graph.attentions[0]
    total = sums.astype(np.int64).sum(axis=2) / (255 * 256) / (node.heads // node.kv_heads)
    np.testing.assert_allclose(total, kv.counted, rtol=2e-3)


@pytest.mark.parametrize("method", some(["pld", "draft"]))
def test_turns_and_rollbacks(sessions: dict[str, Session], method: str) -> None:
    """What is taken back is in no sum: these begin anew where rows are gone that they had."""
    def talked(method: str) -> tuple[list[list[int]], bytes]:
        talk = sessions["plain"].converse(method)
        found = [talk.turn(_prompt(), 20).tokens, talk.turn(_prompt()[:37], 20).tokens]
        talk.retract(70)
        kv = talk.cached
        assert isinstance(kv, SelectedKV)
        found.append(talk.turn(_prompt()[3:9], 20).tokens)
        return found, _sums(sessions["plain"], kv).tobytes()

    tokens, sums = talked("ar")
    assert talked(method) == (tokens, sums)
    talk = sessions["plain"].converse("ar")
    talk.turn(_prompt(), 20)
    kv = talk.cached
    assert isinstance(kv, SelectedKV)
    counted = kv.counted
    kv.rewind(counted)
    assert kv.counted == counted
    kv.rewind(counted - 1)
    assert kv.counted == 0


def test_chooses_other_rows() -> None:
    """Sums over all rows are not what the last rows attend to."""
    network = bundled_pair("small").target(BASE, 0).network
    window = np.array((_prompt() * 4)[:150])
    heavy, attention, whole = (losses(network, window, pruning, 8) for pruning in (
        SCHEDULE, replace(SCHEDULE, score="attention"), replace(SCHEDULE, keep=1.0)))
    assert (heavy.nats != attention.nats).any()
    assert heavy.seen == attention.seen
    assert 0 < heavy.dropped < 0.6
    assert whole.dropped == 0


@pytest.mark.parametrize(("text", "message"), [
    ("keep: 0.5\nscore: heavy\nlast: 16", "last must be at least every - 1 = 31 rows with score: heavy, not 16"),
    ("keep: 0.5\nscore: heavy\nfour: 0.5", "four goes with score: attention"),
    ("keep: 0.5\nscore: heavy\nprogressive: 0.1", "progressive goes with score: attention"),
    ("keep: 0.5\nscore: heavy\npage: 8", "page is of score: pages and chunks alone")])
def test_bad_schedules(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_pruning(file)


def test_examples_are_read() -> None:
    assert load_pruning(Path(__file__).parents[2] / "examples" / "pruning" / "heavy_short.yaml") == SCHEDULE


def test_a_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`run model`: caches, sums and logits are the interpreter's; an interval's rows are counted. Without data about
    as many cycles.
    """
    file, network = tmp_path / "decoder.safetensors", random_network(SIZES, 1)
    save_model(file, network, MADE.model_copy(update={"prefix": (1, 2)}), None)
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path))
    text, words = "keep: 0.5\nevery: 16\nlast: 16\nwhole: 32\nscore: heavy\n", ("model", str(file), "--seq", "100")
    found = told(monkeypatch, tmp_path, text, *words)
    timed = told(monkeypatch, tmp_path, text, *words, "--timing-only")
    assert found["output_equals_interpreter"] is True
    assert found["kept_rows_by_layer"] == timed["kept_rows_by_layer"] == [50, 50, 50]
    rows = selecting_rows(network.graph, load_config("edge"), 16)
    assert found["kv_bytes"] == ROW * 58 + ROW * sum(range(80, 96, rows)) // 16
    assert found["prune"]["score"] == "heavy"
    assert 0 < found["dropped_probability"] < 0.6
    assert timed["selection_cycles"] == pytest.approx(found["selection_cycles"], rel=0.03)
    monkeypatch.setattr(numerics, "counted", lambda p: np.asarray(p, dtype=np.int64))
    assert run(monkeypatch, "run", *words, "--config", "edge", "--prune", str(tmp_path / "schedule.yaml")) == 1


def test_a_pass_by_shape() -> None:
    attention, heavy = (run_architecture(small(), load_config("edge"), Work(seq=100, pruning=replace(
        SCHEDULE, score=score))) for score in ("attention", "heavy"))
    assert heavy["kept_rows_by_layer"] == attention["kept_rows_by_layer"] == [50, 50]
    assert heavy["cycles"] == pytest.approx(attention["cycles"], rel=0.01)  # the kept cache stands elsewhere
    assert heavy["selection_cycles"] == pytest.approx(attention["selection_cycles"], rel=0.2)  # as many rows
