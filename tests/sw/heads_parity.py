"""Training of heads, which needs torch: resumed it gives the same bytes; what is counted is what stands there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from gemmule.sw.models.trained.read import read_trained
from gemmule.sw.training.drafters import tiny
from gemmule.sw.training.drafters.packed import Pack
from gemmule.sw.training.drafters.ranks import path_shares
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.heads import bundled, published
from gemmule.sw.training.heads.anchors import Frozen, losses_of
from gemmule.sw.training.heads.answers import Answers, written_answers
from gemmule.sw.training.heads.judging import looping
from gemmule.sw.training.heads.recipe import AnswersRecipe, HeadsRecipe
from gemmule.sw.training.networks.drafting import DraftingHeads
from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.running import load_state, open_place

SHAPE = ModelShape(hidden_size=32, intermediate_size=48, num_layers=2, num_heads=1, vocab_size=60, max_positions=32)
PLAN = HeadsRecipe(kinds={"medusa": (2, 0), "blockwise": (2, 8), "hydra": (3, 8)}, prompt=6, length=20, chunk=8,
                   chunks=2, judged=4, windows=6, rows=4, window_rows=2, steps=6, warm_up=1)
PLACE = open_place(1, compiled=False)


def prepared(folder: Path) -> Path:
    """A corpus of random tokens."""
    draws, corpus = np.random.default_rng(1), folder / "corpus"
    corpus.mkdir(parents=True)
    for name in ("library", "packages", "calibration", "copies"):
        np.save(corpus / f"{name}.npy", draws.integers(2, 60, 900).astype(np.uint16))
    np.save(corpus / "starts.npy", np.array([0, 900]))
    return folder


def target() -> LanguageModel:
    torch.manual_seed(3)
    return LanguageModel(SHAPE).eval().requires_grad_(False)


def test_a_resumed_run_gives_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name, parts in (("whole", [None]), ("parts", [2, 1, None])):
        out, record = prepared(tmp_path / name), None
        (tmp_path / name / "made").mkdir()
        for most in parts:
            record = bundled.train_heads(PLAN, 1, out, target(), "x" * 64, PLACE, tmp_path / name / "made", most)
            assert (record is None) == (most is not None)
        assert record is not None
        files.append({kind: (tmp_path / name / "made" / f"{kind}.safetensors").read_bytes() for kind in PLAN.kinds})
    assert files[0] == files[1]
    assert record["kinds"]["medusa"]["parameters"] == 2 * (32 * 32 + 32) + 32
    for kind in PLAN.kinds:
        found = read_trained(tmp_path / "whole" / "made" / f"{kind}.safetensors", kind)
        assert found.depths == (2,)
        with safe_open(tmp_path / "whole" / "made" / f"{kind}.safetensors", "numpy") as file:
            assert len(file.get_tensor("vocabulary")) == 60


ANSWERS = AnswersRecipe(kinds=PLAN.kinds, steps=6, writing=tiny.RECIPE.writing, rounds=2, anchors=40,
                        judge_steps=2)


LISTED = torch.arange(2, 52)


def test_a_resumed_run_on_a_published_target_gives_the_same_bytes(tmp_path: Path) -> None:
    """Killed while it writes, and twice while it trains."""
    given, files, records = tiny.tiny_pack(tmp_path / "pack"), [], []
    kept = f"answers-{ANSWERS.answers_mark(1, given.mark())}"
    for name, parts in (("whole", [None]), ("parts", [1, 3, None])):
        folder = tmp_path / name / "made"
        folder.mkdir(parents=True)
        if name == "parts":
            written_answers(Target(given, PLACE.device, (3,)), given, ANSWERS.writing, 1, tmp_path / name / kept, 1)
        for most in parts:
            record = published.train_heads(ANSWERS, 1, tmp_path / name, given, LISTED, PLACE, folder, most)
            assert (record is None) == (most is not None)
        assert record is not None
        records.append({key: record[key] for key in ("kinds", "answers", "anchors")})
        files.append({kind: (folder / f"{kind}.safetensors").read_bytes() for kind in ANSWERS.kinds})
    assert files[0] == files[1]
    assert records[0] == records[1]
    assert [*(tmp_path / "parts").glob("answers-*")] == [tmp_path / "parts" / kept]
    assert [line["step"] for line in record["curve"]] == [2, 4, 6]
    for kind in ANSWERS.kinds:
        found = read_trained(tmp_path / "whole" / "made" / f"{kind}.safetensors", kind)
        assert (found.depths, len(found.tokens)) == ((3,), 50)
        assert dict(found.shares) == {tuple(path): share for path, share in records[0]["kinds"][kind]["paths"]}


def test_a_run_goes_on_from_its_own_checkpoint_alone(tmp_path: Path) -> None:
    """Not from that of other tokens that can be said, of another target or of other prompts."""
    given, other = tiny.tiny_pack(tmp_path / "pack"), tiny.tiny_pack(tmp_path / "other", 1)
    assert len({given.mark(), other.mark(), replace(given, lists=other.lists).mark(),
                replace(given, tensors=other.tensors).mark()}) == 4

    def train(given: Pack, listed: Tensor, steps: int | None) -> dict[str, Any] | None:
        return published.train_heads(ANSWERS, 1, tmp_path, given, listed, PLACE, tmp_path, steps)

    train(given, LISTED, 2)
    for pack, listed in ((given, LISTED + 1), (other, LISTED)):
        with pytest.raises(ValueError, match="is of another recipe or seed: remove it, or give another --out"):
            train(pack, listed, 2)
    train(given, LISTED, 0)
    assert load_state(tmp_path / "heads.pt", torch.load(tmp_path / "heads.pt")["recipe"])["step"] == 2
    (tmp_path / "heads.pt").unlink()
    record = train(given, LISTED, None)
    assert [line["step"] for line in record["curve"]] == [2, 4, 6]  # none of what was removed


def test_heads_learn_to_the_end_of_an_answer() -> None:
    """Each head as far as there is something that it is to say, and nothing of the next answer."""
    answers = Answers(torch.arange(10, 17), torch.arange(7.0)[:, None].half(), torch.tensor([4, 1, 2]), ("a",) * 3)
    source = published.Written(replace(ANSWERS, anchors=4), 1, Frozen(torch.eye(20)), torch.ones(1), answers)
    told = source.step(0)
    said = {int(row): tokens[1:1 + taught].tolist() for row, tokens, taught
            in zip(told.rows[:, 0], told.tokens, told.taught, strict=True)}
    assert said == {0: [11, 12, 13], 1: [12, 13], 2: [13], 5: [16]}
    assert told.behind[0][:, 0].tolist() == (told.rows[:, 0] + 1).tolist()
    wanted, rows = [torch.full((4, 20), 0.05)] * 3, list(torch.randn(3, 4, 20, generator=torch.manual_seed(1)))

    def loss() -> float:
        return float(losses_of(Fixed(rows), Frozen(torch.eye(20)), told, wanted, ANSWERS, PLACE))

    whole = loss()
    for number, row in enumerate(rows):
        row[told.taught <= number] += 1
    assert loss() == whole
    rows[2][told.taught > 2] *= 2
    assert loss() != whole


def test_rows_that_are_kept_choose_the_tokens(tmp_path: Path) -> None:
    """As another pass over the text has them; where an answer is drawn, other tokens are likely, too."""
    given = tiny.tiny_pack(tmp_path / "pack")
    read = Target(given, PLACE.device, (3,))
    held_out, answers = written_answers(read, given, tiny.RECIPE.writing, 1, tmp_path / "answers", 1)
    assert torch.equal(read.logits(held_out.rows.float()).argmax(-1), held_out.tokens.long())
    assert len(answers.tokens) == len(answers.rows) == int(answers.counts.sum())
    assert (read.logits(answers.rows.float()).argmax(-1) == answers.tokens).float().mean() > 0.3
    with np.load(tmp_path / "answers" / "held_out.npz") as pool:
        tokens, start, end = pool["tokens"][0], pool["starts"][0], pool["ends"][0]
    _, final = read.read(torch.from_numpy(tokens[None, :end]).long())
    kept = held_out.rows[:end - start].float()
    assert torch.allclose(final[0, start - 1:end - 1], kept, atol=2e-3 * float(kept.abs().max()))


class Fixed(DraftingHeads):
    """Heads that say what they are given."""

    def __init__(self, rows: list[Tensor]) -> None:
        super().__init__(rows[0].shape[1], len(rows), 0)
        self.rows = rows

    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        return self.rows


class Told(DraftingHeads):
    """Heads that say the token that comes at their place plus ``off``, and nothing that is right behind it."""

    def __init__(self, off: int) -> None:
        super().__init__(4, 2, 0)
        self.off = off

    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        return [table[(tokens[:, at + 1] + self.off) % len(table)] for at in range(2)]


def test_what_is_judged(tmp_path: Path) -> None:
    """Behind an answer's last token nothing is drafted; none is right behind its end, nor one that is not listed."""
    answers = Answers(torch.tensor([3, 1, 2, 0, 2, 3]), torch.ones(6, 4).half(), torch.tensor([4, 2]), ("a", "b"))
    gain, table = torch.ones(4), torch.eye(4)
    ranks = published.ranked(Told(0), Frozen(table), gain, answers, PLACE)
    assert ranks.counts.tolist() == [3, 1]
    assert ranks.values.tolist() == [[0, 0], [0, 0], [0, 8], [0, 8]]
    ranks = published.ranked(Told(0), Frozen(table, torch.tensor([0, 1, 3])), gain, answers, PLACE)
    assert ranks.values.tolist() == [[0, 8], [8, 0], [0, 8], [0, 8]]


def test_the_best_paths() -> None:
    """Of ranks by anchor and head; a path stands behind those that it goes on from."""
    ranks = np.array([[0, 0], [0, 1], [0, 0], [1, 0], [8, 0]])
    assert path_shares(ranks) == [((0,), 0.6), ((0, 0), 0.4), ((1,), 0.2), ((0, 1), 0.2), ((1, 0), 0.2)]


def test_texts_that_loop() -> None:
    assert looping(np.array([1, 2, 3, 4] * 6))
    assert not looping(np.arange(24))


@pytest.mark.parametrize("option", ["--seed=-1", "--threads=0", "--rounds=0", "--rounds=1000", "--steps=0", "--out=F",
                                    "--docs=F"])
def test_wrong_options_of_the_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    refused(published.main, tmp_path, monkeypatch, option)
    assert capsys.readouterr().err.startswith("error: " + option.partition("=")[0] * (option[-1] != "F"))


@pytest.mark.parametrize("option", ["--seed=-1", "--threads=0", "--most-steps=0", "--out=F"])
def test_wrong_options_of_a_bundled_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    refused(bundled.main, tmp_path, monkeypatch, option)
    assert capsys.readouterr().err.startswith("error: " + option.partition("=")[0] * (option[-1] != "F"))


def refused(main: Callable[[], None], folder: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """With exit code 2. ``F`` is a file where a folder is wanted."""
    monkeypatch.chdir(folder)
    Path("F").write_text("a file")
    monkeypatch.setattr("sys.argv", ["train", option])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert not [path for path in folder.rglob("*") if path.is_file() and path.name != "F"]
