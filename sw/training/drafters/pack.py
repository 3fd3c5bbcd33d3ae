"""Write what the run needs: `python -m gemmule.sw.training.drafters.pack --out DIR`.

The target's tensors as they lie in the published file, and requests as tokens; some 97 MB in all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemmule.compiler.importers.gguf.file import open_gguf
from gemmule.sw.errors import InputError
from gemmule.sw.models.gguf_tokenizer import parse_gguf_text, tokenizer_text
from gemmule.sw.models.published import PUBLISHED, published_file
from gemmule.sw.prompts.requests import first_requests
from gemmule.sw.text.corpus import load_corpus
from gemmule.sw.text.tokens import parse_tokenizer
from gemmule.sw.training.drafters.packed import Shape, write_pack
from gemmule.sw.training.drafters.prompts import ABOUT_PASSAGES, requests_about

__all__ = ["pack"]

MOST_ASKED, MOST_TOKENS = 20000, 200
"""Packed requests, and tokens of one."""
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the template of SmolLM2 puts first."""


def pack(name: str, folder: Path, seed: int = 1, parts: int = 3) -> list[Path]:
    """Write the pack of a published model; the paths of its files.

    Raises:
        InputError: the model's package is missing, or its template is not the one that is written here.
    """
    file = open_gguf(published_file(name))
    keys, data = parse_gguf_text(file.metadata), file.path.read_bytes()
    head = {key.removeprefix("llama."): value for key, value in file.metadata.items()}
    shape = Shape(hidden=head["embedding_length"], layers=head["block_count"], heads=head["attention.head_count"],
                  kv_heads=head["attention.head_count_kv"], inner=head["feed_forward_length"],
                  vocab=len(keys.tokens), theta=head["rope.freq_base"],
                  eps=head["attention.layer_norm_rms_epsilon"])
    tokenizer = parse_tokenizer(tokenizer_text(keys), name, shape.vocab)
    if not keys.chat or SYSTEM not in keys.chat.template:
        raise InputError(f"{name}: its chat template must hold {SYSTEM!r}: write what this one begins with")

    def tokens(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    asked = [(category, found) for category, text in requests_about(load_corpus(), seed)
             if len(found := tokens(text)) <= MOST_TOKENS][:MOST_ASKED]
    stops = [number for number in range(shape.vocab) if tokenizer.decode([number]).rstrip(" \n").endswith((".", "!"))]
    lists = {
        "asked": asked, "instructions": [("passage", tokens(text)) for text in ABOUT_PASSAGES],
        "requests": [(name, tokens(one.text)) for name, texts in first_requests().items() for one in texts],
        "stops": [("stops", stops)]}
    tensors = ((name, one.dtype, one.shape, data[one.begin:one.end]) for name, one in file.tensors.items())
    return write_pack(folder, shape, tensors, tokens(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"),
                      tokens("<|im_end|>\n<|im_start|>assistant\n"), keys.ends[0], lists, parts)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=PUBLISHED, default="smollm2")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the pack's files")
    parser.add_argument("--parts", type=int, default=3, help="files that the target's tensors are cut into")
    parser.add_argument("--seed", type=int, default=1, help="another one chooses other requests")
    args = parser.parse_args()
    try:
        for path in pack(args.model, args.out, args.seed, args.parts):
            print(f"{path.stat().st_size / 2**20:6.1f} MiB  {path}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
