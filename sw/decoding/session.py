"""From a config and a method to a finished generation: what the commands and benchmarks call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType, TracebackType
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.head.lent import LENT, Lender
from gemmule.compiler.passes.map import MOST_SEQUENCES
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.link import link_step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.config import Config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.adaptive.adaptive import Adaptive
from gemmule.sw.decoding.adaptive.paying import Paying
from gemmule.sw.decoding.adaptive.steps import Steps
from gemmule.sw.decoding.asking import together
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.exits.reference import Plain
from gemmule.sw.decoding.generate import Conversation, Generation
from gemmule.sw.decoding.lengths import LENGTHS, Lengths
from gemmule.sw.decoding.methods import DRAFT, METHODS, VOCABULARY, Method, Request, needing_int4
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.decoding.trained import TrainedModel
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.ahead import Ahead
from gemmule.sw.device.backends import Device, open_device
from gemmule.sw.device.choosing import DeviceChooser
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import PAGE, TARGET, LoadedModel
from gemmule.sw.device.timed_choosing import TimedChooser
from gemmule.sw.device.timeline import Timeline
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import Chooser
from gemmule.sw.limits import KV_CACHES, LAUNCHES, check_choice
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.models.placed import Placed
from gemmule.sw.models.trained.drafter import instead
from gemmule.timing import ceil_div

__all__ = ["Session", "rows_of"]

ALIGN = 1 << 16
NONE: Mapping[str, Any] = MappingProxyType({})
Opener = Callable[[Config, int], Device]
"""Opens a device with so many bytes of DRAM."""
OWN_SLOTS = 256
"""For rows that a drafter leaves itself: passes of 16 rows, twice as many as a tree has levels at most."""
ROWS, LEAST = 16, 4
"""Of a pass of a batch, where no draft needs more: a batch computes all rows that it has room for."""


def rows_of(batch: int, drafts: int) -> int:
    """Rows of each text of a batch: as many as so many drafts need, a power of two, 16 at least with all texts, and 4
    at least of each, in passes of which prompts go.
    """
    return max(1 << drafts.bit_length(), _free(batch), LEAST)


def _free(batch: int) -> int:
    """Rows of each text of a batch that cost as much as one."""
    return ROWS // (1 << (batch - 1).bit_length())


def _further(program: ModelProgram, size: int, batch: int) -> tuple[list[int], int]:
    """Where the caches of sequences beyond those of a launch stand, as many at a time, in bytes from those; and where
    DRAM goes on behind them. ``size``: bytes so far; ``batch``: sequences.
    """
    (address, held), found = program.symbols[CACHE], []
    for _ in range(ceil_div(batch, program.batch) - 1):
        found.append(round_up(size - address, ALIGN))
        size = round_up(address + found[-1] + held, ALIGN)
    return found, size


def _refuse(backend: str | Opener, pair: Pair, *, general: bool, launch: str, interpreted: bool, batch: int,
            prefill: int | None, pruning: Pruning | None, trained: Sequence[str], int4: bool,
            drafting: Pruning | None) -> None:
    """Whether a session has options that exclude each other.

    Raises:
        InputError: it has.
    """
    looped = launch != "pass"
    if looped and general:
        raise InputError(f"--launch {launch} takes greedy tokens alone, not a temperature or a method that asks for "
                         "more, such as draft-tree and recycling: drop one of the two")
    if looped and batch > 1:
        raise InputError(f"--launch {launch} takes one text a launch, not a --batch: drop one of the two")
    if interpreted and (backend != "model" or looped):
        raise InputError("--compute interpreter needs --backend model and --launch pass: it runs no device whose "
                         "launches go on from one token to the next")
    if batch > 1 and prefill:
        raise InputError(f"--prefill-rows {prefill} is of one text, not of a --batch: drop one of the two")
    if pruning and (batch > 1 or launch == "step" or interpreted):
        what = f"--batch {batch}" if batch > 1 else "--launch step" if launch == "step" else "--compute interpreter"
        raise InputError(f"--prune takes one text, whose passes are launches of the device, not {what}: drop one of "
                         "the two")
    if pruning and (pruning.pages or pruning.packing) and general:
        what = "score: pages" if pruning.pages else "progressive" if pruning.progressive else "four"
        raise InputError(f"--prune with {what} takes greedy decoding by methods that run whole passes: drop the "
                         "temperature, take another --method than layerskip, self, draft-tree, recycling and chooser, "
                         "and no --draft-lengths confidence")
    if drafting and (batch > 1 or looped or pruning):
        what = f"--batch {batch}" if batch > 1 else f"--launch {launch}" if looped else "--prune"
        raise InputError(f"--method triforce takes one text with its whole cache, a pass a launch, not {what}: drop "
                         "one of the two")
    if trained and (batch > 1 or looped or pruning):
        what = f"--batch {batch}" if batch > 1 else f"--launch {launch}" if looped else "--prune"
        raise InputError("methods with drafters that were trained on the target's hidden rows, such as parallel and "
                         f"medusa, take one text with its whole cache, a pass a launch, not {what}: drop one of the "
                         "two")
    if int4 and pruning:
        raise InputError("--method int4-self drafts in the target's whole cache, not with --prune: drop one of the two")
    if not pair.trained.keys() >= set(trained):
        kind = next(kind for kind in trained if kind not in pair.trained)
        raise InputError(f"--method {kind} needs a drafter that was trained on the hidden rows of {pair.name}, which "
                         f"has none: {instead(pair.name, kind)}")


class Session:
    """One device with a pair of target and draft on it, one behind the other in DRAM; by default the bundled small one.

    A context manager: the RTL back end runs a simulator process.
    """

    def __init__(self, config: Config, backend: str | Opener = "model", pair: Pair | None = None, *,
                 general: bool = False, launch: str = "pass", interpreted: bool = False, batch: int = 1,
                 rows: int | None = None, prefill: int | None = None, pruning: Pruning | None = None,
                 trained: Sequence[str] = (), int4: bool = False, draft_vocabulary: int | None = None,
                 drafting: Pruning | None = None, ahead: bool = False, context: int | None = None, pool: int = 0,
                 page: int = PAGE, wide: bool = False) -> None:
        """``backend``: a name of :func:`open_device`, or what opens another device.

        ``general``: models also take hidden rows, run some of their layers and give other answers than tokens.

        ``launch``: of :data:`gemmule.sw.limits.LAUNCHES`. ``pass``: each pass is one; ``draft``: the draft model takes
        the greedy steps of a draft in one; ``step``: and the target verifies in it. The last two not with ``general``.
        ``interpreted``: values by the integer interpreter, cycles by timing alone: the same, several times as fast;
        on the model back end, for tokens and logits, a pass a launch.
        ``batch``: texts of a pass, each with up to ``rows`` rows, by default as many as go well; a pass a launch, or
        where more texts than a program takes have caches in order, several launches. Passes in which all texts have few
        rows go by programs that compute no more.
        ``prefill``: rows of a launch of a prompt, by a program of their own: by default as many as pay; 0: as many as
        of any pass, by the one program, as of a batch.
        ``ahead``: prompts of a batch go by a program of their own, text by text; else in passes of the batch.
        ``context``: positions of a text, by default the networks'; ``pool``: rows of a cache that the target's texts of
        a batch share in pages of ``page`` rows; 0: each has a whole context.
        ``wide``: passes take as many rows as can be, where ``rows`` says nothing.
        ``pruning``: the schedule of the target's cache (:class:`gemmule.sw.kv.selected.SelectedKV`).
        ``trained``: kinds of drafters that were trained on the target's hidden rows, which the target's passes then
        leave in DRAM. ``int4``: with the target's int4 copy, which goes on in the target's cache.
        ``draft_vocabulary``: the draft, and the copy, choose among so many tokens, the most frequent ones.
        ``drafting``: the schedule of a second cache of the target's, in which a method drafts with it.

        Raises:
            InputError: options that exclude each other, or a draft and a target that do not go in one launch.
        """
        looped = check_choice("--launch", launch, LAUNCHES) != "pass"
        pair = pair or bundled_pair()
        _refuse(backend, pair, general=general, launch=launch, interpreted=interpreted, batch=batch, prefill=prefill,
                pruning=pruning, trained=trained, int4=int4, drafting=drafting)
        if draft_vocabulary and looped:
            raise InputError(f"--launch {launch} hands on tokens on the device, not those of a --draft-vocabulary: "
                             "drop one of the two")
        prefill = 0 if batch > 1 and not ahead else prefill
        pair, tokens = pair.drafting_among(draft_vocabulary)
        self._looped = looped
        self.pruning, self.drafting, self.pair = pruning, drafting, pair
        sources = {kind: pair.trained[kind]() for kind in dict.fromkeys(trained)}
        self.batch = batch
        texts = ceil_div(batch, ceil_div(batch, MOST_SEQUENCES))  # of a launch
        target = pair.target(config, 0, general, batch=batch if pool else texts, rows=rows, prefill=prefill,
                             pruning=pruning or drafting,
                             lend=min((source.made.every for source in sources.values()), default=0),
                             own=OWN_SLOTS if any(source.made.chained for source in sources.values()) else 0,
                             context=context, pool=pool, narrow=True, wide=wide and batch == 1)
        self._skipping = partial(pair.skipped_layers, target)
        self.network = target.network
        size = round_up(len(target.dram), ALIGN)
        further, size = _further(target.program, size, batch)
        draft = None
        if pair.draft:
            draft = pair.draft(config, size, general, looped, texts, rows, prefill, context=context, narrow=True)
            size = round_up(size + len(draft.dram), ALIGN)
            draft_further, size = _further(draft.program, size, batch)
        drafters, step = dict[str, Placed](), None
        for kind, source in sources.items():
            assert target.program.lends is not None
            drafters[kind] = source.place(config, size, True, prefill=prefill, borrow=Lender(
                target.program.lends, target.program.symbols[LENT]))
            size = round_up(size + len(drafters[kind].dram), ALIGN)
        copy = pair.int4(target.program, size, general=general) if int4 and pair.int4 else None
        if copy:
            size = round_up(size + len(copy.dram), ALIGN)
        if draft and draft.loop and launch == "step":
            try:
                step = link_step(draft.loop, target.program, size)
            except CompileError as error:
                raise InputError(f"--launch step: {error}: use --launch draft") from None
            size = round_up(size + step.size, ALIGN)
        self.config = config
        if interpreted:
            self.device: Device = Simulator(config, dram_bytes=1)
        else:
            self.device = open_device(backend, config, size) if isinstance(backend, str) else backend(config, size)

        def loaded(name: str, placed: Placed, lender: LoadedModel | None = None,
                   whole: LoadedModel | None = None) -> LoadedModel:
            if isinstance(self.device, Simulator) and interpreted:
                return InterpretedModel(name, placed.network, placed.program, self.device, placed.prefill,
                                        placed.narrow, lender=lender if isinstance(lender, InterpretedModel) else None,
                                        sampled=placed.sampled, page=page, selection=placed.selection,
                                        whole=whole if isinstance(whole, InterpretedModel) else None)
            return LoadedModel(name, placed.program, placed.dram, self.device, placed.loop,
                               step if placed.loop else None, placed.prefill, placed.narrow, made_ahead,
                               placed.selection, placed.values, placed.sampled, page)

        made_ahead = Ahead() if step else None
        self.memories: dict[str, dict[str, Any]] = {}
        """What methods keep from text to text, apart for each way to decode."""
        self.target = loaded(TARGET, target).spread(further)
        self.draft = loaded(DRAFT, draft).choosing(tokens).spread(draft_further) if draft else None
        self.int4 = loaded(DRAFT, copy, whole=self.target).in_cache_of(self.target).choosing(tokens) if copy else None
        self.trained = {kind: TrainedModel(
            loaded(DRAFT, drafters[kind], self.target), source.made.tokens, source.made.masks, source.made.file.sha256,
            source.made.shares)
            for kind, source in sources.items()}
        """Drafters that were trained on the target's hidden rows, by kind."""

    def converse(
        self, method: str, num_speculative_tokens: int | None = None, stop: frozenset[int] | Stops = frozenset(), *,
        rule: Rule = GREEDY, lengths: str = "constant", timeline: Timeline | None = None,
        options: Mapping[str, Any] = NONE, context_overflow: str = "stop", kv_cache: str = "full",
        ledger: Ledger | None = None, pace: Lengths | None = None, adaptive: bool = False, steps: Steps | None = None,
    ) -> Conversation:
        """A text without tokens yet, to be generated with ``method`` from an empty KV cache.

        Args:
            method: its name (:data:`gemmule.sw.decoding.methods.METHODS`).
            num_speculative_tokens: drafted a step; by default the method's own number, or as many as a pass verifies.
            stop: tokens that end the text, or tokens and strings.
            rule: how tokens are chosen; all but greedy decoding take a session with ``general=True``.
            lengths: name of the schedule by which a step drafts fewer (:data:`gemmule.sw.decoding.lengths.LENGTHS`).
            timeline: gets every launch and step, for a trace.
            options: values of the method's own options, by key.
            context_overflow: name of what becomes of a full context (:data:`gemmule.sw.decoding.context.OVERFLOWS`).
            kv_cache: ``full``, or ``none``: every pass goes over the whole text.
            ledger: gets the cycles; by default a new one with ``timeline``.
            pace: the schedule itself (:meth:`pace`), where texts of a batch have one; by default a new one.
            adaptive: a step drafts and verifies as many candidates as pay (:mod:`gemmule.sw.decoding.adaptive`).
            steps: what decides that for all texts of a batch (:meth:`steps`); by default each text has its own.

        Raises:
            InputError: an option is none of those, or outside its range.
        """
        check_choice("--context-overflow", context_overflow, tuple(OVERFLOWS))
        check_choice("--kv-cache", kv_cache, KV_CACHES)
        kept = kv_cache == "full"
        if self.pruning and not kept:
            raise InputError("--prune chooses among rows that are kept, not with --kv-cache none: drop one of the two")
        if not kept and self.draft and self.draft.loop:
            raise InputError("--kv-cache none needs a session with launch='pass': others' passes need the rows of the "
                             "ones before")
        stops = stop if isinstance(stop, Stops) else Stops(stop)
        count, ledger = self.drafts(method, num_speculative_tokens), ledger or Ledger(self.config, timeline=timeline)
        if METHODS[method].needs_general and self.target.program.general is None:
            raise InputError(f"--method {method} needs a session with general=True: it runs some of the layers, or "
                             "takes other answers than tokens")
        if needing_int4(method, options) and self.int4 is None:
            raise InputError(f"--method {method} needs a session with int4=True: the target's int4 copy drafts")
        if (kind := METHODS[method].trained) and kind not in self.trained:
            raise InputError(f"--method {method} needs a session with trained=[{kind!r}]: its drafter reads hidden "
                             "rows")
        METHODS[method].check_alone({
            "--batch": self.batch > 1, "--temperature": rule is not GREEDY, "--prune": bool(self.pruning),
            "--adaptive": adaptive, "--kv-cache none": not kept, "--launch draft or step": self._looped,
            f"--context-overflow {context_overflow}": context_overflow != "stop"})
        values = METHODS[method].values(options)
        chooser = self._chooser(METHODS[method], values, ledger)
        cache = self.target.charging(ledger).kv(kept=kept, pruning=self.pruning)
        paying = adaptive and lengths == "constant" and self._tells(METHODS[method], values, rule)
        pace = Paying(count) if paying else pace or LENGTHS[lengths](count)
        way = f"{method} {count} {values} {lengths} {rule.of_text(0)}"
        drafter = METHODS[method].make(Request(
            draft=self.draft and self.draft.charging(ledger), target=self.target.charging(ledger, DRAFT), cache=cache,
            lengths=pace, ends=stops.tokens, rule=rule, host=self.config.host, kept=kept,
            options=values, memory=self.memories.setdefault(way, {}), datastore=self.pair.datastore,
            writes=self.pair.writes,
            chooser=chooser,
            skipping=self._skipping, exit_heads=self.pair.exit_heads, streams=self.pair.streams,
            int4=self.int4 and self.int4.charging(ledger),
            curve=None if self.pruning or self.batch > 1 else self.curve,
            trained={kind: replace(one, model=one.model.charging(ledger), costs=self.curve.row_costs)
                     for kind, one in self.trained.items()}))
        if adaptive and method != "ar":
            drafter = Adaptive(drafter, steps or self.steps(rule, ledger, kept=kept), lambda: cache.sequence,
                               pace if isinstance(pace, Paying) else None)
        return Conversation(self.target, drafter, ledger, stops, rule, overflow=OVERFLOWS[context_overflow], kv=cache)

    def _tells(self, method: Method, options: Mapping[str, Any], rule: Rule) -> bool:
        """Whether drafts can end by how sure the drafter is of its tokens.

        Not where its passes give greedy tokens alone, as those of batches do, whose programs of few rows can no more;
        nor where each token is drawn, so that what it was drawn by decides and not how likely one is.
        """
        return method.confident and rule.same_text and self.target.program.general is not None \
            and self.batch == 1 and not options.get(VOCABULARY.key)

    @cached_property
    def curve(self) -> CostCurve:
        """What passes of the target cost."""
        return CostCurve(self.target)

    def steps(self, rule: Rule, ledger: Ledger, *, kept: bool = True, shared: bool = False) -> Steps:
        """What decides how many candidates texts verify, all of a batch together; they are charged to one ledger.

        ``shared``: prompts go in passes that they share where they can.

        Raises:
            InputError: what a pass costs is not known beforehand.
        """
        program, loop = self.target.program, self.draft and self.draft.loop
        if loop or self.pruning or not kept:
            what = "--launch draft or step" if loop else "--prune" if self.pruning else "--kv-cache none"
            raise InputError(f"--adaptive takes texts with their whole caches, a pass a launch, not {what}: drop one "
                             "of the two")
        return Steps(self.curve, ledger, TARGET, want=rule.want(), rows=program.max_rows,
                     parameters=program.graph.parameters, step=self.config.host.step_cycles, places=self.batch,
                     together=program.batch, prefix=self.target.first, shared=0 if not shared else
                     program.max_rows if self.target.prefill else program.max_positions)

    def _chooser(self, method: Method, options: Mapping[str, Any], ledger: Ledger) -> Chooser | None:
        """What fills the second cache in which a method drafts; None: it drafts in none.

        Raises:
            InputError: the session has none, or one that always keeps other rows.
        """
        if method.schedule is None:
            return None
        wanted, made = method.schedule(options, self.target.room), self.drafting
        selection = self.target.selection
        if made is None or selection is None or made.always != wanted.always:
            raise InputError(f"--method {method.name} needs a session with drafting={wanted}: it drafts in a second "
                             "cache of the target's")
        model = self.target.charging(ledger, DRAFT)
        return TimedChooser(model, selection, wanted) if isinstance(model, InterpretedModel) \
            else DeviceChooser(model, selection)

    def generate_batch(
        self, method: str, prompts: Sequence[list[int]], max_new_tokens: int, num_speculative_tokens: int | None = None,
        stop: frozenset[int] | Stops = frozenset(), progress: Callable[[list[int]], None] | None = None, *,
        rule: Rule = GREEDY, lengths: str = "constant", options: Mapping[str, Any] = NONE,
        context_overflow: str = "stop", halted: Callable[[], bool] | None = None, ledger: Ledger | None = None,
        adaptive: bool = False,
    ) -> list[Generation]:
        """Generate up to ``max_new_tokens`` behind each prompt, as many prompts at a time as the session's ``batch``.

        Each text is the one that its prompt gives alone with ``rule.of_text(number)``. Cycles of a run are those from
        its begin to its end, other texts' rows included; those of all are in ``ledger``. ``adaptive``: as of
        :meth:`converse`, for all texts together.

        Raises:
            InputError: as of :meth:`generate`.
        """
        ledger, pace = ledger or Ledger(self.config), self.pace(method, num_speculative_tokens, lengths)
        steps = self.steps(rule, ledger, shared=True) if adaptive and method != "ar" else None
        talks = [self.converse(method, num_speculative_tokens, stop, rule=rule.of_text(number), lengths=lengths,
                               options=options, context_overflow=context_overflow, ledger=ledger, pace=pace,
                               adaptive=adaptive, steps=steps)
                 for number in range(len(prompts))]
        askings = [talk.turning(prompt, max_new_tokens, progress, halted) for talk, prompt in zip(talks, prompts)]
        try:
            return together(askings, (DRAFT, TARGET), self.batch, None if steps is None else (
                lambda number, free: steps.admits(len(prompts[number]) - 1, free, len(prompts) - number)))
        except ValueError as error:
            raise InputError(str(error)) from None

    def generate(
        self, method: str, prompt: list[int], max_new_tokens: int, num_speculative_tokens: int | None = None,
        stop: frozenset[int] | Stops = frozenset(), progress: Callable[[list[int]], None] | None = None, *,
        rule: Rule = GREEDY, lengths: str = "constant", timeline: Timeline | None = None,
        options: Mapping[str, Any] = NONE, context_overflow: str = "stop", kv_cache: str = "full",
        adaptive: bool = False,
    ) -> Generation:
        """Generate up to ``max_new_tokens`` behind ``prompt`` (token ids): one turn of :meth:`converse`.

        ``progress`` is called with each step's new tokens.

        Raises:
            InputError: an option is outside its range, or the prompt does not fit.
        """
        if max_new_tokens < 1:
            raise InputError(f"--max-new-tokens must be at least 1, not {max_new_tokens}")
        conversation = self.converse(method, num_speculative_tokens, stop, rule=rule, lengths=lengths,
                                     timeline=timeline, options=options, context_overflow=context_overflow,
                                     kv_cache=kv_cache, adaptive=adaptive)
        try:
            return conversation.turn(prompt, max_new_tokens, progress)
        except ValueError as error:
            raise InputError(str(error)) from None

    def follows(self, method: str, options: Mapping[str, Any], ids: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether ``tokens`` behind a prompt are those of a lossy method's policy, computed anew without any cache."""
        policy = METHODS[method].policy
        assert policy is not None
        chosen = policy(Plain(self.network, [*ids, *tokens], len(ids), METHODS[method].values(options),
                              self.pair.exit_heads))
        return chosen[:len(tokens)] == list(tokens)

    def drafts(self, method: str, wanted: int | None) -> int:
        """Tokens that a method drafts a step at most, 0 where it drafts none; by default no more than cost little.

        Raises:
            InputError: there is no such method, or one pass does not verify so many.
        """
        check_choice("--method", method, tuple(METHODS))
        chosen, most = METHODS[method], self.target.program.max_rows - 1
        if chosen.drafts is None:
            return 0
        cheap = most if self.batch == 1 else min(most, max(1, _free(self.batch) - 1))
        count = min(int(chosen.drafts.default or cheap), cheap) if wanted is None else wanted
        if not 1 <= count <= most:
            raise InputError(
                f"{chosen.drafts.name} must be from 1 to {most} (one pass verifies {most + 1} rows), not {count}")
        return count

    def pace(self, method: str, wanted: int | None, lengths: str) -> Lengths | None:
        """The schedule that texts of a batch share; None: each has its own.

        Raises:
            InputError: as of :meth:`drafts`.
        """
        made = LENGTHS[lengths](self.drafts(method, wanted))
        return made if made.shared else None

    def extra_parameters(self, method: str, options: Mapping[str, Any] = NONE) -> int:
        """Weights that a method needs beside the target's: those of the draft model, a tied head counted once.

        ``options``: values of the method's own options, by key.
        """
        if METHODS[method].needs_streams and self.pair.streams:
            return len(self.pair.streams.tokens) * self.target.program.graph.nodes[0].columns
        if (kind := METHODS[method].trained) in self.trained:
            return self.trained[kind].model.program.graph.parameters
        copied = self.int4.program.graph.parameters if self.int4 and needing_int4(method, options) else 0
        parts = METHODS[method].parts
        drafts = METHODS[method].needs_draft or options.get("lowest_drafter", "draft") == "draft" and \
            METHODS[method].schedule is not None or (
                parts is not None and "draft" in (parts(METHODS[method].values(options)) or ("draft",)))
        return copied + (self.draft.program.graph.parameters if self.draft and drafts else 0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()
