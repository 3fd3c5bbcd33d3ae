"""How text is decoded: one record for what the command line takes, sessions are made of, and JSON tells. Light."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmule.sw.commands.shared.method_options import check_options, drafts_of, own_options
from gemmule.sw.commands.shared.prune import read_pruning
from gemmule.sw.commands.shared.sampling import check_launch, make_rule, rule_name
from gemmule.sw.decoding.methods import METHODS, VOCABULARY, Method, drafting_of, needing_int4
from gemmule.sw.errors import InputError
from gemmule.sw.limits import ADAPTIVE_MOST, either

if TYPE_CHECKING:
    from gemmule.config import Config
    from gemmule.sw.decoding.session import Session
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.kv.pruning import Pruning
    from gemmule.sw.models.pair import Pair

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides a text and its cycles, besides models, prompt and device; fields are options of that name."""

    method: str
    method_options: Mapping[str, Any] = field(default_factory=dict)
    """Those that are given, by their names on the command line."""
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    verify: str | None = None
    draft_lengths: str = "constant"
    adaptive: bool = False
    launch: str = "pass"
    prefill_rows: int | None = None
    kv_cache: str = "full"
    prune: Path | None = None
    context_overflow: str = "stop"
    batch: int = 1
    backend: str = "model"
    compute: str = "auto"
    seed: int = 0

    @property
    def way(self) -> Method:
        """The method."""
        return METHODS[self.method]

    def check(self, baseline: bool | None, **alone: bool) -> None:
        """Refuse options that do not go together. ``alone``: options, by name, that are given and about one text.

        Raises:
            InputError: one of them is given.
        """
        check_options(self.method, self.method_options)
        drafting = tuple(name for name in METHODS if name != "ar")
        if baseline is not None and self.kv_cache == "full":
            self._check_drafts("--baseline" if baseline else "--no-baseline", drafting)
        if self.draft_lengths != "constant":
            scheduled = tuple(name for name, one in METHODS.items() if one.drafts and one.scheduled)
            self._check_drafts(f"--draft-lengths {self.draft_lengths}", scheduled)
        if self.adaptive:
            self._check_adaptive()
        self.way.check_alone({
            "--batch": self.batch > 1, "--temperature": self.temperature > 0, "--prune": self.prune is not None,
            "--kv-cache none": self.kv_cache == "none", f"--launch {self.launch}": self.launch != "pass",
            f"--context-overflow {self.context_overflow}": self.context_overflow != "stop"})
        check_launch(self.launch, self.temperature > 0, self.draft_lengths, self.kv_cache)
        _ = self.pruning
        if self.batch > 1:
            for option, given in {f"--launch {self.launch}": self.launch != "pass",
                                  "--kv-cache none": self.kv_cache == "none",
                                  f"--prefill-rows {self.prefill_rows}": bool(self.prefill_rows), **alone}.items():
                if given:
                    raise InputError(f"--batch {self.batch} does not go with {option}, which is of one text: drop one "
                                     "of the two")

    def _check_adaptive(self) -> None:
        """What a step drafts is decided once, pass by pass.

        Raises:
            InputError: something else decides, or does not let decide.
        """
        self._check_drafts("--adaptive", tuple(name for name, one in METHODS.items() if name != "ar" and not one.alone))
        for option, given in {f"--draft-lengths {self.draft_lengths}": self.draft_lengths != "constant",
                              f"--launch {self._launch}": self._launch != "pass",
                              "--kv-cache none": self.kv_cache == "none", "--prune": self.prune is not None}.items():
            if given:
                raise InputError(f"--adaptive decides what a step drafts, of texts with their whole caches and a pass "
                                 f"a launch, not with {option}: drop one of the two")

    def _check_drafts(self, option: str, drafting: tuple[str, ...]) -> None:
        if self.method not in drafting:
            raise InputError(f"{option} needs --method {either(drafting)}, not {self.method}: drop one of the two"
                             + ", or give --draft-model" * (self.method == "ar"))

    @property
    def rule_name(self) -> str:
        """``greedy``, ``match`` or ``rejection``."""
        return rule_name(self.method, self.temperature, self.verify)

    def rule(self) -> Rule:
        """How tokens are chosen and drafts accepted."""
        return make_rule(self.rule_name, self.temperature, self.top_k, self.top_p, self.seed)

    @property
    def drafts(self) -> int | None:
        """Tokens drafted per step at most; None: as the method has it."""
        given = drafts_of(self.way, self.method_options)
        return given or (None if self.draft_lengths == "constant" else ADAPTIVE_MOST)

    @property
    def options(self) -> dict[str, Any]:
        """The method's own options, by key."""
        return own_options(self.way, self.method_options)

    @cached_property
    def pruning(self) -> Pruning | None:
        """The schedule of the target's cache.

        Raises:
            InputError: as of :func:`read_pruning`.
        """
        return read_pruning(self.prune, self.launch, self.batch)

    def interprets(self, pair: Pair) -> bool:
        """Whether values come from the integer interpreter."""
        from gemmule.sw.device.interpreted import interprets

        return interprets(self.compute, pair.parameters, backend=self.backend, launch=self._launch,
                          chosen=self._chooses(pair))

    def _chooses(self, pair: Pair) -> bool:
        """Whether the device chooses what it loads."""
        return self.prune is not None or pair.skips

    def session(self, config: Config, pair: Pair) -> Session:
        """A device with the models on it, as the method needs them."""
        from gemmule.sw.decoding.session import Session

        general = self.temperature > 0 or self.draft_lengths == "confidence" or self.way.needs_general or (
            self.adaptive and self.batch == 1 and self.way.confident)
        return Session(config, self.backend, pair, general=general, launch=self._launch, batch=self.batch,
                       rows=self._rows, prefill=self.prefill_rows, interpreted=self.interprets(pair),
                       pruning=self.pruning, trained=[self.way.trained] if self.way.trained else [],
                       int4=needing_int4(self.method, self.options), wide=self.way.wide,
                       draft_vocabulary=self.options.get(VOCABULARY.key),
                       drafting=drafting_of({self.method: self.options}, pair.positions))

    def plain_session(self, config: Config, pair: Pair) -> Session:
        """The same for autoregressive decoding on the model, to compare with."""
        from gemmule.sw.decoding.session import Session
        from gemmule.sw.device.interpreted import interprets

        return Session(config, pair=pair, general=self.temperature > 0, batch=self.batch, rows=self._rows,
                       prefill=self.prefill_rows, pruning=self.pruning,
                       interpreted=interprets(self.compute, pair.parameters, chosen=self._chooses(pair)))

    @property
    def _launch(self) -> str:
        """What a launch holds; only a draft model's passes go together."""
        return self.launch if self.way.needs_draft else "pass"

    @property
    def _rows(self) -> int | None:
        """Rows of each text of a batch."""
        from gemmule.sw.decoding.session import rows_of

        return rows_of(self.batch, self.drafts or (1 if self.way.drafts else 0)) if self.batch > 1 else None

    def record(self, session: Session, pair: Pair) -> dict[str, Any]:
        """What JSON tells of it."""
        return {
            "method": self.method, "backend": self.backend,
            "compute": "interpreter" if self.interprets(pair) else "device", "seed": self.seed,
            "num_speculative_tokens": session.drafts(self.method, self.drafts),
            "method_options": self.way.values(self.options), "temperature": self.temperature, "top_k": self.top_k,
            "top_p": self.top_p, "verify": self.rule_name, "draft_lengths": self.draft_lengths,
            "adaptive": self.adaptive, "launch": self._launch, "prefill_rows": self.prefill_rows,
            "context_overflow": self.context_overflow, "kv_cache": self.kv_cache,
            "prune": asdict(self.pruning) if self.pruning else None, "batch": self.batch}
