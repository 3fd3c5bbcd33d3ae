"""Which heads of a trained target are told where to look: those that look there already, else those least missed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gemmule.sw.training.networks.guidance import before, head_scores, look_losses
from gemmule.sw.training.networks.model import LanguageModel, Layer
from gemmule.sw.training.running import Place, autocast
from gemmule.sw.training.stages.copying_recipe import CopyingRecipe

__all__ = ["Heads", "choose_heads", "heads_loss"]


@dataclass(frozen=True)
class Heads:
    """``before`` has (layer, head, distance) of those that attend to tokens before, ``behind`` has (layer, head)."""

    before: tuple[tuple[int, int, int], ...]
    behind: tuple[tuple[int, int], ...]

    @property
    def layers(self) -> list[int]:
        """That have any."""
        return sorted({head[0] for head in (*self.before, *self.behind)})


@torch.no_grad()
def _missed(model: LanguageModel, number: int, windows: Tensor, place: Place) -> list[float]:
    """Loss on windows [rows, tokens + 1] without each head of a layer, nats a token."""
    layer = model.model.layers[number]
    assert isinstance(layer, Layer)
    weight, size, found = layer.self_attn.o_proj.weight, layer.self_attn.head_dim, []
    for head in range(weight.shape[1] // size):
        columns = weight[:, head * size:(head + 1) * size]
        kept = columns.clone()
        columns.zero_()
        with autocast(place):
            found.append(float(model.cross_entropy(model.hidden(windows[:, :-1])[-1], windows[:, 1:])))
        columns.copy_(kept)
    return found


@torch.no_grad()
def choose_heads(model: LanguageModel, plan: CopyingRecipe, windows: Tensor, places: Tensor, text: Tensor,
                 place: Place) -> Heads:
    """The heads that a recipe asks for, by layer.

    For the token before: the one that attends most to it. For tokens farther away: of the others those without which
    the loss grows least. Behind matches: those that attend most to ``places``.

    Args:
        model: not compiled yet.
        plan: how many heads, where.
        windows: of requests  # [rows, tokens].
        places: theirs  # [rows, tokens].
        text: windows of plain text  # [rows, tokens + 1].
    """
    with autocast(place):
        states = model.hidden(windows)
    near: list[tuple[int, int, int]] = []
    for layer in sorted({layer for layer, _ in plan.before}):
        distances = sorted(distance for number, distance in plan.before if number == layer)
        scores = head_scores(model, layer, states[layer])
        looks = look_losses(scores, before(places, 1)).tolist()
        order = sorted(range(len(looks)), key=looks.__getitem__)
        missed = _missed(model, layer, text, place)
        spare = sorted(order[1:] if distances[0] == 1 else order, key=missed.__getitem__)
        for distance in distances:
            near.append((layer, order[0] if distance == 1 else spare.pop(0), distance))
    behind: list[tuple[int, int]] = []
    for layer in plan.behind:
        looks = look_losses(head_scores(model, layer, states[layer]), places).tolist()
        behind += [(layer, head) for head in sorted(range(len(looks)), key=looks.__getitem__)[:plan.behind_heads]]
    return Heads(tuple(near), tuple(behind))


def heads_loss(model: LanguageModel, heads: Heads, states: list[Tensor], places: Tensor) -> Tensor:
    """How far the heads are from where they are told to look, nats: the mean of each kind, added."""
    near, behind = [], []
    for layer in heads.layers:
        distances = {head: distance for number, head, distance in heads.before if number == layer}
        matching = [head for number, head in heads.behind if number == layer]
        scores = head_scores(model, layer, states[layer], [*distances, *matching])
        near += [look_losses(scores[:, i:i + 1], before(places, distance))
                 for i, distance in enumerate(distances.values())]
        if matching:
            behind.append(look_losses(scores[:, len(distances):], places))
    return sum((torch.cat(kind).mean() for kind in (near, behind) if kind), torch.zeros((), device=places.device))
