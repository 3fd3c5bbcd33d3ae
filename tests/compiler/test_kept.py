"""Programs that were compiled before: the same ones back, and never another's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmule.compiler import kept
from gemmule.compiler.search.decoder import compile_best
from gemmule.compiler.search.prefill import best_prefill
from gemmule.config import load_config
from gemmule.sw.models.cached import entries, remove
from tests.compiler.integer_networks import Sizes, random_network

SIZES = Sizes(family="llama", hidden=17, inner=19, heads=1, kv_heads=1, head_dim=2, layers=1, vocab=5)
EDGE = load_config("edge")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, call by call."""
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    calls: list[Any] = []

    def watched(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return compile_best(*args, **options)

    monkeypatch.setattr(kept, "compile_best", watched)
    return calls


def test_the_same_program_comes_back(compiled: list[Any]) -> None:
    network = random_network(SIZES, 1)
    first = kept.compile_kept(network, "a", EDGE, rows=2)
    again = kept.compile_kept(network, "a", EDGE, rows=2)
    assert len(compiled) == 1
    assert (again.image, again.symbols, again.commands) == (first.image, first.symbols, first.commands)
    assert (again.fill(network) == first.fill(network)).all()


def test_another_network_device_option_or_source_is_another_program(
        compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(SIZES, 1)
    kept.compile_kept(network, "a", EDGE, rows=2)
    kept.compile_kept(network, "b", EDGE, rows=2)
    kept.compile_kept(network, "a", EDGE, rows=1)
    kept.compile_kept(network, "a", load_config("base"), rows=2)
    monkeypatch.setattr(kept, "sources", lambda: b"other")
    kept.compile_kept(network, "a", EDGE, rows=2)
    assert len(compiled) == 5


def test_damage_costs_time_and_no_more(compiled: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    network = random_network(SIZES, 1)
    first = kept.compile_kept(network, "a", EDGE, rows=2)
    (entry,) = entries()
    entry.path.write_bytes(entry.path.read_bytes()[:-9])
    assert kept.compile_kept(network, "a", EDGE, rows=2).image == first.image
    assert "is damaged" in capsys.readouterr().err
    assert len(compiled) == 2


def test_is_shown_and_removed(compiled: list[Any]) -> None:
    kept.compile_kept(random_network(SIZES, 1), "a", EDGE, rows=2)
    (entry,) = entries()
    assert (entry.kind, entry.config) == ("program", "edge")
    assert remove(entry)
    assert not list(entries())


def test_a_folder_that_cannot_be_written(compiled: list[Any], tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / kept.FOLDER).write_text("in the way")
    assert kept.compile_kept(random_network(SIZES, 1), "a", EDGE, rows=2).max_rows == 2
    assert "cannot be kept" in capsys.readouterr().err


def test_a_prefill_is_kept_for_its_program(compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that there is none; another program beside it, place or number of rows is another."""
    network, calls = random_network(replace(SIZES, positions=40), 1), []
    program, other = (kept.compile_kept(network, "a", EDGE, rows=rows, tokens=True) for rows in (2, 3))
    sparse = EDGE.model_copy(update={"address_bits": 20})
    lone = kept.compile_kept(network, "a", sparse, rows=2, tokens=True)

    def watched(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return best_prefill(*args, **options)

    monkeypatch.setattr(kept, "best_prefill", watched)
    asked = [(program, 1 << 16, 4), (other, 1 << 16, 4), (program, 1 << 17, 4), (program, 1 << 16, None),
             (lone, 1 << 20, None)]
    first, again = ([kept.prefill_kept(network, "a", beside, effort=1, rows=rows, base_address=base)
                     for beside, base, rows in asked] for _ in range(2))
    assert len(calls) == len(asked)
    assert first[-1] is None is again[-1]
    for one, same in zip(first[:-1], again[:-1], strict=True):
        assert one is not None
        assert same is not None
        assert (one.image, one.symbols, one.max_rows) == (same.image, same.symbols, same.max_rows)
