"""Trained sequential heads as a float network: Hydra-like, each head goes on from the row that the one before left.

The first head's row has the token that the target chose and the target's hidden row h: ``f = F norm(h)``. That of each
further head has the token that the head before proposed, and f is the row that this one left. ``x = J0 norm(E[token]) +
J1 norm(f)`` goes through a gated MLP with a residual connection, ``x + D (silu(G norm(x)) * U norm(x))``, which is the
row that the next head reads, and whose norm the target's own head reads. Heads share their weights; nothing but that
row is kept, so no row sees another one.
"""

from __future__ import annotations

from gemmule.compiler.ir import Borrowed, Network
from gemmule.sw.models.trained.eagle import OWN
from gemmule.sw.models.trained.nodes import Nodes, Target
from gemmule.sw.models.trained.read import Trained

__all__ = ["hydra_network"]

ROWS = 16
"""Of a pass at most."""


def hydra_network(trained: Trained, target: Target) -> Network:
    """The float network.

    Raises:
        CompileError: the heads' sizes are not the target's.
    """
    t, hidden = trained.tensors, target.embedding.columns
    target.check(trained, 2)
    made = Nodes(target)
    f = made.add(Borrowed, OWN, columns=hidden, depth=1, step=1.0, own=True)
    f = made.borrowed(f, trained.depths[0], t["depth_norm.weight"], t["fuse.weight"])
    normed = made.norm("fused.norm", f, t["row_norm.weight"])
    x = made.embedding(target.joined(target.table, t["token_norm.weight"], t["join.weight"][:, :hidden]))
    x = made.sum("fused.sum", x, made.linear("fused.join", normed, t["join.weight"][:, hidden:]))
    x = made.inside(0).gated(x, {name.removesuffix(".weight"): t[name] for name in (
        "ffn_norm.weight", "gate.weight", "up.weight", "down.weight")})
    return made.network(x, trained, positions=ROWS)
