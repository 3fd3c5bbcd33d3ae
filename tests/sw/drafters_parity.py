"""Drafters with torch: `make parity`. Runs resume to the same bytes, and a drafter is an ordinary causal network."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import safe_open
from torch import Tensor

from gemmule.sw.training.drafters import networks, recipe, tiny
from gemmule.sw.training.drafters.collect import collect, load_drafter
from gemmule.sw.training.drafters.judging import ranks_of
from gemmule.sw.training.drafters.packed import Pack
from gemmule.sw.training.drafters.ranks import TOP
from gemmule.sw.training.drafters.run import run
from gemmule.sw.training.drafters.start import continued, open_start
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.training import HeadLoss
from gemmule.sw.training.drafters.writing import Pool, covered, frequent

pytestmark = pytest.mark.parity

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
DEPTHS = tiny.RECIPE.network.depths


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """A target that was never trained."""
    return tiny.tiny_pack(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="module")
def done(pack: Pack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an unbroken run wrote."""
    folder = tmp_path_factory.mktemp("run")
    run(tiny.RECIPE, pack, folder / "out", folder / "work")
    return folder / "out"


def weights(folder: Path) -> dict[str, bytes]:
    """A run's weights."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


def test_a_run_gives_the_same_bytes_again_and_when_it_resumes(pack, done, tmp_path):
    run(tiny.RECIPE, pack, tmp_path / "again", tmp_path / "work")
    assert weights(tmp_path / "again") == weights(done)
    run(tiny.RECIPE, pack, tmp_path / "broken", tmp_path / "other", stop_after=3)
    assert weights(tmp_path / "broken") != weights(done)
    run(tiny.RECIPE, pack, tmp_path / "broken", tmp_path / "other")
    assert weights(tmp_path / "broken") == weights(done)
    assert len(weights(done)) == len(recipe.KINDS)
    with pytest.raises(ValueError, match="are of another recipe or seed"):
        run(replace(tiny.RECIPE, seed=2), pack, tmp_path / "broken", tmp_path / "other")


@pytest.fixture(scope="module")
def later(pack: Pack, done: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run wrote that continues one of the drafters."""
    folder = tmp_path_factory.mktemp("later")
    start = open_start(done, SECOND.kinds, SECOND.network)
    run(continued(SECOND, start), pack, folder / "out", folder / "work", start=start)
    return folder / "out"


SECOND = replace(tiny.RECIPE, seed=2, kinds=("parallel",))


def test_a_continued_run_begins_with_the_weights_and_gives_the_same_bytes_again(pack, done, later, tmp_path):
    start = open_start(done, SECOND.kinds, SECOND.network)
    plan = continued(SECOND, start)
    run(plan, pack, tmp_path / "none", tmp_path / "work of none", stop_after=0, start=start)
    with safe_open(tmp_path / "none" / "parallel.safetensors", "np") as file, \
            safe_open(done / "parallel.safetensors", "np") as before:
        assert set(file.keys()) == set(before.keys())
        assert all((file.get_tensor(name) == before.get_tensor(name)).all() for name in before.keys())  # noqa: SIM118
    run(plan, pack, tmp_path / "again", tmp_path / "work", start=start)
    assert weights(tmp_path / "again") == weights(later)
    assert list(weights(later)) == ["parallel.safetensors"]
    assert weights(later)["parallel.safetensors"] != weights(done)["parallel.safetensors"]
    run(plan, pack, tmp_path / "broken", tmp_path / "other", stop_after=3, start=start)
    run(plan, pack, tmp_path / "broken", tmp_path / "other", start=start)
    assert weights(tmp_path / "broken") == weights(later)
    for folder in (later, tmp_path / "broken"):
        points = json.loads((folder / "curve.json").read_text())
        ended = json.loads((done / "curve.json").read_text())[-1]
        assert points[0]["step"] == 0
        assert points[0]["tokens"] == ended["tokens"] < points[1]["tokens"]
        assert points[0]["judged"] == {"parallel": ended["judged"]["parallel"]}  # the same texts judge
        assert len({point["step"] for point in points}) == len(points)


def test_a_continued_run_asks_nothing_that_judges(pack, done, later):
    judging = Pool.load(done / "held_out.npz")
    head, turn = len(pack.before), len(pack.turn)

    def asked(pool: Pool) -> set[tuple[int, ...]]:
        (tokens,), (starts,) = pool.tokens, pool.starts
        return {tuple(text[head:start - turn].tolist()) for text, start in zip(tokens, starts.tolist())}

    first, second = (Pool.load(folder.with_name("work") / "given.npz") for folder in (done, later))
    assert asked(second) != asked(first)
    assert not asked(second) & asked(judging)


def test_what_cannot_be_continued_is_refused(pack, done, tmp_path):
    start = open_start(done, SECOND.kinds, SECOND.network)
    with pytest.raises(ValueError, match="must name the weights that the run begins with"):
        run(SECOND, pack, tmp_path / "out", tmp_path / "work", start=start)
    with pytest.raises(ValueError, match="start from weights of the same network"):
        open_start(done, SECOND.kinds, replace(SECOND.network, parallel_inner=32))
    with pytest.raises(ValueError, match=r"lacks held_out.npz, eagle.safetensors: --start must be"):
        open_start(tmp_path, ["eagle"], SECOND.network)


def test_greedy_text_is_what_the_target_says_to_it(pack):
    target = Target(pack, CPU, DEPTHS)
    prompts = [torch.tensor(text) for text in ([5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 20, 21], [30])]
    written = target.write(prompts, 20, 0, torch.Generator())
    alone = target.write(prompts[:1], 20, 0, torch.Generator())
    _, final = target.read(written.tokens)
    best = target.logits(final).argmax(-1)
    for row, prompt in enumerate(prompts):
        start, end = int(written.starts[row]), int(written.ends[row])
        assert start == len(prompt)
        assert written.tokens[row, :start].tolist() == prompt.tolist()
        assert best[row, start - 1:end - 1].tolist() == written.tokens[row, start:end].tolist()
        assert bool(written.closed[row]) == (int(written.tokens[row, end - 1]) == tiny.END)
    assert alone.tokens[0, :int(alone.ends[0])].tolist() == written.tokens[0, :int(written.ends[0])].tolist()


def drafter(kind: str, pack: Pack) -> networks.Drafter:
    """With random weights everywhere."""
    torch.manual_seed(1)
    made = networks.build(kind, tiny.SHAPE, tiny.RECIPE.network, torch.from_numpy(pack.tensors["token_embd.weight"]),
                          torch.arange(0, tiny.SHAPE.vocab, 2))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, mean=float(weight.dim() == 1), std=0.3)
    return made


def inputs() -> tuple[Tensor, Tensor]:
    """Tokens and hidden rows of two texts."""
    torch.manual_seed(2)
    return torch.randint(tiny.SHAPE.vocab, (2, 12)), torch.randn(2, 12, len(DEPTHS), tiny.SHAPE.hidden)


@torch.no_grad()
@pytest.mark.parametrize("anchor", [0, 3, 6])
def test_the_sequential_drafter_is_a_causal_network_that_reads_itself(pack, anchor):
    made, (tokens, rows) = drafter("eagle", pack), inputs()
    assert isinstance(made, networks.Eagle)
    drafted = made.draft(tokens, rows, torch.tensor([0, 3, 6]), 4)
    fused = made.fuse(torch.cat([norm(rows[:, :anchor + 1, at]) for at, norm in enumerate(made.depth_norms)], -1))
    x = made._joined(tokens[:, 1:anchor + 2], fused)
    for step in range(4):
        y = made.block.read(x)[0][:, -1]
        found = drafted[0][:, anchor] if step == 0 else drafted[step][:, [0, 3, 6].index(anchor)]
        torch.testing.assert_close(found, y, atol=1e-4 * float(y.abs().max()), rtol=1e-4)
        x = torch.cat([x, made._joined(tokens[:, anchor + 2 + step, None], y[:, None])], 1)


@torch.no_grad()
@pytest.mark.parametrize("anchor", [0, 3, 6])
def test_the_one_pass_drafter_is_a_causal_network_over_text_and_masks(pack, anchor):
    made, (tokens, rows) = drafter("parallel", pack), inputs()
    assert isinstance(made, networks.Parallel)
    count = tiny.RECIPE.network.positions
    drafted = made.draft(tokens, rows, torch.tensor([0, 3, 6]), count)
    token, *depths = made.norms
    read = torch.cat([F.embedding(tokens[:, 1:anchor + 2], made.embedding), made.mask_embedding.expand(2, -1, -1)], 1)
    seen = torch.cat([rows[:, :anchor + 1], rows[:, anchor:anchor + 1].expand(-1, count - 1, -1, -1)], 1)
    x = made.join(torch.cat([token(read), *(norm(seen[:, :, at]) for at, norm in enumerate(depths))], -1))
    for block in made.blocks:
        x = block.read(x)[0]
    for step in range(count):
        found = drafted[0][:, anchor] if step == 0 else drafted[step][:, [0, 3, 6].index(anchor)]
        torch.testing.assert_close(found, x[:, anchor + step], atol=1e-4, rtol=1e-4)


def test_the_loss_has_the_gradient_of_cross_entropy():
    torch.manual_seed(3)
    rows, head = torch.randn(9, 8, dtype=torch.float64, requires_grad=True), torch.randn(12, 8, dtype=torch.float64)
    wanted, at = torch.randn(5, 12).softmax(-1), torch.tensor([0, 1, 2, 3, 4, 4, 3, 0, 1])
    (gradient,) = torch.autograd.grad(HeadLoss.apply(rows, head, wanted, at, 0.5), rows)
    said, soft = (rows @ head.T).log_softmax(-1), wanted[at].double()
    plain = (-(soft * said).sum(-1) - 0.5 * said.gather(1, soft.argmax(-1, keepdim=True))[:, 0]).mean()
    torch.testing.assert_close(HeadLoss.apply(rows, head, wanted, at, 0.5), plain)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain, rows)[0])


def test_ranks_are_of_the_answers_own_tokens(pack, done):
    target = Target(pack, CPU, DEPTHS)
    made, pool = load_drafter(done / "parallel.safetensors", target), Pool.load(done / "held_out.npz")
    found = ranks_of({"parallel": made}, target, pool, 4, chunk=3)["parallel"]
    (tokens,), (starts,), (ends,) = pool.tokens, pool.starts, pool.ends
    assert found.counts.tolist() == (ends - starts - 1).tolist()
    rows = np.split(found.values, np.cumsum(found.counts)[:-1])
    text, start, end = tokens[:1].long(), int(starts[0]), int(ends[0])
    with torch.no_grad():
        read, _ = target.read(text[:, :end])
        _, second = made.draft(text[:, :end], read, torch.arange(end), 2)
        order = made.vocabulary[made.logits(second).topk(TOP).indices][0]
    for at in range(start - 1, end - 3):
        place = (order[at] == text[0, at + 3]).nonzero()
        assert rows[0][at - start + 1, 1] == (int(place[0, 0]) if len(place) else TOP)
    assert (found.values[np.cumsum(found.counts) - 1, 1:] == TOP).all()  # nothing comes behind the end


def test_the_vocabulary_is_what_answers_hold_most_often():
    pool = Pool(6, [torch.tensor([[9, 9, 9, 4, 4, 5], [9, 9, 7, 7, 4, 0]])], [torch.tensor([3, 2])],
                [torch.tensor([6, 5])], ["a", "b"])
    assert frequent([pool], 3, 12, [1]).tolist() == [1, 4, 7]
    assert covered(pool, torch.tensor([4, 9]), 12) == 0.5


def test_collecting_fills_the_page(pack, done, later, tmp_path):
    docs = tmp_path / "docs"
    for folder in ("results", "img"):
        (docs / folder).mkdir(parents=True)
    (docs / "drafters.md").write_text((ROOT / "docs" / "drafters.md").read_text())
    with pytest.raises(ValueError, match="continues another run: give that one before it"):
        collect([later], pack, tmp_path / "weights", docs, texts=2)
    with pytest.raises(ValueError, match="does not continue"):
        collect([done, done], pack, tmp_path / "weights", docs, texts=2)
    record = collect([done, later], pack, tmp_path / "weights", docs, texts=2)
    assert list(record["drafters"]) == list(recipe.KINDS)
    assert {path.stem for path in (tmp_path / "weights").iterdir()} == set(recipe.KINDS)
    page = (docs / "drafters.md").read_text()
    assert "Run 2 continues *one pass, two layers*" in page
    assert f"{record['drafters']['parallel']['tokens']:,} tokens seen" in " ".join(page.split())
    assert record["drafters"]["parallel"]["tokens"] > record["drafters"]["eagle"]["tokens"]
    for one in record["drafters"].values():
        assert one["bytes_int8"] < 2 * one["parameters"]
