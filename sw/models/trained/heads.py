"""Trained heads as a float network that reads one row of its target's residual stream: Medusa's and blockwise ones.

Head i is ``x + f_i(x)`` behind the target's last norm, before its head: ``f_i(x) = silu(W_i x + b_i)`` (Medusa, Cai et
al. 2024) or ``D_i relu(W_i x + b_i)`` (Stern et al. 2018). All heads are one pass, a row for each, so that the weights
and the target's head are read once. A row is told which head it is by :data:`LABELS` columns more than the target's
stream has: the embedding of "token" i. Each head's inner columns read the labels as well, which takes :data:`SHUT` off
in the rows of others, where the activation function then gives 0.

The stream is the target's normed row without the norm's factors g, so that its norm is a constant: g stands in W, its
inverse in D. The last norm only scales logits, which changes no rank.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Activation, Function, Network
from gemmule.sw.models.trained.nodes import Nodes, Target
from gemmule.sw.models.trained.read import Trained

__all__ = ["heads_network"]

LABELS, LABEL = 16, 8.0
"""Columns that tell heads apart, as many as a pass has rows at most, and what stands in those of a row's own head."""
SHUT = 48.0
"""What inner columns of other heads lose; they reach 21 in the default pair's rows, 38 in SmolLM2's."""
LEAST = 1e-3
"""Factors of the target's last norm count at least so much, as their inverses are needed."""


def heads_network(trained: Trained, target: Target) -> Network:
    """The float network.

    Raises:
        CompileError: the heads' sizes are not the target's, or there are more than labels.
    """
    t, hidden, count = trained.tensors, target.embedding.columns, trained.masks
    parts = [(t[f"heads.{number}.{up}weight"], t[f"heads.{number}.{up}bias"], t.get(f"heads.{number}.down.weight"))
             for number in range(count) for up in ("up." if trained.kind == "blockwise" else "",)]
    if not 1 <= count <= LABELS or any(weight.shape[1] != hidden for weight, _, _ in parts):
        raise CompileError(f"heads must be 1 to {LABELS} of a target with {hidden} columns, not {count} of "
                           f"{parts[0][0].shape[1] if parts else 0}: take those that were trained on it")
    made, share, gains = Nodes(target, LABELS), LABELS // count, target.gains
    gains = np.where(np.abs(gains) < LEAST, np.float32(LEAST), gains)
    labels = np.kron(np.eye(count, dtype=np.float32), np.ones(share, np.float32))
    labels = np.pad(labels, ((0, 0), (0, LABELS - labels.shape[1])))  # [heads, labels]
    x = made.embedding(np.concatenate([np.zeros((count, hidden), np.float32), LABEL * labels], axis=1))
    x = made.borrowed(x, trained.depths[0], np.ones(hidden, np.float32), np.eye(made.width, hidden, dtype=np.float32))
    made.inside(0)
    size = np.sqrt((hidden + share * LABEL ** 2) / made.width)  # of every row
    y = made.norm("norm2", x, np.full(made.width, size, np.float32))
    ups, downs = [], []
    for number, (weight, _, down) in enumerate(parts):
        told = np.full((len(weight), count), -SHUT, np.float32)
        told[:, number] = 0
        ups.append(np.concatenate([weight * gains, told @ labels / (share * LABEL)], axis=1))
        back = (np.eye(hidden, dtype=np.float32) if down is None else down) / gains[:, None]
        downs.append(np.pad(back, ((0, LABELS), (0, 0))))
    inner = sum(map(len, ups))
    function = Function.RELU if trained.kind == "blockwise" else Function.SILU
    act = made.add(Activation, "act", columns=inner, function=function, x=made.linear(
        "up", y, np.concatenate(ups), np.concatenate([bias for _, bias, _ in parts])))
    x = made.sum("end", x, made.linear("down", act, np.concatenate(downs, axis=1)))
    return made.network(x, trained, gains * t["norm.weight"], positions=LABELS)
