"""Small tokenizers of the kinds that published models have, trained on a few sentences."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

__all__ = ["KINDS", "byte_level", "metaspace", "sentence_piece", "special_of"]

TEXT = ["the boat came back over the water", "the man saw the child and the child saw the man", "what is a cache?",
        "answer: a cache keeps what was read before, so that it need not be read again"] * 4
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|answer|>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3, Qwen and SmolLM2: bytes as letters, spaces inside tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return _with_begin(tokenizer)


def sentence_piece() -> Tokenizer:
    """As Llama 2 and Mistral: a space before everything, which decoding strips; bytes where no token is."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    words = [f"▁{word}" for line in TEXT for word in line.split()]
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + 256 + 80, special_tokens=[*SPECIAL, *BYTES], show_progress=False))
    data = json.loads(tokenizer.to_str())  # trained with the bytes as special tokens; they are ordinary ones
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in SPECIAL]
    return _with_begin(Tokenizer.from_str(json.dumps(data)))


def metaspace() -> Tokenizer:
    """As newer SentencePiece conversions and T5."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL,
                                                           show_progress=False))
    return _with_begin(tokenizer)


def word_piece() -> Tokenizer:
    """As BERT: words with a space before each but the first."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL,
                                                                 show_progress=False))
    return _with_begin(tokenizer)


KINDS = {"byte-level": byte_level, "sentence-piece": sentence_piece, "metaspace": metaspace, "word-piece": word_piece}


def special_of(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of the special tokens."""
    return {name: tokenizer.token_to_id(name) for name in SPECIAL}


def _with_begin(tokenizer: Tokenizer) -> Tokenizer:
    """A text begins with ``<s>``."""
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer
