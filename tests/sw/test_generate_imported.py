"""Imported models decode as bundled ones do: any pair with the same tokens gives the tokens of its target."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.files.model_file import Made, load_model, save_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.config import load_config
from gemmule.sw.decoding.methods import METHODS, of_option
from gemmule.sw.decoding.session import Session
from gemmule.sw.errors import InputError
from gemmule.sw.limits import either
from gemmule.sw.models.bundled_models import MODELS
from gemmule.sw.models.pair import imported_pair
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some, thinned

from .test_cli import run

SEED = 20261124
MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=False, seed=SEED, calibration_sha256="0")
TOKENIZER = next(MODELS.rglob("tokenizer.json")).read_text("utf-8")
TARGET = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=3, vocab=1024)
SIZES = {
    "target": TARGET, "one-layer": replace(TARGET, layers=1), "gpt2": replace(TARGET, family="gpt2", layers=2),
    "published": replace(TARGET, layers=2, wide=True, prefix=1, steps=True),
    "published-draft": replace(TARGET, layers=1, wide=True, prefix=2, positions=65),
    "short": replace(TARGET, positions=16), "shared": replace(TARGET, heads=40, kv_heads=1, head_dim=8, layers=1),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("imported")
    for name, sizes in SIZES.items():
        made = MADE.model_copy(update={"prefix": tuple(range(sizes.prefix))})
        save_model(folder / name, random_network(sizes, SEED), made, TOKENIZER, (1,))
    save_model(folder / "narrow", random_network(replace(TARGET, bits=4, group=8), SEED),
               MADE.model_copy(update={"bits": 4, "group": 8}), TOKENIZER, (1,))
    save_model(folder / "online", random_network(TARGET, SEED).with_softmax(None, 32), MADE, TOKENIZER, (1,))
    save_model(folder / "without", random_network(TARGET, SEED), MADE, None)
    return {path.name: path for path in folder.iterdir()}


def _greedy(file: Path, ids: list[int], count: int) -> list[int]:
    """By the integer interpreter alone, one token a pass."""
    network = load_model(file).network
    interpreter, cache, found = IntegerInterpreter(network), Cache(network.graph), list[int]()
    rows = Rows.chain(ids, network.graph.prefix)
    while len(found) < count:
        found.append(int(np.argmax(interpreter.forward(rows, cache)[-1])))
        rows = Rows.chain(found[-1:], cache.length())
    return found


@pytest.mark.parametrize(("draft", "length"), thinned(["one-layer", "gpt2", "target"], [1, 4, 15]))
def test_every_draft_gives_the_targets_tokens(files: dict[str, Path], draft: str, length: int) -> None:
    pair = imported_pair(files["target"], files[draft])
    ids = pair.encode("import os\n" * 9)
    expected = _greedy(files["target"], ids, 17)
    with Session(load_config("base"), pair=pair) as session:
        assert session.generate("ar", ids, 17).tokens == expected
        found = session.generate("draft", ids, 17, length)
        assert found.tokens == expected
        if draft == "target":
            assert found.acceptance == 1


@pytest.mark.parametrize(("draft", "launch"), some([
    ("published-draft", "pass"), ("published", "step"), ("one-layer", "pass"), ("published-draft", "draft")], 2))
def test_a_prefix_stands_before_every_text(files: dict[str, Path], draft: str, launch: str) -> None:
    """Drafts with another prefix or none; alone, in turns, in a batch and on a full context."""
    pair = imported_pair(files["published"], files[draft])
    ids = pair.encode("import os\n" * 3)
    expected = _greedy(files["published"], ids, 12)
    with Session(load_config("base"), pair=pair, launch=launch) as session:
        for method, length in (("ar", None), ("draft", 4), ("pld", 7)):
            assert session.generate(method, ids, 12, length).tokens == expected
        full = session.generate("draft", ids, 64, 2, context_overflow="sinks")
        assert full.dropped > 0
        assert full.tokens == session.generate("ar", ids, 64, context_overflow="sinks").tokens
    if launch == "pass":
        with Session(load_config("base"), pair=pair, batch=2) as session:
            assert [found.tokens for found in session.generate_batch("draft", [ids, ids[:9], ids], 12, 4)] == [
                expected, _greedy(files["published"], ids[:9], 12), expected]
        with Session(load_config("base"), pair=pair, interpreted=True) as session:
            assert session.generate("draft", ids, 12, 4).tokens == expected


def test_prefixes_that_differ_take_a_launch_each(files: dict[str, Path]) -> None:
    pair = imported_pair(files["published"], files["published-draft"])
    with pytest.raises(InputError, match="equal prefixes, not 2 and 1 rows: use --launch draft"):
        Session(load_config("base"), pair=pair, launch="step")


def test_online_attention_gives_the_interpreters_tokens(files: dict[str, Path]) -> None:
    """Of chains of any length; not the tokens of the exact way."""
    pair = imported_pair(files["online"], files["one-layer"])
    ids = pair.encode("import os\n" * 9)
    expected = _greedy(files["online"], ids, 24)
    assert expected != _greedy(files["target"], ids, 24)
    with Session(load_config("base"), pair=pair) as session:
        for method, length in (("ar", None), ("draft", 4), ("draft", 15), ("pld", 7)):
            assert session.generate(method, ids, 12, length).tokens == expected[:12]
    with Session(load_config("base"), pair=imported_pair(files["target"], files["online"]), launch="draft") as session:
        assert session.generate("draft", ids, 12, 3).tokens == _greedy(files["target"], ids, 12)


@pytest.mark.parametrize("attention", ["exact", "standard", "online"])
def test_run_model_by_other_ways_of_attention(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                              attention: str) -> None:
    """Behind a cache, and of a prompt in passes; the output is the interpreter's with that attention."""
    out = tmp_path / "run.json"
    for options in (("--seq", "33", "--rows", "2"), ("--phase", "prefill", "--seq", "11", "--rows", "4"),
                    ("--seq", "9", "--batch", "2")):
        assert run(monkeypatch, "run", "model", str(files["gpt2"]), "--attention", attention, *options, "--json",
                   str(out)) == 0
        record = json.loads(out.read_text())
        assert (record["attention"], record["output_equals_interpreter"]) == (attention, True)
        assert (record["scores"] == "kept") is (attention == "exact")


def test_generates_to_the_end_of_the_context(files: dict[str, Path]) -> None:
    pair = imported_pair(files["short"])
    ids = pair.encode("import os")
    with Session(load_config("edge"), pair=pair) as session:
        found = session.generate("ar", ids, 99)
    assert found.finish_reason == "context"
    assert len(ids) + len(found.tokens) == 16


@pytest.mark.parametrize("overflow", ["crop", "sinks"])
def test_goes_on_behind_a_full_context(files: dict[str, Path], overflow: str) -> None:
    """By the interpreter on what is left of the text: rows that the device's cache kept are those of it."""
    pair, new = imported_pair(files["short"], files["short"]), 30
    window, expected, first = pair.encode("import os\n"), list[int](), 0 if overflow == "crop" else 4
    while len(expected) < new:
        window = window[:first] + window[len(window) - 8 + first:] if len(window) >= 16 else window
        expected += _greedy(files["short"], window, 1)
        window = [*window, expected[-1]]
    with Session(load_config("edge"), pair=pair) as session:
        for method, most in (("ar", None), ("draft", 2), ("pld", 3)):
            found = session.generate(method, pair.encode("import os\n"), new, most, context_overflow=overflow)
            assert found.tokens == expected
            assert found.finish_reason == "length"


@pytest.mark.rtl
def test_rtl_gives_the_same_tokens_in_the_same_cycles(files: dict[str, Path]) -> None:
    pair, runs = imported_pair(files["one-layer"], files["gpt2"]), []
    for backend in ("model", "rtl"):
        with Session(load_config("edge"), backend, pair) as session:
            runs.append(session.generate("draft", pair.encode("import os"), 4, 2))
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].ledger.cycles == runs[1].ledger.cycles


def test_command(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--prompt", "import os", "--max-new-tokens", "5", "--json", "-")
    assert run(monkeypatch, "generate", "--model", str(files["target"]), *options) == 0
    assert '"method": "ar"' in capsys.readouterr().out
    assert run(monkeypatch, "generate", "--model", str(files["target"]), "--draft-model", str(files["one-layer"]),
               *options) == 0
    assert '"same_tokens_as_ar": true' in capsys.readouterr().out


@pytest.mark.parametrize(("options", "message"), [
    (("--model", "nowhere"), "--model must be one of default, small, tuned, smollm2 or a file"),
    (("--model", ""), "--model must be one of default, small, tuned, smollm2 or a file"),
    (("--model", "."), "is a directory: `gemmule import"),
    (("--model", "target", "--method", "draft"), "needs a draft model"),
    (("--model", "target", "--draft-model", "nowhere"), "nowhere"),
    (("--model", "target", "--draft-model", "short"), "must see the"),
    (("--model", "shared", "--config", "tiny"), "does not run on config 'tiny'"),
    (("--model", "without"), "has no tokenizer"),
    (("--model", "narrow", "--weights", "int8"), "has int4 weights, which no int8 ones can be made of"),
    (("--model", "short", "--max-new-tokens", "16"), "--max-new-tokens must be from 1 to 15"),
    (("--model", "small", "--draft-model", "one-layer"), "not with the bundled small"),
    (("--model", "target", "--baseline"),
     f"--baseline needs --method {either([name for name in METHODS if name != 'ar'])}, not ar: drop "
     "one of the two"),
    (("--model", "target", "--num-speculative-tokens", "2"),
     f"--num-speculative-tokens needs --method {either(of_option('--num-speculative-tokens'))}, not ar"),
    (("--model", "target", "--prompt-lookup-num-tokens", "2"), "needs --method pld, not ar: drop one of the two"),
    (("--model", "target", "--method", "pld", "--prompt-lookup-num-tokens", "16"), "must be from 1 to 15"),
    (("--model", "target", "--method", "pld", "--prompt-lookup-form", "vllm"), "must be one of huggingface, original"),
    (("--model", "target", "--method", "pld", "--prompt-lookup-max", "0"), "must be from 1 to 16, not 0"),
    (("--model", "target", "--prompt-lookup-form", "original"), "--prompt-lookup-form needs --method pld, not ar"),
    (("--model", "target", "--prompt-lookup-max", "2"), "--prompt-lookup-max needs --method pld, not ar"),
])
def test_refused_in_one_line(files: dict[str, Path], options: tuple[str, ...], message: str,
                             monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(files.get(option, option)) for option in options]
    if "--max-new-tokens" not in given:
        given += ["--max-new-tokens", "2"]
    assert run(monkeypatch, "generate", *given) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "Traceback" not in error


def test_drafts_with_other_tokens_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_model(other, random_network(TARGET, SEED), MADE, TOKENIZER.replace("<pad>", "<filler>"))
    with pytest.raises(InputError, match="its vocabulary differs"):
        imported_pair(files["target"], other)
