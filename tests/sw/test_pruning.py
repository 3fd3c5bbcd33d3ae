"""A pruned cache: its schedule, the device's choices beside the interpreter's, and one text by every method."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.programs.selecting import KEPT
from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation
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
from gemmule.sw.kv.selected import SelectedKV
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.pruned import Untimed, losses, pruned_cache
from tests.thinned import of_methods, some

from .test_cli import run

BASE = load_config("base")
SCHEDULE = Pruning(keep=0.5, every=16, first=4, last=16, whole=32)
TEXT = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    "
NEW = 56


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    pair = bundled_pair("small")
    with Session(BASE, pair=pair, pruning=SCHEDULE) as pruned, \
            Session(BASE, pair=pair, pruning=SCHEDULE, general=True) as general:
        yield {"plain": pruned, "general": general}


def _prompt() -> list[int]:
    return bundled_pair("small").encode(TEXT)


def _kept(session: Session, kv: SelectedKV) -> bytes:
    """The rows of the kept cache that passes see, in every run."""
    selection, layout = session.target.selection, session.target.program.layout
    assert selection
    address = selection.select.symbols[KEPT][0]
    return b"".join(bytes(session.device.read_dram(address + run * layout.pitch, kv.length * layout.row))
                    for run in range(layout.runs))


def _text(session: Session, method: str, **options: Any) -> tuple[list[int], bytes, SelectedKV]:
    talk = session.converse(method, **options)
    made = talk.turn(_prompt(), NEW)
    assert isinstance(talk.cached, SelectedKV)
    talk.cached.rewind(len(_prompt()) + NEW - 1)
    return made.tokens, _kept(session, talk.cached), talk.cached


@pytest.fixture(scope="module")
def plain(sessions: dict[str, Session]) -> dict[str, tuple[list[int], bytes, SelectedKV]]:
    """By autoregressive decoding."""
    return {name: _text(session, "ar") for name, session in sessions.items()}


@pytest.mark.parametrize("method", of_methods((
    name for name, one in METHODS.items()
    if one.drafts and one.common and not (one.needs_int4 or one.schedule)), ("suffix", "layerskip")))
def test_every_method_decodes_the_pruned_text(
        sessions: dict[str, Session], plain: dict[str, tuple[list[int], bytes, SelectedKV]], method: str) -> None:
    """Tokens, and the kept cache behind them, are those of autoregressive decoding with the same schedule."""
    name = "general" if METHODS[method].needs_general else "plain"
    session, (tokens, kept, kv) = sessions[name], plain[name]
    assert [one.cached for one in kv.selections] == [len(_prompt()) - 1, *(
        at for at in range(16, len(_prompt()) + NEW, 16) if at > max(32, len(_prompt()) - 1))]
    assert {one.kept * 2 - one.cached for one in kv.selections} <= {0, 1}
    for drafts in (1, 8):
        found, caches, other = _text(session, method, num_speculative_tokens=drafts)
        assert (found, caches, other.selections == kv.selections) == (tokens, kept, True), (method, drafts)


def test_sampled_text_is_the_same(sessions: dict[str, Session]) -> None:
    rule = Match(Sampling(0.8), Noise(3))
    tokens, *_ = _text(sessions["general"], "ar", rule=rule)
    assert _text(sessions["general"], "pld", rule=rule)[0] == tokens


def test_equals_the_interpreter(sessions: dict[str, Session]) -> None:
    """The device's text is that of a cache whose lists the interpreter makes."""
    tokens, _, kv = _text(sessions["plain"], "ar")
    placed = bundled_pair("small").target(BASE, 0, prefill=None, pruning=SCHEDULE)
    model = InterpretedModel(TARGET, placed.network, Untimed(placed.network.graph, max_rows=16), None)  # type: ignore[arg-type]
    cache = pruned_cache(model, SCHEDULE, kv.chooser.observed)
    talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY, kv=cache)  # type: ignore[arg-type]
    assert talk.turn(_prompt(), NEW).tokens == tokens
    assert [(one.cached, one.kept) for one in cache.selections] == [(one.cached, one.kept) for one in kv.selections]


def test_keeping_all_is_dense() -> None:
    pair, everything = bundled_pair("small"), Pruning(keep=1.0, every=16, first=4, last=16, whole=32)
    with Session(BASE, pair=pair, pruning=everything) as pruned, Session(BASE, pair=pair) as dense:
        made = pruned.generate("ar", _prompt(), NEW)
        assert made.tokens == dense.generate("ar", _prompt(), NEW).tokens
        assert made.pruned
        assert made.pruned.selections > 3
        assert made.pruned.kept == 16 * ((len(_prompt()) + NEW - 1) // 16)


def test_a_window_keeps_first_and_newest() -> None:
    """Without scores: rows 0 .. first - 1 and the newest ones, as the copies of the whole cache's rows."""
    window = Pruning(keep=40, every=16, first=4, last=16, whole=40, score="none")
    with Session(BASE, pair=bundled_pair("small"), pruning=window) as session:
        talk = session.converse("pld")
        talk.turn(_prompt(), NEW)
        kv, layout = talk.cached, session.target.program.layout
        assert isinstance(kv, SelectedKV)
        assert session.target.selection
        assert kv.since
        whole, kept = (session.target.selection.select.symbols[name][0] for name in (CACHE, KEPT))
        for number in range(layout.runs):
            def rows(address: int, first: int, count: int, before: int = number * layout.pitch) -> bytes:
                return bytes(session.device.read_dram(address + before + first * layout.row, count * layout.row))

            assert rows(kept, 0, 4) == rows(whole, 0, 4)
            assert rows(kept, 4, 36) == rows(whole, kv.since - 36, 36)
        assert session.generate("ar", _prompt(), NEW).tokens == session.generate("draft", _prompt(), NEW).tokens


@pytest.mark.parametrize("method", some(["draft", "pld"]))
def test_turns_and_rollbacks(sessions: dict[str, Session], method: str) -> None:
    """A second turn goes piece by piece; what is taken back before the last selection makes the cache whole again."""
    def talked(method: str) -> list[list[int]]:
        talk = sessions["plain"].converse(method)
        found = [talk.turn(_prompt(), 20).tokens, talk.turn(_prompt()[:37], 20).tokens]
        talk.retract(70)
        assert isinstance(talk.cached, SelectedKV)
        found.append(talk.turn(_prompt()[3:9], 20).tokens)
        return found

    assert talked("ar") == talked(method)


def test_losses() -> None:
    """Keeping all costs nothing; keeping less costs something, and few rows are seen."""
    network = bundled_pair("small").target(BASE, 0).network
    window = np.array((_prompt() * 4)[:150])
    dense, whole, half = (losses(network, window, pruning, 8) for pruning in (
        None, Pruning(keep=1.0, every=16, first=4, last=16, whole=32), SCHEDULE))
    np.testing.assert_allclose(whole.nats, dense.nats, atol=0.2)  # rows that choose are computed again
    assert (dense.seen, dense.dropped, whole.seen, whole.dropped) == (1, 0, 1, 0)
    assert 0.5 < half.seen < 0.9
    assert 0 < half.dropped < 0.5
    assert (half.nats[:32] == dense.nats[:32]).all()
    assert (half.nats != dense.nats).any()


def test_generate_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "half.yaml"
    file.write_text("keep: 0.5\nevery: 16\nlast: 16\nwhole: 32\n")
    out = tmp_path / "out.json"
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file), "--prompt", TEXT,
               "--max-new-tokens", "40", "--json", str(out)) == 0
    told = json.loads(out.read_text())
    shown = " ".join(capsys.readouterr().out.split())
    assert f"pruned cache: {told['selections']} selections, the last one keeps" in shown
    assert told["same_tokens_as_ar"] is True
    assert told["prune"] == {"keep": 0.5, "every": 16, "first": 4, "last": 16, "whole": 32, "score": "attention",
                             "page": 8, "values": None, "four": None, "halves": None, "progressive": None}
    assert len(told["kept_rows_by_layer"]) == 6
    assert 0 < told["kv_bytes"] < told["kv_bytes_dense"]
    assert told["selections"] >= 3
    assert 0 <= told["topk_exposed_cycles"] <= told["topk_cycles"] < told["selection_cycles"] < told["cycles"]


@pytest.mark.parametrize(("text", "message"), [
    ("keep: 0", "keep must be at least 1 row, not 0"), ("keep: 0.0", r"keep must be a share above 0 .* not 0\.0"),
    ("keep: 1.5", r"keep must be a share .* not 1\.5"), ("keep: all", "keep must be a number, not 'all'"),
    ("keep: true", "keep must be a number, not True"), ("every: 8", "keep or values among them"),
    ("[1, 2]", "not list"), ("keep: 20", "keep must be at least first [+] last = 36 rows, not 20"),
    ("keep: 0.5\nfirst: 300", "first must be a whole number from 0 to 255, not 300"),
    ("keep: 0.5\nlayers: 3", "has no key 'layers': keys are keep, every, first, last, whole, score, page"),
    ("keep: 0.5\nscore: magic", "score must be one of attention, heavy, none, pages, chunks, not 'magic'"),
    ("keep: 0.5\nwhole: 10", "whole must be at least first [+] last = 36 rows, not 10"),
    ("keep: 0.5\nevery: 0", "every must be a whole number from 1 to 65,536, not 0"), ("keep: [", "is no YAML")])
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
    (["--kv-cache", "none"], "--kv-cache none"), (["--compute", "interpreter"], "no --prune"),
    (["--batch", "2", "--prompt-file", "PROMPTS"], "does not go with --batch 2")])
def test_what_excludes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                          options: list[str], message: str) -> None:
    file, prompts = tmp_path / "half.yaml", tmp_path / "prompts.txt"
    file.write_text("keep: 0.5\n")
    prompts.write_text("a\n---\nb\n")
    given = [str(prompts) if option == "PROMPTS" else option for option in options]
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file), *given) == 2
    assert message in capsys.readouterr().err


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_pruning(tmp_path / "none.yaml")
