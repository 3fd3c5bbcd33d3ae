"""A trained one-pass drafter as a float network that reads rows of its target's residual stream.

Of a row it is given a token and the target's hidden rows h1, h2, h3 behind some of its layers: the stream begins with
``J0 norm(E[token]) + J1 norm(h1) + J2 norm(h2) + J3 norm(h3)``. The first term is constant by token, so it is the
embedding; the learned masks are further tokens behind those of the vocabulary. Factors of the norms stand in J, which
is turned as the target's stream is.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.sw.models.trained.nodes import Nodes, Target
from gemmule.sw.models.trained.read import Trained

__all__ = ["parallel_network"]


def parallel_network(trained: Trained, target: Target) -> Network:
    """The float network.

    Raises:
        CompileError: the drafter's sizes are not the target's.
    """
    t = trained.tensors
    target.check(trained, len(trained.depths) + 1)
    made, parts = Nodes(target), np.split(t["join.weight"], len(trained.depths) + 1, axis=1)
    x = made.embedding(np.concatenate([target.joined(rows, t["norms.0.weight"], parts[0])
                                       for rows in (target.table, t["mask_embedding"])]))
    for number, depth in enumerate(trained.depths, 1):
        x = made.borrowed(x, depth, t[f"norms.{number}.weight"], parts[number])
    for layer in range(sum(name.endswith("attn_norm.weight") for name in t)):
        x = made.inside(layer).block(x, {
            name.removeprefix(f"blocks.{layer}.").removesuffix(".weight"): value for name, value in t.items()
            if name.startswith(f"blocks.{layer}.")})
    return made.network(x, trained)
