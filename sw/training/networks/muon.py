"""Muon: momentum of a matrix, orthogonalised before it is applied, in products that the place multiplies fast.

Jordan et al. 2024, Muon (kellerjordan.github.io/posts/muon). As ``torch.optim.Muon``, which always multiplies in
bfloat16 and gives the same bits there; without instructions for that it takes most of a step's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Muon"]

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic iteration: singular values come to lie between 0.7 and 1.2."""
ITERATIONS = 5
LEAST_NORM = 1e-7


def _orthogonal(update: Tensor, products: torch.dtype) -> Tensor:
    """About the nearest semi-orthogonal matrix."""
    a, b, c = COEFFICIENTS
    tall = update.shape[0] > update.shape[1]
    x = update.to(products)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=LEAST_NORM)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """With Nesterov momentum, and steps that grow with the root of a tall matrix's sides' ratio."""

    def __init__(self, matrices: Iterable[Tensor], *, lr: float, weight_decay: float, momentum: float,
                 products: torch.dtype) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.products = products

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no loss is asked
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group)

    def _move(self, weight: Tensor, slope: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[weight], group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        state["momentum_buffer"].lerp_(slope, 1 - momentum)
        update = _orthogonal(slope.lerp(state["momentum_buffer"], momentum), self.products)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)
