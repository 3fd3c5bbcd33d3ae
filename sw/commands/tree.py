"""``gemmule tree``: the shape of a tree of candidates that gives the most tokens a cycle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import (
    ConfigOption,
    JsonOption,
    ModelOption,
    Output,
    WeightsOption,
    choice,
    conditions,
    read_config,
)
from gemmule.sw.limits import DEFAULT, new_tokens
from gemmule.sw.reports.files import check_writable, write_file

if TYPE_CHECKING:
    from gemmule.sw.decoding.adaptive.shapes import Shape
    from gemmule.sw.models.pair import Pair

__all__ = ["tree"]

METHODS = ("draft-tree", "recycling")
"""Those whose candidates have ranks, and options by which every rank is seen."""
WIDE: dict[str, dict[str, int]] = {"draft-tree": {"draft_tree_depth": 1, "draft_tree_top": 8}, "recycling": {}}


def tree(
    config: ConfigOption = "base",
    model: ModelOption = DEFAULT,
    weights: WeightsOption = None,
    method: Annotated[str, choice("--method", METHODS, "Method whose trees are counted.")] = METHODS[0],
    prompts: Annotated[int, typer.Option("--prompts", metavar="N", min=1, help="Prompts that are decoded.")] = 8,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", metavar="N", min=1, help="For each prompt.")] = 64,
    out_file: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", show_default=False, callback=lambda path: check_writable("--out", path),
        help="Write the tree's shape to this file (YAML), for --tree of generate and bench.")] = None,
    json: JsonOption = None,
) -> None:
    """Measure how often each rank of a method's candidates is right, what rows cost, and which tree pays most.

    Calibration prompts are decoded, or requests of a model with a chat template; texts that loop do not count, unless
    all do. Costs are those of the middle of the texts.

    \b
    Examples:
      gemmule tree
      gemmule tree --method recycling --prompts 12
    """
    out, device = Output(json), read_config(config)

    from gemmule.io.progress import counting
    from gemmule.sw.benches.ranks import count_ranks
    from gemmule.sw.decoding.adaptive.shapes import cost_shape, drawn
    from gemmule.sw.decoding.methods import METHODS as KNOWN
    from gemmule.sw.decoding.session import Session
    from gemmule.sw.device.costs.cost_curve import CostCurve
    from gemmule.sw.device.interpreted import interprets
    from gemmule.sw.errors import InputError
    from gemmule.sw.models.pair import open_pair
    from gemmule.sw.step import Want

    pair = open_pair(model, None, weights)
    new_tokens(pair.positions).check("--max-new-tokens", max_new_tokens)
    if KNOWN[method].needs_draft and pair.draft is None:
        raise InputError(f"--method {method} needs a draft model, and {pair.name} has none: take --method recycling")
    texts = [ids[:pair.positions - max_new_tokens] for ids in _prompts(pair, prompts)]
    with Session(device, pair=pair, general=True, interpreted=interprets("interpreter", pair.parameters)) as session:
        with counting("prompts", len(texts)) as tell:
            ranks = count_ranks(session, method, texts, max_new_tokens, pair.ends, options=WIDE[method],
                                progress=lambda done: tell(done, ""))
        cached = sum(map(len, texts)) // len(texts) + max_new_tokens // 2
        program, host = session.target.program, device.host
        most = program.max_rows - 1
        want = Want(top=8) if method == "recycling" else Want()
        costs = [session.curve.of(rows, cached, want) + host.step_cycles for rows in range(1, most + 2)]
        level = 0.0
        if session.draft is not None and KNOWN[method].needs_draft:
            level = CostCurve(session.draft).of(min(2, session.draft.program.max_rows), cached, Want(top=4))
        shares = ranks.shares()
        best = cost_shape(session.curve, shares, most, cached, want, host.step_cycles, lambda levels: levels * level)
        plain = session.curve.of(1, cached, Want()) + host.step_cycles
    record: dict[str, Any] = {
        "model": pair.name, "method": method, "cached": cached, "prompts": len(texts), "counted": ranks.texts,
        "max_new_tokens": max_new_tokens, "tried": ranks.tried, "right": ranks.right, "ranks": shares,
        "row_cycles": costs, "level_cycles": level, "plain_cycles": plain, "tokens": best.tokens,
        "cycles": best.cycles, "gain": best.tokens / best.cycles * plain, "places": [list(one) for one in best.places]}
    out.write("tree", device, record)
    out.print(f"{conditions(device)}; {pair.name} model, {method}, {ranks.texts} of {len(texts)} prompts, "
              f"{max_new_tokens} new tokens",
              style="dim")
    for rank, (share, tried) in enumerate(zip(shares, ranks.tried), 1):
        out.print(f"rank {rank}: right {share:.1%} of {tried:,} times")
    out.print(f"behind {cached:,} tokens a pass over {most + 1} rows costs {costs[-1] / costs[0]:.3f} of one row"
              + f", a level of drafts {level / costs[0]:.3f}" * bool(level))
    out.print(f"best tree: {len(best.places)} candidates on {best.levels} levels, {best.tokens:.2f} tokens a step, "
              f"{record['gain']:.2f} times the tokens a cycle of autoregressive decoding; by ranks:")
    for line in drawn(best.places):
        out.print(f"  {line}")
    if out_file is not None:
        _write(out_file, best, out, f"{pair.name} model, {method}, {device.name}", method)


def _write(path: Path, shape: Shape, out: Output, of: str, method: str) -> None:
    """The shape as a file for ``--tree``, and the options that go with it."""
    from gemmule.sw.decoding.candidates.shape_files import shape_text
    from gemmule.sw.decoding.methods import METHODS as KNOWN

    if not shape.places:
        out.print(f"no tree pays, so {path} is not written")
        return
    lines = [f"# gemmule tree: {of}; {shape.tokens:.2f} tokens a step expected.",
             "# A candidate by the ranks on the way to it, from 0: 0,1 is the second one behind the first one.",
             "paths:", *(f"- {shape_text([place])}" for place in shape.places)]
    write_file(path, "\n".join(lines) + "\n", "--out")
    usual = KNOWN[method].values({})
    needed = {"draft_tree_top": 1 + max(place[-1] for place in shape.places), "draft_tree_depth": shape.levels}
    wider = "".join(f" --{key.replace('_', '-')} {count}" for key, count in needed.items()
                    if count > usual.get(key, count))
    out.print(f"shape: {path}, for --method {method} --tree {path}{wider}")


def _prompts(pair: Pair, count: int) -> list[list[int]]:
    """Calibration prompts, or requests in the model's chat template."""
    from gemmule.sw.prompts.categories import load_categories
    from gemmule.sw.prompts.requests import load_requests
    from gemmule.sw.text.chat import Template

    if pair.chat is None:
        return [pair.encode(prompt.text)[:96] for prompt in load_categories()["calibration"][:count]]
    template = Template(pair.chat, pair.name)
    every = [prompt for few in zip(*load_requests().values()) for prompt in few]  # of each kind in turn
    return [pair.plain(template.render([{"role": "user", "content": prompt.text}])) for prompt in every[:count]]
