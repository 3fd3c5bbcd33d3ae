"""The int4 copy of a target, which drafts in the target's own KV cache."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.kept import sharing_kept
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.quantize.narrow import NARROW_GROUP, narrowed
from gemmule.config import Config
from gemmule.io.progress import working
from gemmule.sw.errors import InputError
from gemmule.sw.models.drafting.draft_vocabulary import choosing
from gemmule.sw.models.placed import Placed

__all__ = ["Int4Copy"]

ROWS = 1
"""Of a pass: the target has cached all tokens but the last one before the copy drafts."""


class Int4Copy:
    """Compiles the copy beside the target's program, once for each."""

    def __init__(self, file: ModelFile, shown: str) -> None:
        """``file``: the target with int8 weights; ``shown``: its name."""
        self.file, self.shown = file, shown
        self.kept: dict[tuple[int, bytes, int, bool], Placed] = {}
        self.others: dict[bytes, Int4Copy] = {}
        """By the tokens that they choose among."""

    def choosing(self, tokens: np.ndarray) -> Int4Copy:
        """The copy whose logits are those of some tokens."""
        key = tokens.tobytes()
        if key not in self.others:
            self.others[key] = Int4Copy(choosing(self.file, tokens), self.shown)
        return self.others[key]

    @property
    def able(self) -> bool:
        """Whether the target has weights that are wider."""
        return self.file.made.bits == 8

    def __call__(self, target: ModelProgram, base: int, *, general: bool = False) -> Placed:
        """Behind ``target`` from ``base`` on; ``general``: with the general program.

        Raises:
            InputError: the target has int4 weights, or its copy does not run beside it.
        """
        key = target.base_address, target.image, base, general
        if key not in self.kept:
            self.kept[key] = self._placed(target, base, general)
        return self.kept[key]

    def _placed(self, target: ModelProgram, base: int, general: bool) -> Placed:
        config: Config = target.config
        try:
            network = narrowed(self.file.network)
        except CompileError:
            raise InputError(f"--method int4-self needs a target with int8 weights, which drafts in int4: {self.shown} "
                             "has int4 ones: drop --weights int4, or take another --method") from None
        sha256 = f"{self.file.sha256}-int4-{NARROW_GROUP}"
        try:
            with working(f"compiling the int4 copy of {self.shown} for {config.name}", least=1.0):
                program = sharing_kept(network, sha256, target, rows=ROWS, base_address=base, general=general)
        except CompileError as error:
            raise InputError(f"--method int4-self: {error}: take another --method") from None
        return Placed(network, program, program.fill(network))
