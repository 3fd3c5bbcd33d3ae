"""Rows that choose pages: one text by every method, the device's beside the interpreter's, and schedules refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.chosen_pages import PagesKV
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.pruned import Untimed, losses, pruned_cache
from tests.thinned import of_methods, some

from .test_cli import run

BASE = load_config("base")
SCHEDULE = Pruning(keep=0.4, first=4, last=16, whole=32, score="pages")
TEXTS = ("def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    ",
         "The sky was clear and the sea was calm. The sky was clear and the")
NEW = 56
WHOLE_PASSES = [name for name, one in METHODS.items()
                if one.drafts and not one.needs_general and one.common and not one.needs_int4]


def _prompts() -> list[list[int]]:
    return [bundled_pair("small").encode(text) for text in TEXTS]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(BASE, pair=bundled_pair("small"), pruning=SCHEDULE) as made:
        yield made


@pytest.fixture(scope="module")
def by_ar(session: Session) -> Callable[[int], list[int]]:
    """The text of a prompt by autoregressive decoding, decoded once."""
    return cache(lambda number: session.generate("ar", _prompts()[number], NEW).tokens)


@pytest.mark.parametrize("method", of_methods(WHOLE_PASSES, ("pld",)))
def test_every_method_decodes_the_same_text(
        session: Session, by_ar: Callable[[int], list[int]], method: str) -> None:
    for number, drafts in enumerate((1, 8)):
        assert session.generate(method, _prompts()[number], NEW, drafts).tokens == by_ar(number), drafts


def test_equals_the_interpreter(by_ar: Callable[[int], list[int]]) -> None:
    """The device's text is that of the interpreter, and not that of the whole cache."""
    network = bundled_pair("small").target(BASE, 0).network
    model = InterpretedModel(TARGET, network, Untimed(network.graph, max_rows=16), None,  # type: ignore[arg-type]
                             pages=SCHEDULE.pages)
    for number, prompt in enumerate(_prompts()):
        talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY,  # type: ignore[arg-type]
                            kv=pruned_cache(model, SCHEDULE, 1))
        assert talk.turn(prompt, NEW).tokens == by_ar(number)
    with Session(BASE, pair=bundled_pair("small")) as dense:
        assert any(dense.generate("ar", prompt, NEW).tokens != by_ar(number)
                   for number, prompt in enumerate(_prompts()))


def test_keeping_all_is_dense() -> None:
    everything = replace(SCHEDULE, keep=1.0)
    with Session(BASE, pair=bundled_pair("small"), pruning=everything) as pages, \
            Session(BASE, pair=bundled_pair("small")) as dense:
        prompt = _prompts()[0]
        made = pages.generate("draft", prompt, NEW)
        assert made.tokens == dense.generate("ar", prompt, NEW).tokens
        assert made.pruned
        assert made.pruned.rows == made.pruned.rows_dense


@pytest.mark.parametrize("method", some(["draft", "pld"]))
def test_turns_and_rollbacks(session: Session, method: str) -> None:
    """Representatives are made again behind what is taken back."""
    def talked(method: str) -> list[list[int]]:
        talk = session.converse(method)
        prompt = _prompts()[0]
        found = [talk.turn(prompt, 30).tokens, talk.turn(prompt[:21], 20).tokens]
        talk.retract(45)
        assert isinstance(talk.cached, PagesKV)
        found.append(talk.turn(prompt[3:9], 40).tokens)
        return found

    assert talked("ar") == talked(method)


def test_rows_stay_in_place(session: Session) -> None:
    cache = session.target.kv(pruning=SCHEDULE)
    cache.append(40)
    for refused in (lambda: cache.evict(3, 2), lambda: cache.gather(np.arange(4)),
                    lambda: cache.fork(session.target.kv(pruning=SCHEDULE))):
        with pytest.raises(ValueError, match="stay where they are|begins no other one"):
            refused()


def test_losses() -> None:
    """Keeping all is dense; keeping less costs something, and few rows are seen."""
    network = bundled_pair("small").target(BASE, 0).network
    window = np.array((_prompts()[0] * 4)[:150])
    dense, whole, half = (losses(network, window, pruning, 8) for pruning in (
        None, replace(SCHEDULE, keep=1.0), SCHEDULE))
    np.testing.assert_array_equal(whole.nats, dense.nats)
    assert (whole.seen, half.dropped) == (1, 0)
    assert 0.4 < half.seen < 0.7
    assert (half.nats[:31] == dense.nats[:31]).all()
    assert (half.nats != dense.nats).any()


def test_generate_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "pages.yaml", tmp_path / "out.json"
    file.write_text("keep: 0.4\nlast: 16\nwhole: 32\nscore: pages\n")
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file), "--prompt", TEXTS[0],
               "--max-new-tokens", "40", "--json", str(out)) == 0
    told = json.loads(out.read_text())
    assert "each row chooses its pages" in " ".join(capsys.readouterr().out.split())
    assert told["same_tokens_as_ar"] is True
    assert told["prune"]["page"] == 8
    assert told["selections"] == 0
    assert 0 < told["kv_bytes"] < told["kv_bytes_dense"]


@pytest.mark.parametrize(("text", "message"), [
    ("every: 16", "leave every out"), ("page: 12", "page must be one of 4, 8, 16, 32, 64 rows, not 12"),
    ("page: true", "page must be one of .* not True"), ("keep: 10", "keep must be at least first [+] last = 36 rows"),
    ("layers: 3", "has no key 'layers'")])
def test_bad_schedules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str,
                       message: str) -> None:
    """One line, exit code 2."""
    file = tmp_path / "bad.yaml"
    file.write_text(f"{'' if 'keep' in text else 'keep: 0.5'}\nscore: pages\n{text}\n")
    with pytest.raises(InputError, match=message):
        load_pruning(file)
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_page_is_of_pages_alone(tmp_path: Path) -> None:
    (file := tmp_path / "bad.yaml").write_text("keep: 0.5\npage: 8\n")
    with pytest.raises(InputError, match="leave page out"):
        load_pruning(file)


@pytest.mark.parametrize(("options", "schedule", "message"), [
    (["--method", "layerskip"], "", "take another --method than layerskip"),
    (["--temperature", "1"], "", "drop the temperature"), (["--prefill-rows", "32"], "", "use --prefill-rows 0"),
    (["--launch", "step", "--method", "draft"], "", "does not go with --launch step"),
    (["--compute", "interpreter"], "", "no --prune"), ([], "last: 8", r"last\) must be at least the 16 of a pass"),
    ([], "page: 4", "a page must be a multiple of 8 rows")])
def test_what_excludes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                          options: list[str], schedule: str, message: str) -> None:
    file = tmp_path / "pages.yaml"
    file.write_text(f"keep: 0.5\nscore: pages\n{schedule}\n")
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file), *options) == 2
    told = capsys.readouterr().err.strip()
    assert len([line for line in told.splitlines() if not line.startswith("compiling")]) == 1

    assert re.search(message, told), told
