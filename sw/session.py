"""From a config and a method to a finished generation: what the commands and benchmarks call."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.lengths import LENGTHS
from gemmule.sw.decoding.methods import METHODS, Request
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device import Device, open_device
from gemmule.sw.errors import InputError
from gemmule.sw.interpreted import InterpretedModel
from gemmule.sw.ledger import Ledger
from gemmule.sw.limits import check_choice
from gemmule.sw.pair import Pair, Placed, bundled_pair
from gemmule.sw.reports.trace import Timeline
from gemmule.sw.runtime import LoadedModel

__all__ = ["Session"]

ALIGN = 1 << 16


class Session:
    """One device with a pair of target and draft on it, one behind the other in DRAM; by default the bundled small one.

    A context manager: the RTL back end runs a simulator process.
    """

    def __init__(self, config: Config, backend: str = "model", pair: Pair | None = None, *,
                 general: bool = False, looped: bool = False, interpreted: bool = False) -> None:
        """``general``: models also take hidden rows, run some of their layers and give other answers than tokens.

        ``looped``: the draft model takes the greedy steps of a draft in one launch; not with ``general``.
        ``interpreted``: values by the integer interpreter, cycles by timing alone: the same, several times as fast;
        on the model back end, for tokens and logits, not with ``looped``.

        Raises:
            InputError: options that exclude each other.
        """
        if interpreted and (backend != "model" or looped):
            raise InputError("--compute interpreter needs --backend model and --launch pass: it runs no device whose "
                             "launches go on from one token to the next")
        pair = pair or bundled_pair()
        target = pair.target(config, 0, general)
        size = round_up(target.program.size, ALIGN)
        draft = pair.draft(config, size, general, looped) if pair.draft else None
        if draft:
            size = round_up(size + len(draft.dram), ALIGN)
        self.config = config
        self.device: Device = Simulator(config, dram_bytes=1) if interpreted else open_device(backend, config, size)

        def loaded(name: str, placed: Placed) -> LoadedModel:
            if isinstance(self.device, Simulator) and interpreted:
                return InterpretedModel(name, placed.network, placed.program, self.device)
            return LoadedModel(name, placed.program, placed.dram, self.device, placed.loop)

        self.target, self.draft = loaded("target", target), loaded("draft", draft) if draft else None

    def generate(
        self, method: str, prompt: list[int], max_new_tokens: int, num_speculative_tokens: int | None = None,
        stop: frozenset[int] = frozenset(), progress: Callable[[list[int]], None] | None = None, *,
        rule: Rule = GREEDY, lengths: str = "constant", timeline: Timeline | None = None,
    ) -> Generation:
        """Generate with ``method``, from an empty KV cache.

        Args:
            method: its name (:data:`gemmule.sw.decoding.methods.METHODS`).
            prompt: token ids.
            max_new_tokens: fewer where the text ends or fills the context.
            num_speculative_tokens: drafted a step; by default the method's own number, or as many as a pass verifies.
            stop: tokens that end the text.
            progress: called with each step's new tokens.
            lengths: name of the schedule by which a step drafts fewer (:data:`gemmule.sw.decoding.lengths.LENGTHS`).
            timeline: gets every launch and step, for a trace.
            rule: how tokens are chosen; all but greedy decoding take a session with ``general=True``.

        Raises:
            InputError: an option is outside its range.
        """
        if max_new_tokens < 1:
            raise InputError(f"--max-new-tokens must be at least 1, not {max_new_tokens}")
        count, ledger = self.drafts(method, num_speculative_tokens), Ledger(self.config, timeline=timeline)
        drafter = METHODS[method].make(Request(
            self.draft and self.draft.charging(ledger), LENGTHS[lengths](count), stop, rule, self.config.host))
        try:
            return generate(self.target, drafter, prompt, max_new_tokens, ledger, stop, progress, rule)
        except ValueError as error:
            raise InputError(str(error)) from None

    def drafts(self, method: str, wanted: int | None) -> int:
        """Tokens that a method drafts a step at most, 0 where it drafts none.

        Raises:
            InputError: there is no such method, or one pass does not verify so many.
        """
        check_choice("--method", method, tuple(METHODS))
        chosen, most = METHODS[method], self.target.program.max_rows - 1
        if chosen.option is None:
            return 0
        count = min(chosen.num_tokens, most) if wanted is None else wanted
        if not 1 <= count <= most:
            raise InputError(
                f"{chosen.option} must be from 1 to {most} (one pass verifies {most + 1} rows), not {count}")
        return count

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()
