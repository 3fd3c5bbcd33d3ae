"""The mapping of ``gemmule run gemm``: by formula or by search, and what there is to tell about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmule.compiler.kernels.product import ProductMapping
    from gemmule.compiler.layout import WeightFormat
    from gemmule.compiler.mapping.mapper import Found
    from gemmule.compiler.mapping.product.space import ProductSpace
    from gemmule.compiler.programs.product import ProductProgram
    from gemmule.config import Config

__all__ = ["Chosen", "choose"]


@dataclass(frozen=True)
class Chosen:
    """A mapping, and the search that found it."""

    space: ProductSpace
    method: str
    mapping: ProductMapping | None
    """None: the formula's for the space's only dataflow."""
    found: Found[ProductMapping] | None

    def record(self, explain: bool) -> dict[str, Any] | None:
        """For ``--json``, None of the formula; with ``explain`` all that was tried."""
        if self.found is None:
            return None
        tried = [asdict(trial.point) | {"cycles": trial.cycles} for trial in self.found.trials]
        return {
            "method": self.method, "cycles_formula": self.found.first_cycles, "simulated": len(self.found.trials),
            "pruned": self.found.pruned, "certified": self.found.certified, "search_seconds": self.found.seconds,
            "mapping": asdict(self.found.best), "tried": tried if explain else None}

    def explained(self, program: ProductProgram) -> Iterator[str]:
        """What was tried, what won, and why the rest lost."""
        from gemmule.compiler.search.product import explained

        if self.found is not None:
            yield from explained(self.found, self.space)
            return
        reason, least = self.space.bound.largest(program.mapping)
        yield (f"the formula's mapping, of fewest estimated cycles; {reason} alone takes {least:,} cycles of it at "
               "least; --search simulates others")


def choose(device: Config, sizes: tuple[int, int, int], form: WeightFormat, dataflow: str, method: str,
           trials: int | None) -> Chosen:
    """The mapping of a product; ``dataflow`` may be any, ``trials`` are mappings to simulate at most.

    Raises:
        CompileError: it does not fit, or a package is missing.
    """
    from gemmule.compiler.kernels.product import ProductShape, check_product
    from gemmule.compiler.mapping.product.space import ProductSpace, dataflows_of

    m, k, n = sizes
    shape = ProductShape(m=m, k=k, n=n, weights=form)
    flows = dataflows_of(device, shape) if dataflow == "any" else (dataflow,)
    check_product(device, shape, flows[0])
    space = ProductSpace(device, shape, flows)
    if method == "formula":
        return Chosen(space, method, space.first() if len(flows) > 1 else None, None)

    from gemmule.compiler.search.product import search_product
    from gemmule.io.progress import working

    with working(f"searching a mapping ({method})"):
        found = search_product(device, shape, flows, method, trials)
    return Chosen(space, method, found.best, found)
