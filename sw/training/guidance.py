"""Where attention of a small draft should look, as a loss beside that of its answers.

A greedy text of a small target repeats itself: most of its tokens follow the longest earlier match of what stands
before them, as prompt lookup finds it. A network does the same with an induction head (Olsson et al. 2022): one layer
brings each token those before it, the next one looks for where the last tokens stood and attends to what came behind.
In a draft of two narrow layers this does not form in the steps that a draft gets; told where to look it does, within
hundreds. Heads of the first layer are told to attend to the tokens one, two .. places before, those of the last layer
to the token behind the match, wherever that is the text's next token.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gemmule.sw.training.model import LanguageModel, Layer

__all__ = ["guidance_loss"]


def _told(scores: Tensor, places: Tensor) -> Tensor:
    """Mean of -log of what each query gives to its place  # [rows, heads, queries, keys], [rows, queries], -1: none."""
    chosen = scores.gather(-1, places.clamp(min=0)[:, None, :, None].expand(-1, scores.shape[1], -1, 1))[..., 0]
    told = (places >= 0)[:, None]
    return ((scores.logsumexp(-1) - chosen) * told).sum() / (told.sum() * scores.shape[1]).clamp(min=1)


def guidance_loss(model: LanguageModel, states: list[Tensor], places: Tensor) -> Tensor:
    """How far the heads are from where they are told to look, nats in the mean of the first and the last layer.

    Args:
        model: of two layers or more.
        states: its residual stream at every depth (:meth:`LanguageModel.hidden`).
        places: of :func:`followers`  # int64 [rows, tokens].
    """
    length = places.shape[1]
    cos, sin = model._angles(0, length)
    hidden = torch.ones(length, length, dtype=torch.bool, device=places.device).triu(1)
    own = torch.arange(length, device=places.device)
    losses = []
    for number in (0, len(model.model.layers) - 1):
        layer = model.model.layers[number]
        assert isinstance(layer, Layer)
        q, k, _ = layer.self_attn.heads(layer.input_layernorm(states[number]), cos, sin)
        scores = (q @ k.transpose(-1, -2)).float() * (1 / math.sqrt(q.shape[-1]))
        scores = scores.masked_fill(hidden, -1e30)
        if number:
            losses.append(_told(scores, places))
        else:
            losses.append(torch.stack([
                _told(scores[:, head:head + 1], (own - head - 1).clamp(min=-1).expand(len(places), -1))
                for head in range(scores.shape[1])]).mean())
    return torch.stack(losses).mean()
