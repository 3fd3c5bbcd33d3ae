"""Options of `gemmule generate` that end, cut or continue a text: what is shown, what is written, what is refused."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gemmule.config import load_config
from gemmule.sw.cli import INTERRUPTED
from gemmule.sw.commands.shared.decode import Live, halting, turns
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.script import Plain
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.reports.positions import by_position
from gemmule.sw.text.detokenize import Detokenizer

from .test_cli import run
from .test_decoding import FakeModel

SMALL = ("generate", "--model", "small", "--prompt", "def mean(values):\n    total = 0\n    for ")


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def made(*arguments: str) -> tuple[dict, str]:
        assert run(monkeypatch, *arguments, "--json", str(tmp_path / "a.json")) == 0
        return json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    return made


def test_stop_strings(generated) -> None:
    """Taken from the text itself, from the middle of a token on; the streamed text is the one that is written."""
    whole, _ = generated(*SMALL, "--max-new-tokens", "16", "--no-baseline")
    at = len(whole["text"]) // 2
    stop = whole["text"][at:at + 5]
    record, shown = generated(*SMALL, "--max-new-tokens", "40", "--stop", "never there", "--stop", stop, "--stream")
    assert record["text"] == whole["text"][:whole["text"].index(stop)]
    assert record["tokens"] == whole["tokens"][:len(record["tokens"])]
    assert (record["finish_reason"], record["stop_string"]) == ("stop", stop)
    assert record["stop"] == ["never there", stop]
    assert record["same_tokens_as_ar"] is True
    assert record["prompt"] + record["text"] + f"\nended before {stop!r}:" in shown


def test_passes_that_are_more(generated) -> None:
    """Prompts in launches of their own, and no cache: each pass goes over the text in several."""
    record, shown = generated(*SMALL, "--method", "ar", "--kv-cache", "none", "--max-new-tokens", "2")
    assert record["target_passes_saved"] < 0
    assert re.search(r"with [1-9]\d*% more passes of the target", " ".join(shown.split()))


def test_turns_without_a_cache(generated, tmp_path: Path) -> None:
    """Each turn goes on from all before it; without a cache the same text, at cycles that grow with it."""
    (tmp_path / "turns.txt").write_text("def mean(values):\n---\n\n\ndef median(values):\n---\n \n")
    command = ("generate", "--model", "small", "--turns", str(tmp_path / "turns.txt"), "--max-new-tokens", "9",
             "--method", "pld")
    kept, shown = generated(*command)
    none, report = generated(*command, "--kv-cache", "none", "--no-baseline")
    assert kept["same_tokens_as_ar"] is True
    assert none["tokens"] == kept["tokens"] == [token for turn in kept["turns"] for token in turn["tokens"]]
    assert none["text"] == kept["text"] == "".join(turn["text"] for turn in kept["turns"])
    assert [turn["prompt"] for turn in kept["turns"]] == ["def mean(values):", "\n\ndef median(values):"]
    first, second = kept["turns"]
    assert [first["cached_tokens"], second["cached_tokens"]] == [0, first["prompt_tokens"] + len(first["tokens"]) - 1]
    assert sum(turn["cycles"] for turn in kept["turns"]) == kept["cycles"]
    positions = [position for position, _ in none["cycles_by_position"]]
    assert positions == [position for position, _ in kept["cycles_by_position"]] == sorted(positions)
    assert none["cycles_by_position"][-1][1] > 1.5 * kept["cycles_by_position"][-1][1]
    assert "tokens before a step" in report
    assert "tokens before a step" not in shown
    assert "cached before" in shown


def test_a_conversation_that_fills_the_context(generated, tmp_path: Path) -> None:
    """The turn that does not fit is not taken; with --context-overflow it is, and what is dropped is told."""
    (tmp_path / "turns.txt").write_text("x = 1\n---\n" + "y = 2\n" * 64 + "---\nz = 3\n")
    command = ("generate", "--model", "small", "--turns", str(tmp_path / "turns.txt"), "--max-new-tokens", "2",
             "--no-baseline")
    record, _ = generated(*command)
    assert record["finish_reason"] == "context"
    assert len(record["turns"]) == 1
    record, _ = generated(*command, "--context-overflow", "sinks")
    assert len(record["turns"]) == 3
    assert record["dropped_tokens"] > 0


def letters(ids: list[int]) -> str:
    """Of a tokenizer whose tokens are letters."""
    return "".join(chr(ord("a") + token) for token in ids)


def test_an_interrupt_ends_behind_a_step() -> None:
    """What was generated by then is there and shown; the handler is back in its place."""
    written = io.StringIO()
    live = Live(Console(file=written, width=20), Detokenizer(letters), ["dbe", "a"], [])
    expected = FakeModel()
    text = [3, 1, 4]
    for _ in range(30):
        text.append(expected.next_token(text))

    class Slow(FakeModel):
        def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
            super().commit(position, path)
            if position == 8:
                os.kill(os.getpid(), signal.SIGINT)
            return 0

    talk = Conversation(Slow(), Autoregressive(), Ledger(load_config("tiny")))  # type: ignore[arg-type]
    with halting() as halted:
        runs = turns(talk, Plain([[3, 1, 4], [0]]), 30, lambda new: None, halted, live)
    assert [run.finish_reason for run in runs] == ["interrupted"]
    assert runs[0].tokens == text[3:10]
    assert written.getvalue() == f"dbe{letters(text[3:10])}\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_command_writes_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemmule", *SMALL, "--max-new-tokens", "200", "--stream", "--json",
               str(tmp_path / "a.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout
    seen = b""
    while len(seen.partition(SMALL[-1].encode())[2]) < 6:
        seen += process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=300)
    assert process.returncode == INTERRUPTED
    assert error.splitlines()[-1] == b"interrupted"
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["finish_reason"] == "interrupted"
    assert record["ar"] is None
    assert 0 < len(record["tokens"]) < 200
    assert SMALL[-1] + record["text"] + "\ninterrupted:" in (seen + rest).decode()


def test_a_turn_without_tokens() -> None:
    talk = Conversation(FakeModel(), Autoregressive(), Ledger(load_config("tiny")))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one token"):
        turns(talk, Plain([[]]), 3, lambda new: None, lambda: False)


@pytest.mark.parametrize("options", [("--method", "draft", "--num-speculative-tokens", "3"),
                                     ("--method", "pld", "--temperature", "0.8", "--seed", "5",
                                      "--no-baseline")])
def test_batch(generated, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Three texts, two at a time: each is that of its prompt alone, drawn tokens with noise of its own."""
    prompts = ["def mean(values):\n    ", "import", "class Stack:\n    def push(self, item):\n"]
    (tmp_path / "prompts.txt").write_text("\n---\n".join(prompts))
    record, shown = generated("generate", "--model", "small", "--prompt-file", str(tmp_path / "prompts.txt"),
                              "--batch", "2", "--max-new-tokens", "8", *options)
    assert [text["prompt"] for text in record["texts"]] == prompts
    assert record["same_tokens_as_ar"] is (None if "--no-baseline" in options else True)
    assert record["tokens"] == [token for text in record["texts"] for token in text["tokens"]]
    assert "3 texts, 2 at a time" in shown
    drawn, config = "--temperature" in options, load_config("base")
    with Session(config, general=drawn) as session:
        for number, text in enumerate(record["texts"]):
            rule = Match(Sampling(0.8), Noise(5, number)) if drawn else GREEDY
            alone = session.generate("ar", encode(text["prompt"]), 8, rule=rule)
            assert text["tokens"] == alone.tokens
    assert record["target_passes"] < 3 * 8


def test_int4_weights(generated) -> None:
    """Another network, whose own text every method gives; half the bytes of weights pass by."""
    wide, _ = generated(*SMALL, "--max-new-tokens", "6", "--method", "ar")
    record, _ = generated(*SMALL, "--max-new-tokens", "6", "--weights", "int4")
    assert record["same_tokens_as_ar"] is True
    assert (wide["weights"], record["weights"]) == (None, "int4")
    assert record["ar"]["dram_bytes"] < 0.7 * wide["dram_bytes"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--weights", "int2"], "--weights must be one of int8, int4, not 'int2'"),
    (["--batch", "0"], "--batch must be from 1 to 32, not 0"),
    (["--batch", "2"], "--batch 2 needs --prompt-file"),
    (["--batch", "2", "--turns", "{empty}"], "--batch 2 does not go with --turns, which is of one text"),
    (["--batch", "2", "--kv-cache", "none"], "--batch 2 does not go with --kv-cache none"),
    (["--batch", "2", "--launch", "step"], "--batch 2 does not go with --launch step"),
    (["--batch", "2", "--stream"], "--batch 2 does not go with --stream"),
    (["--batch", "2", "--prompt-file", "{empty}"], "must hold at least one text"),
    (["--stop", ""], "--stop must hold at least one character"),
    (["--context-overflow", "wrap"], "--context-overflow must be one of stop, crop, sinks, not 'wrap'"),
    (["--kv-cache", "half"], "--kv-cache must be one of full, none, not 'half'"),
    (["--kv-cache", "none", "--launch", "step"], "--launch step does not go with --kv-cache none"),
    (["--turns", "/none"], "--turns /none must name a file that can be read"),
    (["--turns", "{empty}"], "must hold at least one text between lines that are '---'"),
    (["--html", "/"], "--html must name a writable file, not '/'"),
    (["--trace", "/dev/null/a"], "--trace must name a writable file, not '/dev/null/a'"),
    (["--turns", "{empty}", "--prompt", "a"], "--turns and --prompt exclude each other"),
    (["--turns", "{empty}", "--prompt-file", "a"], "--turns and --prompt-file exclude each other"),
    (["--context-overflow", "crop", "--max-new-tokens", "0"], "--max-new-tokens must be at least 1, not 0"),
    (["--prompt", "x = 1\n" * 300], "shorten it, or --context-overflow crop"),
])
def test_refused_in_one_line(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                             capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_text("\n---\n \n")
    given = [argument.format(empty=tmp_path / "empty") for argument in arguments]
    assert run(monkeypatch, "generate", "--model", "small", *given) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert not [line for line in error if "Traceback" in line]


def test_cycles_by_position() -> None:
    assert by_position([]) == by_position([[]]) == []
    assert by_position([[(5, 10), (6, 30)], [(6, 8)]]) == [("5", [10, None]), ("6", [30, 8])]
    found = by_position([[(at, at * at) for at in range(10, 90)]])
    assert [label for label, _ in found][:2] == ["10 to 19", "20 to 29"]
    assert len(found) == 8
    assert found[0][1] == [sum(at * at for at in range(10, 20)) / 10]
