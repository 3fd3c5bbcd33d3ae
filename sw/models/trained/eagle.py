"""A trained sequential drafter as a float network that reads rows of its target's residual stream, or its own.

Of a row of the text it is given the token that follows it and the target's hidden rows h1, h2, h3. They are fused,
``f = F1 norm(h1) + F2 norm(h2) + F3 norm(h3)``, and its only layer's stream begins with ``J0 norm(E[token]) + J1
norm(f)``. Of a drafted row the layer's own output behind the token before stands in the place of f. A row has one or
the other and zeros for the rest, so f is added to the own row. The first term of the stream is constant by token, so it
is the embedding. Factors of the norms of h stand in F, which is turned as the target's stream is.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.ir import Borrowed, Network
from gemmule.sw.models.trained.nodes import Nodes, Target
from gemmule.sw.models.trained.read import Trained

__all__ = ["OWN", "eagle_network"]

OWN = "own"
"""Node of the rows that it left itself."""


def eagle_network(trained: Trained, target: Target) -> Network:
    """The float network.

    Raises:
        CompileError: the drafter's sizes are not the target's.
    """
    t, hidden = trained.tensors, target.embedding.columns
    target.check(trained, 2)
    made, parts = Nodes(target), np.split(t["fuse.weight"], len(trained.depths), axis=1)
    f = made.add(Borrowed, OWN, columns=hidden, depth=1, step=1.0, own=True)
    for number, depth in enumerate(trained.depths):
        f = made.borrowed(f, depth, t[f"depth_norms.{number}.weight"], parts[number])
    normed = made.norm("fused.norm", f, t["row_norm.weight"])
    x = made.embedding(target.joined(target.table, t["token_norm.weight"], t["join.weight"][:, :hidden]))
    x = made.sum("fused.sum", x, made.linear("fused.join", normed, t["join.weight"][:, hidden:]))
    x = made.inside(0).block(x, {name.removeprefix("block.").removesuffix(".weight"): value
                                 for name, value in t.items() if name.startswith("block.")})
    return made.network(x, trained)
