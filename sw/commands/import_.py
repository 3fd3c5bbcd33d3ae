"""``gemmule import``: a Hugging Face directory as a quantised model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmule.sw.commands.common import (
    ActivationOption,
    JsonOption,
    Output,
    SeedOption,
    SoftmaxOption,
    choice,
    write_file,
)
from gemmule.sw.errors import InputError
from gemmule.sw.limits import BITS, METHODS_OF_ROUNDING

if TYPE_CHECKING:
    import numpy as np

    from gemmule.compiler.quantize.accuracy import Errors
    from gemmule.compiler.quantize.network import Quantized

__all__ = ["import_"]

TEXT_BYTES = 64 << 20
"""Of a text file."""
HELD_OUT = 5
"""Without --evaluate every so many-th part of the text is measured on and not calibrated with: its end."""
MOST_WINDOWS = 64
"""Windows of calibration, and of measurement: enough for scales, quick enough to wait for."""


def import_(
    directory: Annotated[Path, typer.Argument(
        metavar="DIR", help="Directory with config.json, *.safetensors and tokenizer.json.")],
    out_file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The model file to write.")],
    calibrate: Annotated[Path, typer.Option(
        "--calibrate", metavar="TEXTFILE", help="UTF-8 text from which the scales of activations come.")],
    evaluate: Annotated[Path | None, typer.Option(
        "--evaluate", metavar="TEXTFILE", show_default=False,
        help="Other text, to measure on. Default: the last fifth of --calibrate, which is then not calibrated with.",
    )] = None,
    bits: Annotated[str, choice("--bits", BITS, "Weights: int8 by column or int4 by group.")] = "int8",
    group: Annotated[int, typer.Option(
        "--group", metavar="N", help="Rows of depth that share an int4 scale, 0 for none; a power of two.")] = 32,
    method: Annotated[str, choice(
        "--method", METHODS_OF_ROUNDING, "Rounding: nearest, or second-order (GPTQ; slower, closer).",
    )] = "second-order",
    smooth: Annotated[bool, typer.Option(
        "--smooth/--no-smooth", help="Even out the ranges of linears' inputs and weights (SmoothQuant).")] = True,
    attention: Annotated[str, choice(
        "--attention", ("exact", "online"), "exact, or online, by blocks of keys with a running maximum.",
    )] = "exact",
    softmax: SoftmaxOption = "exact",
    activation: ActivationOption = "table",
    window: Annotated[int, typer.Option("--window", metavar="N", help="Tokens of a window, 2 to 4,096.")] = 256,
    seed: SeedOption = 0,
    json: JsonOption = None,
) -> None:
    """Quantise a checkpoint for the device and report how far it is from float.

    GPT-2, OPT, Llama, Mistral, Phi and BERT. The file holds the network in integers, how it was made, and the
    tokenizer.

    \b
    Examples:
      gemmule import gpt2 --calibrate text.txt --out build/gpt2.safetensors
      gemmule import llama --calibrate text.txt --bits int4 --group 64 --out build/llama.safetensors
    """
    if group < 0 or group & (group - 1) or group > 1 << 15:
        raise InputError(f"--group must be 0 or a power of two up to {1 << 15}, not {group}")
    if not 2 <= window <= 4096:
        raise InputError(f"--window must be from 2 to 4,096 tokens, not {window}")
    out = Output(json)
    words = _text(calibrate, "--calibrate")
    held_out = _text(evaluate, "--evaluate") if evaluate else None

    from gemmule import __version__
    from gemmule.compiler.importers import end_tokens, label_names, load_network
    from gemmule.compiler.model_file import Made, model_bytes
    from gemmule.compiler.quantize.network import Options, quantize_network
    from gemmule.io.progress import say, stderr
    from gemmule.sw.choices import choose
    from gemmule.sw.tokens import load_tokenizer, sentence_windows, token_windows

    network = choose(load_network(directory), attention, softmax, activation)
    cut_up = sentence_windows if network.graph.encoder else token_windows
    tokenizer, source = load_tokenizer(directory, network.graph.vocab)
    ends = end_tokens(directory, network.graph.vocab)
    labels = label_names(directory) if network.graph.heads else ()
    window = min(window, network.graph.positions)
    used = cut_up(tokenizer, words, window, "--calibrate")
    if held_out is None:
        cut = max(1, len(used) // HELD_OUT)
        if len(used) < 2:
            raise InputError(f"--calibrate must hold at least {2 * window} tokens, not fewer: give more text, or "
                             "--evaluate another file")
        used, measured = used[:-cut], used[-cut:]
    else:
        measured = cut_up(tokenizer, held_out, window, "--evaluate")
    used, measured = _spread(used), _spread(measured)
    options = Options(bits=8 if bits == "int8" else 4, group=group if bits == "int4" else 0,
                      method="nearest" if method == "nearest" else "second-order", smooth=smooth, seed=seed)
    with stderr.status("reading") as status:
        quantized = quantize_network(network, used, options, lambda step: status.update(f"quantising: {step}"))
        status.update("measuring: errors by layer")
        errors = measure_errors(quantized, measured[:8])
        whole: dict[str, float | None] = dict.fromkeys(
            ("perplexity_float", "perplexity_int", "cosine_mean", "cosine_least"))
        if network.graph.encoder:
            status.update("measuring: output")
            angles = cosines(quantized, measured)
            whole |= {"cosine_mean": float(angles.mean()), "cosine_least": float(angles.min())}
        else:
            for name, one in (("float", network), ("int", quantized.network)):
                status.update(f"measuring: perplexity ({name})")
                whole[f"perplexity_{name}"] = perplexity(one, measured)
    made = Made(version=__version__, bits=options.bits, group=options.group, method=options.method, smooth=smooth,
                seed=seed, calibration_sha256=_sha256(used))
    content = model_bytes(quantized.network, made, source, ends, labels)
    write_file(out_file, content, "--out")
    say(f"wrote {out_file} ({len(content):,} bytes)")
    record = _record(quantized, errors, used, measured) | whole | {
        "directory": str(directory), "out": str(out_file), "bytes": len(content), "bits": bits,
        "group": options.group, "method": method, "smooth": smooth, "attention": attention, "softmax": softmax,
        "activation": activation, "seed": seed}
    _print(out, record)
    out.write("import", None, record)


def _text(path: Path, option: str) -> str:
    """A text file's content.

    Raises:
        InputError: it cannot be read, is too large, empty or not UTF-8.
    """
    try:
        with path.open("rb") as opened:
            data = opened.read(TEXT_BYTES + 1)
    except OSError as error:
        raise InputError(f"{option} must name a file that can be read, not {str(path)!r}: {error.strerror}") from None
    if len(data) > TEXT_BYTES:
        raise InputError(f"{option} must hold at most {TEXT_BYTES:,} bytes, not more: give a part of {str(path)!r}")
    try:
        words = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{option} must be UTF-8 text, not with byte {data[error.start]:#04x} at {error.start} of "
                         f"{str(path)!r}: convert it") from None
    if not words.strip():
        raise InputError(f"{option} must hold text, not {str(path)!r}, which is empty")
    return words


def _spread(windows: np.ndarray) -> np.ndarray:
    """At most so many windows, evenly over the text."""
    import numpy as np

    count = min(len(windows), MOST_WINDOWS)
    return windows[np.linspace(0, len(windows) - 1, count).astype(np.int64)]


def _sha256(windows: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(windows.astype("<i8").tobytes()).hexdigest()


def _record(quantized: Quantized, errors: Errors, used: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    graph = quantized.network.graph
    return {
        "family": graph.family, "layers": graph.layers, "vocab": graph.vocab, "positions": graph.positions,
        "parameters": sum(int(size) for size in _sizes(quantized)), "window": int(used.shape[1]),
        "calibration_windows": len(used), "evaluation_windows": len(measured), "layer_error": errors.layers,
        "logits_error": errors.output, "node_error": errors.nodes}


def _sizes(quantized: Quantized) -> list[int]:
    import numpy as np

    return [int(np.prod(tensor.shape)) for tensor in quantized.reference.graph.tensors.values()]


def _print(out: Output, r: dict[str, Any]) -> None:
    from rich.table import Table

    out.print(f"{r['family']}: {r['layers']} layers, {r['parameters']:,} parameters, vocabulary {r['vocab']:,}, "
              f"{r['positions']:,} positions; {r['bits']}"
              + (f" by groups of {r['group']}" if r["group"] else "") + f", {r['method']}, seed {r['seed']}")
    where = f"on {r['evaluation_windows']} windows of {r['window']} tokens that calibration did not see"
    if r["perplexity_int"] is None:
        out.print(f"output {where}: cosine of float and integers {r['cosine_mean']:.5f} on average, "
                  f"{r['cosine_least']:.5f} at least")
    else:
        out.print(f"perplexity {where}: {r['perplexity_float']:.4g} in float, {r['perplexity_int']:.4g} in integers "
                  f"({r['perplexity_int'] / r['perplexity_float'] - 1:+.2%})")
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "error of its output"):
        table.add_column(name, justify="right")
    for layer, error in enumerate(r["layer_error"]):
        table.add_row(str(layer), f"{error:.2%}")
    out.console.print(table)
    worst = max(r["node_error"], key=r["node_error"].get)
    out.print(f"relative root mean square, each layer from the float values before it; largest of a single operation: "
              f"{worst} {r['node_error'][worst]:.2%}; output with everything in integers: {r['logits_error']:.2%}")
