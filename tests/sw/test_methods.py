"""Every method that declares itself gives the text of autoregressive decoding: alone, in batches, on any cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.beside import compile_in_cache
from gemmule.compiler.programs.selecting import compile_selection
from gemmule.compiler.quantize.narrow import narrowed
from gemmule.config import load_config
from gemmule.sw.datastore.datastore import DEPTH, Datastore
from gemmule.sw.datastore.suffix_array import suffix_array
from gemmule.sw.decoding.asking import alone, together
from gemmule.sw.decoding.candidates.chains import SelfDraft
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import DRAFT, METHODS, Option, Request
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.jacobi import Jacobi
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.tree import Drafter, Extra, Tree
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.choosing import DeviceChooser
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.device.timed_choosing import TimedChooser
from gemmule.sw.errors import InputError
from gemmule.sw.kv.parts import parts_of
from gemmule.sw.kv.selected import Chooser
from gemmule.sw.kv.text import TextKV
from gemmule.sw.limits import Range
from gemmule.sw.step import Forward, LayerRange, Want
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import of_methods, thinned

SEED = 20261126
CONFIG = load_config("edge")
BESIDE = 1 << 19
"""Bytes behind a target for its int4 copy."""
SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=3, vocab=41, positions=60)
PROMPTS = ([3, 1, 4, 1, 5], [7, 7], [2, 9, 2, 9, 2, 9], [40])
FREE = [name for name, one in METHODS.items() if one.common and one.lossless]
"""Methods that any target takes; those with a drafter of its hidden rows, and lossy ones, have tests of their own."""
SHARING = [name for name in FREE if not METHODS[name].schedule]
"""Those that go in batches: not those that draft in a second cache."""
OPTIONS = {"triforce": {"cache_budget": 16, "cache_sinks": 2, "cache_window": 6, "retrieve_every": 8,
                        "lowest_cache_budget": 12, "lowest_drafts": 2}}
"""Of methods whose defaults are for long texts."""
RULES = {"greedy": GREEDY, "match": Match(Sampling(0.7, 8, Fraction(9, 10)), Noise(5))}


@cache
def network(salt: int = 0) -> Network:
    return random_network(SIZES, SEED + salt)


@cache
def model(name: str = TARGET, salt: int = 0, **options: int | bool) -> LoadedModel:
    """Each is compiled once: texts have caches of their own, and begin with empty ones."""
    options = {"rows": 8, "tokens": True, "general": True} | options
    program = compile_network(network(salt), CONFIG, **options)  # type: ignore[arg-type]
    dram, selection = program.fill(network(salt)), None
    if program.batch == 1 and not program.pool:
        behind = round_up(len(dram), CONFIG.dram.banks * CONFIG.dram.row_bytes)
        selection = compile_selection(network(salt), program, rows=8, first=2, last=6, base_address=behind)
        dram = np.concatenate([dram, np.zeros(behind + selection.select.size - len(dram), dtype=np.uint8)])
        selection.fill(dram[behind:], network(salt))
    return LoadedModel(name, program, dram, open_device("model", CONFIG, len(dram) + BESIDE), selection=selection)


@cache
def int4_copy(target: LoadedModel) -> LoadedModel | None:
    """Of a target whose cache stands in order, behind it on the same device."""
    if target.program.pool:
        return None
    size = target.program.size + (target.selection.select.size if target.selection else 0)
    narrow, base = narrowed(network()), round_up(size, 1 << 14)
    program = compile_in_cache(narrow, target.program, rows=1, base_address=base, general=True)
    if isinstance(target, InterpretedModel):
        return InterpretedModel(DRAFT, narrow, program, target.timer, whole=target).in_cache_of(target)
    return LoadedModel(DRAFT, program, program.fill(narrow), target.device).in_cache_of(target)


@cache
def datastore(corpus: str) -> Datastore:
    """Random tokens, a separator behind every thirty, in which most runs of two stand."""
    tokens = np.random.default_rng(SEED).integers(SIZES.vocab, size=9000).astype(np.uint16)
    tokens[29::30] = SIZES.vocab
    return Datastore(tokens, suffix_array(tokens, DEPTH), SIZES.vocab, corpus)


def chooser(target: LoadedModel, method: str) -> Chooser | None:
    """What fills the second cache, where a method drafts in one."""
    schedule, selection = METHODS[method].schedule, target.selection
    if schedule is None or selection is None:
        return None
    if isinstance(target, InterpretedModel):
        return TimedChooser(target, selection, schedule(METHODS[method].values(OPTIONS[method]), target.room))
    return DeviceChooser(target, selection)


def talk(method: str, target: LoadedModel, draft: LoadedModel, rule: Rule, ledger: Ledger, *, count: int = 3,
         overflow: str = "stop", kv: TextKV | None = None) -> Conversation:
    way = METHODS[method]
    kv = target.charging(ledger).kv() if kv is None else kv
    copied, own = int4_copy(target) if way.needs_int4 else None, target.charging(ledger, DRAFT)
    request = Request(draft=draft.charging(ledger), target=own, cache=kv,
                      lengths=LENGTHS["constant"](count if way.drafts else 0), ends=frozenset(), rule=rule,
                      host=CONFIG.host, options=way.values(OPTIONS.get(method, {})), datastore=datastore,
                      int4=copied and copied.charging(ledger), skipping=lambda: (1,), chooser=chooser(own, method))
    return Conversation(target, way.make(request), ledger, rule=rule, overflow=OVERFLOWS[overflow], kv=kv)


@cache
def plain(prompt: tuple[int, ...], new: int, rule: str, overflow: str, text: int | None = None) -> Generation:
    """What autoregressive decoding gives, once for all methods; by the rule of a batch's ``text`` or of one alone."""
    chosen = RULES[rule] if text is None else RULES[rule].of_text(text)
    return generate(model(), Autoregressive(), list(prompt), new, Ledger(CONFIG), rule=chosen,
                    overflow=OVERFLOWS[overflow])


@pytest.fixture(scope="module")
def models() -> tuple[LoadedModel, LoadedModel]:
    return model(), model(DRAFT, 1)


@pytest.mark.parametrize(("method", "rule"), thinned(FREE, RULES))
def test_alone(models: tuple[LoadedModel, LoadedModel], method: str, rule: str) -> None:
    """To the end of the context, and behind it; launches are charged to the names that the method declares."""
    target, draft = models
    for prompt, new, overflow in ((PROMPTS[0], 99, "stop"), (PROMPTS[1], 66, "sinks")):
        expected = plain(tuple(prompt), new, rule, overflow)
        ledger = Ledger(CONFIG)
        run = talk(method, target, draft, RULES[rule], ledger, overflow=overflow).turn(prompt, new)
        assert run.tokens == expected.tokens
        assert run.finish_reason == expected.finish_reason
        assert ledger.device_cycles == sum(ledger.by_model.values())
        assert set(ledger.launches) <= {TARGET, DRAFT}
        assert {name for name, count in ledger.launches.items() if count} == {TARGET, *METHODS[method].labels}


@pytest.mark.parametrize(("method", "rule"), thinned(SHARING, RULES))
def test_together(method: str, rule: str) -> None:
    """Texts of other lengths share passes, drafts with the target's first layers among them."""
    target, draft, ledger = model(batch=3, rows=4), model(DRAFT, 1, batch=3, rows=4), Ledger(CONFIG)
    talks = [talk(method, target, draft, RULES[rule].of_text(i), ledger, count=1 + i % 3) for i in range(len(PROMPTS))]
    runs = together([one.turning(prompt, 9 + 4 * i) for i, (one, prompt) in enumerate(zip(talks, PROMPTS))],
                    (DRAFT, TARGET), 3)
    for i, (run, prompt) in enumerate(zip(runs, PROMPTS)):
        assert run.tokens == plain(tuple(prompt), 9 + 4 * i, rule, "stop", i).tokens


@pytest.mark.parametrize("method", of_methods(
    [name for name in FREE if name not in ("ar", "draft")], ("int4-self", "layerskip", "draft-tree", "triforce")))
def test_by_the_interpreter(models: tuple[LoadedModel, LoadedModel], method: str) -> None:
    """The same tokens, steps and cycles as of the simulated device, first layers included."""
    target, draft = models
    timed = InterpretedModel(TARGET, network(), target.program, open_device("model", CONFIG, 1),  # type: ignore[arg-type]
                             selection=target.selection)
    runs, ledgers = [], []
    for one in (target, timed):
        ledgers.append(Ledger(CONFIG))
        runs.append(talk(method, one, draft, GREEDY, ledgers[-1]).turn(PROMPTS[0], 20))
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].steps == runs[1].steps
    assert ledgers[0] == ledgers[1]


def test_batches_by_the_interpreter() -> None:
    """Texts that draft more or less: rows of a sequence that waits stand where the device has them."""
    ledgers, texts = [], []
    for kind in (LoadedModel, InterpretedModel):
        target = model(batch=3, rows=4)
        if kind is InterpretedModel:
            target = InterpretedModel(TARGET, network(), target.program, open_device("model", CONFIG, 1))  # type: ignore[arg-type]
        ledgers.append(ledger := Ledger(CONFIG))
        talks = [talk("layerskip", target, target, GREEDY, ledger, count=1 + i % 3) for i in range(4)]
        texts.append([run.tokens for run in together(
            [one.turning(prompt, 9 + 4 * i) for i, (one, prompt) in enumerate(zip(talks, PROMPTS))],
            (DRAFT, TARGET), 3)])
    assert texts[0] == texts[1]
    assert ledgers[0] == ledgers[1]


def test_an_early_exit_of_all_layers_is_always_right(models: tuple[LoadedModel, LoadedModel]) -> None:
    """What would be accepted if the first layers were the whole: every draft, whose rows are those of the target."""
    target, _ = models
    ledger = Ledger(CONFIG)
    kv = target.charging(ledger).kv()
    drafter = SelfDraft(target.charging(ledger, DRAFT), kv, 3, GREEDY, layers=[(0, SIZES.layers)])
    run = Conversation(target, drafter, ledger, kv=kv).turn(PROMPTS[0], 20)
    assert run.acceptance == 1
    assert ledger.launches[DRAFT] == run.drafted


def test_an_exit_that_is_no_layer(models: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = models
    for layer in (0, 3):
        request = Request(draft=draft, target=target, cache=target.kv(), lengths=LENGTHS["constant"](3),
                          ends=frozenset(), rule=GREEDY, host=CONFIG.host, options={"exit_layer": layer})
        with pytest.raises(InputError, match=f"--exit-layer must be from 1 to 2 for a target of 3 layers, not {layer}"):
            METHODS["layerskip"].make(request)


# -- caches of other kinds in the loop

def test_pages_give_the_same_text() -> None:
    """A pool by list; a text that was forked goes on twice, neither disturbing the other."""
    contiguous, paged = model(), model(general=False, pool=192)
    expected = generate(contiguous, PromptLookup(3, frozenset()), PROMPTS[2], 40, Ledger(CONFIG))
    found = generate(paged, PromptLookup(3, frozenset()), PROMPTS[2], 40, Ledger(CONFIG))
    assert (found.tokens, found.steps) == (expected.tokens, expected.steps)
    first = Conversation(paged, Autoregressive(), Ledger(CONFIG), kv=paged.kv())
    first.turn(PROMPTS[2], 10)
    forked = paged.kv()
    first.cached.fork(forked)
    assert forked.ids == first.cached.ids
    other = Conversation(paged, PromptLookup(3, frozenset()), Ledger(CONFIG), kv=forked)
    said = [*first.window, 8]
    run = other.turn(said, 10)
    assert run.cached == len(said) - 2, "what was forked is not passed again"
    again = first.turn([5], 10)
    for text, tokens in ((said, run.tokens), ([*said[:-1], 5], again.tokens)):
        assert generate(contiguous, Autoregressive(), text, 10, Ledger(CONFIG)).tokens == tokens


DROPS = ("none", "evict", "gather")


@cache
def behind(method: str, drop: str) -> list[int]:
    """A method's text behind a cache of which these rows are gone."""
    target, draft, ledger = model(), model(DRAFT, 1), Ledger(CONFIG)
    kv = target.charging(ledger).kv()
    one = talk(method, target, draft, GREEDY, ledger, kv=kv)
    one.turn(list(range(1, 21)), 1)
    if drop == "evict":
        kv.evict(4, 8)
    elif drop == "gather":
        kv.gather(np.array([0, 1, 2, 9, 12, 15, 18, 19]))
    run = one.turn([6, 5], 20)
    assert kv.length < len(kv.ids) or drop == "none"
    return run.tokens


def test_a_cache_of_which_rows_are_gone_is_seen() -> None:
    assert len({tuple(behind("ar", drop)) for drop in DROPS}) > 1


@pytest.mark.parametrize(("method", "drop"), thinned([name for name in FREE if name != "ar"], DROPS))
def test_a_cache_of_which_rows_are_gone(method: str, drop: str) -> None:
    """Every method goes on behind it as autoregressive decoding does, and rollbacks leave what is left."""
    assert behind(method, drop) == behind("ar", drop)


class Wide(Drafter):
    """Random trees of more nodes than a launch has rows, some on the way of the text; and rows that are never kept."""

    launches = 4

    def __init__(self, text: Sequence[int], prompt: int) -> None:
        self.text, self.prompt, self.largest = text, prompt, 0

    def propose(self, ids: list[int], budget: int) -> Tree:
        random, right = np.random.default_rng((SEED, len(ids))), self.text[len(ids) - self.prompt:]
        tokens, parent, depth = [ids[-1]], [-1], [0]
        for node in range(1, budget - 1):
            behind = int(random.integers(max(0, node - 9), node))
            behind = behind if depth[behind] < 6 else 0
            good = depth[behind] < len(right) and random.random() < 0.6
            tokens.append(right[depth[behind]] if good else int(random.integers(SIZES.vocab)))
            parent.append(behind)
            depth.append(depth[behind] + 1)
        self.largest = max(self.largest, len(tokens))
        extra = [Extra(1, 1), Extra(2, 2, (0, len(tokens)))] if budget >= 3 else []
        return Tree(tokens, parent, extra=extra)


@pytest.mark.parametrize("rule", RULES)
def test_trees_of_several_launches(models: tuple[LoadedModel, LoadedModel], rule: str) -> None:
    target, _ = models
    plain = generate(target, Autoregressive(), PROMPTS[0], 50, Ledger(CONFIG), rule=RULES[rule])
    drafter, ledger = Wide(plain.tokens, len(PROMPTS[0])), Ledger(CONFIG)
    found = generate(target, drafter, PROMPTS[0], 50, ledger, rule=RULES[rule])
    assert found.tokens == plain.tokens
    assert drafter.largest > target.program.max_rows
    assert len(found.steps) < len(plain.steps)
    assert ledger.launches[TARGET] > len(found.steps) + 1


class Long(Drafter):
    """The text itself, in chains that take several launches."""

    launches = 3

    def __init__(self, text: Sequence[int], prompt: int) -> None:
        self.text, self.prompt = text, prompt

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], list(self.text[len(ids) - self.prompt:])[:budget])


@pytest.mark.parametrize("pool", [0, 192])
def test_chains_of_several_launches(models: tuple[LoadedModel, LoadedModel], pool: int) -> None:
    target = model(general=False, pool=pool) if pool else models[0]
    plain = generate(models[0], Autoregressive(), PROMPTS[0], 50, Ledger(CONFIG))
    found = generate(target, Long(plain.tokens, len(PROMPTS[0])), PROMPTS[0], 50, Ledger(CONFIG))
    assert found.tokens == plain.tokens
    assert max(accepted for _, accepted in found.steps) > target.program.max_rows


def test_pages_of_rejected_drafts_come_back() -> None:
    """A text needs the pages of its rows, whatever is drafted behind them."""
    paged = model(general=False, pool=192)
    free, kv = paged.pages.free_pages, paged.kv()  # type: ignore[union-attr]
    talk = Conversation(paged, PromptLookup(7, frozenset()), Ledger(CONFIG), kv=kv)
    talk.turn([2, 9] * 3, 46)
    assert kv.length == 51
    assert free - paged.pages.free_pages == 2  # type: ignore[union-attr]
    talk.close()
    assert paged.pages.free_pages == free  # type: ignore[union-attr]


def test_texts_that_take_turns_in_one_cache(models: tuple[LoadedModel, LoadedModel]) -> None:
    """One that finds its rows overwritten passes its text again."""
    target, draft = models
    for method in FREE:
        first, second = (talk(method, target, draft, GREEDY, Ledger(CONFIG)) for _ in range(2))
        said = first.turn(PROMPTS[0], 5).tokens
        second.turn(PROMPTS[3], 5)
        generate(target, Autoregressive(), PROMPTS[1], 3, Ledger(CONFIG))
        run = first.turn([5], 5)
        assert run.cached == 0
        whole = (*PROMPTS[0], *said, 5)
        assert run.tokens == plain(whole, 5, "greedy", "stop").tokens, method


class Wrong(Drafter):
    """Proposes what a function of text and budget makes."""

    def __init__(self, make: Callable[[list[int], int], object]) -> None:
        self.make = make

    def propose(self, ids: list[int], budget: int) -> Tree:
        return self.make(ids, budget)  # type: ignore[return-value]


@pytest.mark.parametrize(("make", "message"), [
    (lambda ids, budget: None, "propose of Wrong must return a Tree, not NoneType"),
    (lambda ids, budget: Tree.chain(ids[-1], [1] * (budget + 1)), "must keep its budget of 7 candidates, not return 8"),
    (lambda ids, budget: Tree.chain(ids[-1] + 1, []), "must begin with the pending token 5, not with 6")])
def test_drafters_that_break_the_contract(models: tuple[LoadedModel, LoadedModel], make: Callable[..., object],
                                          message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(models[0], Wrong(make), PROMPTS[0], 20, Ledger(CONFIG))


def test_a_drafter_cannot_change_the_text(models: tuple[LoadedModel, LoadedModel]) -> None:
    def appending(ids: list[int], budget: int) -> Tree:
        ids.append(7)
        return Tree.chain(ids[-2], [])

    plain = generate(models[0], Autoregressive(), PROMPTS[0], 9, Ledger(CONFIG)).tokens
    assert generate(models[0], Wrong(appending), PROMPTS[0], 9, Ledger(CONFIG)).tokens == plain


def test_forks_that_cannot_be(models: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = models
    contiguous, paged = target.kv(), model(general=False, pool=192).kv()
    for one, other, message in ((contiguous, contiguous, "not ContiguousKV itself"), (contiguous, paged, "not PagedKV"),
                                (paged, paged, "of the same pool, and another cache")):
        with pytest.raises(ValueError, match=message):
            one.fork(other)
    with pytest.raises(ValueError, match="needs a cache of that model, not of draft"):
        Conversation(target, Autoregressive(), Ledger(CONFIG), kv=draft.kv())


def test_parts_hold_what_their_rows_see() -> None:
    random = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    for _ in range(200):
        count, most = int(random.integers(1, 40)), int(random.integers(8, 17))
        parent = [-1, *(int(random.integers(max(0, node - 5), node)) for node in range(1, count))]
        depth = [0] * count
        for node in range(1, count):
            parent[node] = parent[node] if depth[parent[node]] < most - 2 else 0
            depth[node] = depth[parent[node]] + 1
        mask = Rows.tree([0] * count, parent, 0).mask
        parts = parts_of(mask, most)
        assert set(np.concatenate(parts).tolist()) == set(range(count))
        for part in parts:
            assert len(part) <= most
            assert all(set(np.flatnonzero(mask[row]).tolist()) <= set(part.tolist()) for row in part)
    with pytest.raises(ValueError, match="at most 3 before it, as many as a launch verifies, not 4 as candidate 4"):
        parts_of(np.tri(5, dtype=bool), 4)


# -- what a pass gives

@pytest.mark.parametrize(("changes", "message"), [
    ({"name": "always"}, "none of always, never, all, not 'always'"), ({"name": "a,b"}, "lower-case letters"),
    ({"drafts": Option(name="--n", limits=Range(1, 15), default=40, help="N.")}, "--n must be from 1 to 15, not 40")])
def test_declarations_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(METHODS["jacobi"], **changes)  # type: ignore[arg-type]


def test_a_schedule_shortens_guesses_that_fail(models: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = models
    request = Request(draft=draft, target=target, cache=target.kv(), lengths=LENGTHS["heuristic"](7), ends=frozenset(),
                      rule=GREEDY, host=CONFIG.host, options=METHODS["jacobi"].values({}))
    run = generate(target, METHODS["jacobi"].make(request), PROMPTS[0], 20, Ledger(CONFIG))
    drafted = [count for count, _ in run.steps]
    assert drafted[0] == 5
    assert min(drafted[:-6]) < 5


@pytest.mark.parametrize("rule", RULES)
def test_forked_prefixes_of_a_guess_are_its_chain(models: tuple[LoadedModel, LoadedModel], rule: str) -> None:
    """The same guesses, steps and text from more rows; each equation's answer comes from a chain of its own."""
    target, _ = models
    seen: list[Tree] = []

    class Noted(Jacobi):
        def propose(self, ids: list[int], budget: int) -> Tree:
            seen.append(super().propose(ids, budget))
            return seen[-1]

        def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
            if self.forks:  # what the chain says must not be looked at
                out = replace(out, argmax=[-1] * self.drafted + out.argmax[self.drafted:])
            super().observe(out, path, new)

    chain = generate(target, Noted(2), PROMPTS[2], 40, Ledger(CONFIG), rule=RULES[rule])
    guesses, seen[:] = [tree.tokens for tree in seen], []
    forks = generate(target, Noted(2, forks=True), PROMPTS[2], 40, Ledger(CONFIG), rule=RULES[rule])
    assert (forks.tokens, forks.steps[:25]) == (chain.tokens, chain.steps[:25])
    assert [tree.tokens for tree in seen[:25]] == guesses[:25]
    assert {(len(tree.tokens), len(tree.extra)) for tree in seen} == {(3, 3), (2, 1), (1, 0)}
    assert forks.ledger.device_cycles > chain.ledger.device_cycles
    assert len(Jacobi(15, forks=True).propose([1, 2], 7).tokens) == 3, "two equations: 6 of 8 rows"


def test_wants_are_joined() -> None:
    both = Want(last=1, logits=True, hidden=(2,)).joined(Want(top=3, hidden=(1, 2)))
    assert both == Want(last=None, logits=True, top=3, hidden=(1, 2))
    assert Want(last=1).joined(Want(last=3, temperature=0.5)) == Want(last=3, temperature=0.5)
    with pytest.raises(ValueError, match="exponents at one temperature, not at 0.5 and 1"):
        Want(temperature=0.5).joined(Want(temperature=1.0))


class Watching(Drafter):
    """Asks for hidden rows and the largest logits of all that is verified, and keeps what it gets."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.seen = model, list[tuple[np.ndarray, list[int]]]()

    def want(self) -> Want:
        return Want(top=2, hidden=(1,))

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], ids[-2:-1][:budget])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        assert out.top is not None
        assert out.top.tokens[:, 0].tolist() == out.argmax
        assert len(out.hidden[1]) == len(out.argmax)
        rows = Rows.chain([0] * len(out.argmax)).entering(self.model.slots_of(out.hidden[1]))
        late = replace(rows, positions=rows.positions + 50)
        self.seen.append((late.hidden, out.argmax))  # type: ignore[arg-type]


def test_hidden_rows_are_handed_on_to_each_text_of_a_batch() -> None:
    """Each gets the handles of its own rows: the head run on them gives what the layers give there."""
    target = model(batch=2, rows=4)
    drafters = [Watching(target) for _ in range(2)]
    talks = [Conversation(target, drafter, Ledger(CONFIG)) for drafter in drafters]
    runs = together([one.turning(prompt, 6) for one, prompt in zip(talks, PROMPTS)], (DRAFT, TARGET), 2)
    single = model()
    for run, prompt, drafter in zip(runs, PROMPTS, drafters):
        assert run.tokens == generate(single, Autoregressive(), prompt, 6, Ledger(CONFIG)).tokens
        slots = [set(hidden.tolist()) for hidden, _ in drafter.seen]
        assert all(len(one) == len(answers) for one, (_, answers) in zip(slots, drafter.seen))
    first, second = (set(drafter.seen[-1][0].tolist()) for drafter in drafters)
    assert not first & second, "no row is given to two texts"


def test_early_layers_leave_what_all_layers_leave(models: tuple[LoadedModel, LoadedModel]) -> None:
    """A borrowed cache has its own length; what drafts add there is overwritten by the pass that verifies."""
    target, _ = models
    kv = target.kv()
    alone(kv.begin([1, 2, 3, 4]))
    ahead = kv.borrow(target)
    out = alone(ahead.chain([1, 2, 3, 4], Want(last=1), [LayerRange(first=0, count=1)]))
    assert (kv.length, ahead.length) == (3, 4)
    assert len(out.argmax) == 1
    assert alone(kv.chain([1, 2, 3, 4], Want(last=1))).argmax == target.forward(Rows.chain([1, 2, 3, 4]), 1).argmax
    paged = model(general=False, pool=192)
    with pytest.raises(ValueError, match="PagedKV cannot be borrowed"):
        paged.kv().borrow(paged)
