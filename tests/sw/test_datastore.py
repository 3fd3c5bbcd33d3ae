"""Datastores: the order of places, runs that stand there, what follows; the cache, the command, retrieval."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gemmule.sw.datastore import datastore as found_places
from gemmule.sw.datastore import kept
from gemmule.sw.datastore.datastore import DEPTH, Datastore, Places
from gemmule.sw.datastore.suffix_array import suffix_array
from gemmule.sw.decoding.methods.retrieval import Retrieval
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import bundled_tokenizer
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.text.corpus import load_corpus
from tests.sw.test_cli import run

SEED = 20261127
LAST = 9
"""Separator of the small stores."""


def store(text: list[int]) -> Datastore:
    tokens = np.array([*text, LAST], dtype=np.uint16)
    return Datastore(tokens, suffix_array(tokens, DEPTH), LAST, "")


@pytest.mark.parametrize("vocab", [1, 2, 9])
def test_places_are_in_the_order_of_what_follows(vocab: int) -> None:
    """Ties, the end of the text and repeats that are longer than the depth included."""
    random = np.random.default_rng(SEED + vocab)
    print(f"seed {SEED}")
    for length in (0, 1, 2, 3, 50, 300):
        text = random.integers(vocab, size=length).astype(np.uint16)
        for depth in (1, 2, 5, 8, 32):
            whole = 1 << (depth - 1).bit_length()  # ranks double
            expected = sorted(range(length), key=lambda at, n=whole: text[at:at + n].tolist())  # type: ignore[misc]
            assert suffix_array(text, depth).tolist() == expected


def test_runs_and_what_follows_them() -> None:
    """Against counting by hand: every run of a random text, and runs that stand nowhere."""
    text = np.random.default_rng(SEED).integers(3, size=400).tolist()
    made, whole = store(text), [*text, LAST]
    for length in (1, 2, 5, 12):
        for run_ in {tuple(text[at:at + length]) for at in range(0, 390, 7)} | {(7,) * length}:
            stands = [at for at in range(len(whole)) if tuple(whole[at:at + length]) == run_]
            places = made.places(run_)
            assert (places.times if places else 0) == len(stands)
            if places is None:
                continue
            following = Counter(whole[at + length] for at in stands)
            found = made.behind(places, 8)
            assert {token: round(share * len(stands)) for token, share, _ in found} == {
                token: count for token, count in following.items() if token != LAST}
            assert [share for _, share, _ in found] == sorted((share for _, share, _ in found), reverse=True)
            for token, _, narrower in found:
                assert narrower == made.places([*run_, token])


def test_frequent_runs_are_sampled_and_their_places_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_places, "LOOKED", 16)
    made = store([1, 2, 1, 3] * 100)
    one = made.places([1])
    assert one is not None
    assert one.times == 200
    assert {(token, share, places.times) for token, share, places in made.behind(one, 4)} == {
        (2, 0.5, 100), (3, 0.5, 100)}


def test_the_longest_run_decides() -> None:
    made = store([1, 2, 3, 4, 5, LAST, 7, 2, 3, 6])
    for ids, most, least, length in (([1, 2, 3], 8, 1, 3), ([7, 7, 2, 3], 8, 1, 3), ([7, 7, 2, 3], 2, 1, 2),
                                     ([0, 0, 3], 8, 1, 1), ([0, 0, 3], 8, 2, None), ([0], 8, 1, None),
                                     ([], 8, 1, None)):
        places = made.longest(ids, most, least)
        assert (places and places.length) == length, ids
    assert made.behind(Places(0, 3, DEPTH), 8) == []


def test_retrieval_proposes_what_follows_most_often() -> None:
    made = store([1, 2, 3, 4, LAST, 1, 2, 3, 5, LAST, 1, 2, 3, 4, 6])
    tree = Retrieval(made, 3).propose([8, 1, 2, 3], 15)
    assert (tree.tokens, tree.parent) == ([3, 4, 6, 5], [-1, 0, 1, 0])
    assert Retrieval(made, 3).propose([1, 2, 3], 1).tokens == [3, 4]
    assert Retrieval(made, 3).propose([4, 6], 9).tokens == [6], "the text ends there"
    assert Retrieval(made, 3, least=4).propose([8, 1, 2, 3], 9).tokens == [3]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a library of two texts."""
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "texts_of", lambda corpus: [f"{corpus} of texts\n", "def f(x):\n    return x\n"])
    return tmp_path / "cache"


def test_a_datastore_is_made_once_and_again_where_it_is_damaged(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bundled_tokenizer("small")
    first = kept.open_datastore("small", tokenizer, "code")
    assert isinstance(first.datastore.tokens, np.memmap)
    assert first.datastore.separator == tokenizer.get_vocab_size()
    assert (first.datastore.tokens == first.datastore.separator).sum() == 2
    parts = np.split(first.datastore.tokens, np.flatnonzero(first.datastore.tokens == first.datastore.separator))
    assert tokenizer.decode(parts[0].tolist()) == "code of texts\n"
    written = first.path.stat().st_mtime_ns
    assert kept.open_datastore("small", tokenizer, "code").path.stat().st_mtime_ns == written
    first.path.write_bytes(b"\xff" * 40)
    again = kept.open_datastore("small", tokenizer, "code")
    assert again.datastore.digest == first.datastore.digest
    assert kept.open_datastore("small", tokenizer, "prose").path != first.path
    monkeypatch.setattr("platform.python_version", lambda: "9.9")
    assert kept.open_datastore("small", tokenizer, "code").path != first.path, "another library"


def test_what_a_model_wrote_is_a_datastore(cached: Path) -> None:
    """The bundled texts: some hundred thousand tokens of SmolLM2's, each text behind a separator of its own."""
    made = kept.open_datastore("smollm2", bundled_tokenizer("small"), "writings").datastore
    assert made.separator == 49152
    texts = np.split(made.tokens, np.flatnonzero(made.tokens == made.separator) + 1)
    assert len(made.tokens) > 100_000
    assert 500 < len(texts) < 1000
    assert len({text.tobytes() for text in texts}) == len(texts), "none is there twice"
    assert not bundled_pair("small").writes


def test_held_out_files_are_in_no_datastore() -> None:
    from gemmule.sw.datastore.texts import texts_of

    held = {text for _, text in load_corpus().held_out} | {text for _, text in load_corpus().calibration}
    texts = {corpus: texts_of(corpus) for corpus in ("code", "prose", "all")}
    assert not any(held.intersection(found) for found in texts.values())
    assert any("def " in text for text in texts["code"])
    assert len(texts["all"]) == len(texts["code"]) + len(texts["prose"])


def test_the_command_makes_shows_and_clears(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="run `gemmule datastore --model small --text FILE` first"):
        bundled_pair("small").datastore("own")
    for words in ("a b c d a b c d\n", "other words\n"):
        Path("mine.txt").write_text(words, encoding="utf-8")
        assert run(monkeypatch, "datastore", "--model", "small", "--text", "mine.txt", "--json", "made.json") == 0
        made = json.loads(Path("made.json").read_text(encoding="utf-8"))
        own = bundled_pair("small").datastore("own")
        assert (made["corpus"], made["digest"], made["tokens"]) == ("own", own.digest, len(own.tokens))
        assert bundled_pair("small").decode(own.tokens[:-1].tolist()) == words
    assert run(monkeypatch, "cache", "show", "--json", "shown.json") == 0
    (entry,) = json.loads(Path("shown.json").read_text(encoding="utf-8"))["entries"]
    assert (entry["kind"], entry["bytes"]) == ("datastore", made["bytes"])
    assert run(monkeypatch, "cache", "clear") == 0
    assert not list((cached / kept.FOLDER).iterdir())


@pytest.mark.parametrize(("arguments", "message"), [
    (("datastore", "--corpus", "web"), "--corpus must be one of all, code, prose, writings, own, not 'web'"),
    (("datastore", "--corpus", "code", "--text", "x"), "--text makes the datastore own, not code: drop --corpus"),
    (("datastore", "--model", "small", "--text", "absent.txt"), "--text must name a file that can be read"),
    (("datastore", "--model", "small", "--corpus", "writings"), "small brings no writings of its own"),
    (("generate", "--model", "small", "--method", "retrieval", "--retrieval-min-match", "9", "--retrieval-max-match",
      "4"), "--retrieval-min-match must be at most --retrieval-max-match, 4, not 9")])
def test_refusals(cached: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                  arguments: tuple[str, ...], message: str) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err
