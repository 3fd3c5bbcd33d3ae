"""Errors of the integer functions against float, and a plot of the exponentials and GELUs.

    python benchmarks/numerics.py --out docs/results --plot docs/img/numerics.svg

Softmax: logits N(0, 1) in Q13.10, V uniform int8; error of the context relative to its root mean square. The
8-bit normalised scheme stores round(255 * p / sum p), as most integer accelerators do.
"""

from __future__ import annotations

import argparse
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
from common import console, show, write

from gemmule.numerics import exp2, row_probabilities, rshr, softmax_reciprocal
from gemmule.numerics.exponential import I_EXP_SCALE, i_exp_probabilities, softermax
from gemmule.numerics.ibert import GELU_SCALE, exp_constants, gelu_constants, i_exp, i_gelu, i_layernorm
from gemmule.numerics.norm import norm_statistic, normalize
from gemmule.numerics.online import online_softmax
from gemmule.numerics.table import byte_table, interpolate, word_table

LOG2E = 1 / np.log(2)
INT16_MIN, INT16_MAX, UINT16_MAX = -(1 << 15), (1 << 15) - 1, (1 << 16) - 1


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / 2 ** 0.5))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _row(function: str, measure: str, value: float, bound: float) -> dict[str, Any]:
    return {"function": function, "measure": measure, "error": float(value), "bound": bound, "ok": str(value <= bound)}


def exponentials() -> list[dict[str, Any]]:
    d = np.arange(0, 41 << 10)
    exact, got = 2.0 ** (-np.minimum(d, 40 << 10) / 1024), exp2(d) / (1 << 20)
    near = d <= 4 << 10
    scale = 2.0 ** -12
    q = -np.arange(0, 20 << 12, 4)
    i_error = np.abs(i_exp(q, exp_constants(scale)) * (0.35815147 * scale ** 2 / 2 ** 30) - np.exp(q * scale)).max()
    return [
        _row("exp2", "absolute, of the row's maximum", np.abs(got - exact).max(), 1e-4),
        _row("exp2", "relative, within 4 octaves", (np.abs(got - exact) / exact)[near].max(), 1e-4),
        _row("i-exp (I-BERT)", "absolute", i_error, 1.93e-3),
        _row("i-exp, device", "absolute",
             np.abs(i_exp_probabilities(d) / (1 << 20) - np.exp(-d * I_EXP_SCALE)).max(), 1.93e-3),
        _row("softermax, device", "relative, within 4 octaves",
             np.abs(softermax(d) / (1 << 20) / exact - 1)[near].max(), 4e-3),
    ]


def softmax_rows(rng: np.random.Generator, lengths: list[int]) -> list[dict[str, Any]]:
    rows = []
    for n in lengths:
        logits = rng.normal(0, 1, (24, n))
        t = np.round(logits * LOG2E * 1024).astype(np.int64)
        v = rng.integers(-128, 128, (n, 32))
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        exact = p @ v

        def error(context: np.ndarray, exact: np.ndarray = exact) -> float:
            return float(np.sqrt(((context - exact) ** 2).mean() / (exact ** 2).mean()))

        count = np.full(len(t), n)
        weights, total = row_probabilities(t, t.max(axis=1), count)
        r, length = softmax_reciprocal(total)
        two_pass = (weights @ v) * (r * 2.0 ** (12 - 15 - length))[:, None]
        full = exp2(t.max(axis=1, keepdims=True) - t)
        planes = np.minimum(UINT16_MAX, rshr(full, 4))
        wide = (planes @ v) * (r * 2.0 ** (4 - 15 - length))[:, None]
        normalised = np.minimum(255, rshr(full * r[:, None], length[:, None] + 7)) @ v / 256
        online = {}
        for block, kind in ((16, 0), (64, 0), (64, 2)):
            context, ratio, bits = online_softmax(t, v, np.ones_like(t, dtype=bool), block, kind=kind)
            online[block, kind] = error(context * (ratio * 2.0 ** (12 - 15 - bits))[:, None])
        rows += [
            _row(f"softmax, {n} columns", "context, two-pass, 8-bit weights", error(two_pass), 0.02),
            _row(f"softmax, {n} columns", "context, two-pass, 16-bit weights", error(wide), 2e-3),
            _row(f"softmax, {n} columns", "context, online, blocks of 16", online[16, 0], 0.036),
            _row(f"softmax, {n} columns", "context, online, blocks of 64", online[64, 0], 0.036),
            _row(f"softmax, {n} columns", "context, online, blocks of 64, softermax", online[64, 2], 0.036),
            _row(f"softmax, {n} columns", "context, 8-bit normalised (comparison)", error(normalised), 1.0),
        ]
    return rows


def norms(rng: np.random.Generator) -> list[dict[str, Any]]:
    rows = []
    for sigma in (2, 30, 2000):
        x = np.clip(np.round(rng.normal(sigma / 2, sigma, (64, 768))), INT16_MIN, INT16_MAX).astype(np.int64)
        for name, mean in (("LayerNorm", True), ("RMSNorm", False)):
            y = normalize(x, *norm_statistic(x, 0, 0, mean=mean), np.full(768, 1 << 10), 0, bits=32) / (1 << 20)
            centred = x - x.mean(axis=1, keepdims=True) if mean else x
            exact = centred / np.sqrt((centred ** 2).mean(axis=1, keepdims=True))
            rows.append(_row(f"{name}, sigma {sigma}", "absolute, in sigmas", np.abs(y - exact).max(), 6e-4))
        rounded = norm_statistic(x, 43691, 25, mean=True, round_mean=True)  # 1 / 768
        y = normalize(x, *rounded, np.full(768, 1 << 10), 0, bits=32) / (1 << 20)
        centred = x - x.mean(axis=1, keepdims=True)
        exact = centred / x.std(axis=1, keepdims=True)
        rows.append(_row(f"LayerNorm, rounded mean, sigma {sigma}", "absolute, in sigmas", np.abs(y - exact).max(),
                         6e-4 + 0.55 / sigma))
        y = i_layernorm(x) * 768 ** 0.5 / 2 ** 30
        rows.append(_row(f"i-LayerNorm (I-BERT), sigma {sigma}", "absolute, in sigmas", np.abs(y - exact).max(), 0.5))
    return rows


def activations() -> list[dict[str, Any]]:
    x8, x16, rows = np.arange(-128, 128), np.arange(INT16_MIN, INT16_MAX + 1), []
    for name, function in (("GELU", gelu), ("SiLU", silu), ("tanh", np.tanh)):
        exact = np.clip(function(x8 / 16) * 16, -128, 127)
        got = byte_table(function, 1 / 16, 1 / 16)[x8 & 255].astype(np.int8)
        rows.append(_row(name, "byte table, LSB of int8", np.abs(got - exact).max(), 0.5))
        scale = 8 / -INT16_MIN
        exact = np.clip(function(x16 * scale) / scale, INT16_MIN, INT16_MAX)
        got = interpolate(x16, word_table(function, scale, scale))
        rows.append(_row(name, "16-bit table, LSB, range 8", np.abs(got - exact).max(), 2.0))
    scale = 2.0 ** -14
    q = np.arange(-6 << 14, 6 << 14, 16)
    g = i_gelu(q, gelu_constants(scale)) * (scale * -0.2888 * scale ** 2 / 2 * 2 ** 14 / 2)
    rows.append(_row("i-GELU (I-BERT)", "absolute", np.abs(g - gelu(q * scale)).max(), 0.0182))
    value = x16 * GELU_SCALE
    unit = -i_gelu(x16, gelu_constants(GELU_SCALE)) * (GELU_SCALE * 0.2888 / 128)
    rows.append(_row("i-GELU, device", "absolute, before rounding to int8, range 8",
                     np.abs(unit - gelu(value))[np.abs(value) <= 8].max(), 0.026))
    return rows


def plot(path: Path) -> None:
    """Errors of the exponentials and GELUs over their arguments."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gemmule"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    x = np.linspace(0, 8, 800)
    scale = 2.0 ** -12
    ours = exp2(np.round(x * LOG2E * 1024)) / (1 << 20)
    theirs = i_exp(-np.round(x / scale).astype(int), exp_constants(scale)) * (0.35815147 * scale ** 2 / 2 ** 30)
    left.semilogy(x, np.abs(theirs - np.exp(-x)) + 1e-9, lw=0.8, label="i-exp (I-BERT)")
    left.semilogy(x, np.abs(ours - np.exp(-x)) + 1e-9, lw=0.8, label="exp2, 32 segments")
    left.set(xlabel="-x", ylabel="absolute error", title="exp(x)", ylim=(1e-8, 1e-2))
    left.legend(fontsize=8)
    x = np.linspace(-6, 6, 800)
    scale = 2.0 ** -14
    q = np.round(x / scale).astype(int)
    theirs = i_gelu(q, gelu_constants(scale)) * (scale * -0.2888 * scale ** 2 / 2 * 2 ** 14 / 2)
    step = 8 / -INT16_MIN
    ours = interpolate(np.round(x / step).astype(int), word_table(gelu, step, step)) * step
    right.semilogy(x, np.abs(theirs - gelu(x)) + 1e-9, lw=0.8, label="i-GELU (I-BERT)")
    right.semilogy(x, np.abs(ours - gelu(x)) + 1e-9, lw=0.8, label="16-bit table")
    right.set(xlabel="x", title="GELU(x)", ylim=(1e-6, 1e-1))
    right.legend(fontsize=8)
    part = path.with_suffix(".part.svg")
    figure.savefig(part, metadata={"Date": None})
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--plot", type=Path, help="also write this SVG (needs matplotlib)")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    console.print(f"seed {args.seed}")
    rows = [*exponentials(), *softmax_rows(rng, [64, 256, 1024, 4096]), *norms(rng), *activations()]
    show("errors against float", rows)
    write(args.out / "numerics.json", {"command": f"python benchmarks/numerics.py --seed {args.seed}", "rows": rows})
    if args.plot:
        plot(args.plot)
    if any(row["ok"] != "True" for row in rows):
        raise SystemExit("an error is above its bound")


if __name__ == "__main__":
    main()
