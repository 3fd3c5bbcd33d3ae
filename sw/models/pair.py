"""Models that decode together: a target and, where there is one, a draft with the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.chat import Chat
from gemmule.compiler.files.model_file import ModelFile, load_model
from gemmule.compiler.quantize.listed import listed
from gemmule.compiler.quantize.narrow import NARROW_GROUP, narrowed
from gemmule.io.reading import named
from gemmule.sw.datastore.datastore import Datastore
from gemmule.sw.datastore.kept import open_datastore, writings_of
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DEFAULT, MODELS, MODELS_FOLDER, SMALL, TUNED, resolve_pair
from gemmule.sw.models import bundled_models as text
from gemmule.sw.models.bundled import FILES
from gemmule.sw.models.drafting.draft_vocabulary import frequent_tokens
from gemmule.sw.models.drafting.exit_heads import ExitHeads, heads_of
from gemmule.sw.models.drafting.int4_copy import Int4Copy
from gemmule.sw.models.drafting.skipping import skipped_layers
from gemmule.sw.models.drafting.tuned import FILE as CHANGES
from gemmule.sw.models.drafting.tuned import Streams, changed, read_changes
from gemmule.sw.models.import_texts import default_texts
from gemmule.sw.models.place import FilePlace, Place
from gemmule.sw.models.placed import Placed
from gemmule.sw.models.published import PUBLISHED, published_file
from gemmule.sw.models.quantised import is_published, quantised
from gemmule.sw.models.trained.drafter import KINDS, DrafterFile, drafter_path, trained_drafter
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.text.tokens import detokenizer, encode_behind, parse_tokenizer

__all__ = ["Pair", "TrainedSource", "bundled_pair", "imported_pair", "open_pair", "published_pair"]


@dataclass(frozen=True)
class TrainedSource:
    """A drafter that was trained on a target's hidden rows, and how it is placed beside that.

    Attributes:
        made: what it is in integers.
        place: compiles it.
    """

    made: DrafterFile
    place: Place


@dataclass(frozen=True)
class Pair:
    """What generating needs of its models.

    Attributes:
        name: as the report shows it.
        positions: of the target, prompt and new tokens together.
        ends: tokens that end a text.
        encode: token ids of a prompt.
        go_on: token ids of text that comes behind others: without a token that begins a text.
        plain: token ids of text that says itself what it begins with, as a chat template's does.
        words: text of token ids.
        digests: SHA-256 of the files of both.
        target, draft: compile and place the models; no draft: only autoregressive decoding.
        parameters: of the target.
        vocab: tokens of both.
        chat: the target's chat template, where it has one.
        skips: the target's passes load no weights that meet only zeros.
        tokenizer: of both; None: only token ids are known.
        int4: compiles the target's int4 copy beside it.
        trained: by kind, gives a drafter that was trained on the target's hidden rows; the first call makes it.
        exit_heads: trained for the target's early exits, where there are any.
        streams: rows of the target that guess further tokens, where it was tuned for them.
    """

    name: str
    positions: int
    ends: frozenset[int]
    encode: Callable[[str], list[int]]
    go_on: Callable[[str], list[int]]
    plain: Callable[[str], list[int]]
    words: Detokenizer
    digests: tuple[str, ...]
    target: Place
    draft: Place | None
    parameters: int
    vocab: int = 0
    chat: Chat | None = None
    skips: bool = False
    tokenizer: Tokenizer | None = None
    int4: Int4Copy | None = None
    exit_heads: ExitHeads | None = None
    streams: Streams | None = None
    trained: Mapping[str, Callable[[], TrainedSource]] = field(default_factory=dict)

    def decode(self, ids: Sequence[int], before: Sequence[int] = ()) -> str:
        """Text of token ids behind others, special tokens left out."""
        return self.words.text(ids, before)

    def datastore(self, corpus: str) -> Datastore:
        """Texts to draft from, in the tokens of the pair; the first call makes it.

        Raises:
            CacheError: it cannot be kept.
            InputError: there is no text to make it of, or no tokenizer.
        """
        return open_datastore(self.name, self.known_tokenizer, corpus).datastore

    @property
    def writes(self) -> bool:
        """Whether the model brings texts that it wrote."""
        return writings_of(self.name).is_file()

    def drafting_among(self, count: int | None) -> tuple[Pair, np.ndarray | None]:
        """The pair whose draft, and int4 copy, choose among the ``count`` most frequent tokens, and these tokens; None:
        as it is.

        Raises:
            CacheError, InputError: as of :meth:`datastore`; there are not so many tokens.
        """
        if count is None:
            return self, None
        tokens = frequent_tokens(self.datastore("all"), count, self.vocab)
        draft = self.draft.choosing(tokens) if isinstance(self.draft, FilePlace) else self.draft
        return replace(self, draft=draft, int4=self.int4 and self.int4.choosing(tokens)), tokens

    def skipped_layers(self, target: Placed) -> tuple[int, ...]:
        """Layers of the target that are best left out in drafting, found once on text that calibrates imports.

        Raises:
            CacheError: they cannot be kept.
            InputError: this Python lacks its own sources or documentation.
        """
        return skipped_layers(target, self.name, [self.encode(text) for text in default_texts("calibration").values()])

    @property
    def known_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            InputError: there is none.
        """
        if self.tokenizer is None:
            raise InputError(f"a datastore is made with a tokenizer, which {self.name} lacks: take another --method")
        return self.tokenizer


@cache
def bundled_pair(name: str = SMALL, weights: str | None = None, *, skip_zeros: bool = False) -> Pair:
    """A bundled pair (:data:`gemmule.sw.limits.MODELS`) with ``int8`` weights, or ``int4`` ones made of them.

    ``skip_zeros``: the target's weights that meet only zeros are not loaded (:mod:`gemmule.compiler.kernels.nonzero`).

    Raises:
        CompileError: a file is missing or damaged.
        InputError: there are no weights that could be skipped.
    """
    tuned, pair = name == TUNED, resolve_pair(name)
    models, streams = {role: text.bundled_model(role, pair) for role in ("target", "draft")}, None
    if tuned:
        models["target"], streams = changed(models["target"], read_changes(MODELS_FOLDER / pair / CHANGES,
                                                                           models["target"]))
    models = {role: _with_weights(model, weights, f"the bundled {role}") for role, model in models.items()}
    whole = models["target"]
    int4 = Int4Copy(whole, name if tuned else pair)
    if skip_zeros:
        models["target"] = _skipping(whole)
    target, draft = (FilePlace(MODELS_FOLDER / pair / FILES[role], model, shown=role, bundled=True)
                     for role, model in models.items())
    encode = partial(text.encode, pair=pair)
    return Pair(
        name=name if tuned else pair, positions=models["target"].network.graph.text_positions,
        ends=frozenset(models["target"].ends),
        encode=encode, go_on=encode, plain=encode, words=text.bundled_detokenizer(pair),
        digests=tuple(model.sha256 for model in models.values()), target=target, draft=draft,
        parameters=models["target"].network.graph.parameters, skips=skip_zeros, tokenizer=text.bundled_tokenizer(pair),
        vocab=models["target"].network.graph.vocab, int4=int4, exit_heads=None if tuned else heads_of(pair),
        trained={} if tuned else _every_trained(pair, whole), streams=streams)


def _with_weights(file: ModelFile, weights: str | None, what: str) -> ModelFile:
    """The model with weights of that width; None: as it is.

    Raises:
        InputError: int8 weights are wanted of int4 ones.
    """
    if weights is None or weights == f"int{file.made.bits}":
        return file
    if weights == "int8":
        raise InputError(f"--weights int8: {what} has int4 weights, which no int8 ones can be made of: import it again "
                         "with --bits int8")
    return replace(file, network=narrowed(file.network), sha256=f"{file.sha256}-int4-{NARROW_GROUP}")


def _skipping(file: ModelFile) -> ModelFile:
    """The model whose passes load no weights that meet only zeros.

    Raises:
        InputError: it has none of which that can be told.
    """
    try:
        return replace(file, network=listed(file.network), sha256=f"{file.sha256}-listed")
    except CompileError as error:
        raise InputError(f"--skip-zeros: {error}") from None


def _read(path: Path, option: str, weights: str | None) -> ModelFile:
    if path.is_dir():
        raise InputError(f"{option} {path} is a directory: `gemmule import {path} --calibrate TEXTFILE --out FILE` "
                         "first, then give the FILE")
    file = load_model(path)
    if file.network.graph.encoder:
        raise InputError(f"{option} {path} must be a decoder, not an encoder, whose rows see what follows them: it "
                         "gives hidden rows or labels, not text")
    return _with_weights(file, weights, f"{option} {path}")


def _tokenizer(file: ModelFile, path: Path, option: str) -> Tokenizer:
    if file.tokenizer is None:
        raise InputError(f"{option} {path} has no tokenizer: import it again from a directory with tokenizer.json")
    return parse_tokenizer(file.tokenizer, named(path), file.network.graph.vocab)


def imported_pair(target: Path, draft: Path | None = None, weights: str | None = None, *,
                  skip_zeros: bool = False) -> Pair:
    """Files that ``gemmule import`` wrote; ``weights``, ``skip_zeros``: as of :func:`bundled_pair`.

    Raises:
        CompileError: a file is missing, damaged or no model.
        InputError: their tokens differ.
    """
    return _pair(target, _read(target, "--model", weights), target.name, draft, weights, skip_zeros)


def published_pair(name: str, draft: Path | None = None, weights: str | None = None, *,
                   skip_zeros: bool = False) -> Pair:
    """A published model by name (:func:`gemmule.sw.models.quantised.quantised`), and a file that drafts for it, if any.

    Raises:
        CacheError, CompileError, InputError: as of that function and of :func:`imported_pair`.
    """
    try:
        published_file(name)
    except InputError as error:
        raise InputError(f"{error}; or take --model {DEFAULT}, which needs nothing") from None
    path, file = quantised(name, weights)
    pair = replace(_pair(path, file, name, draft, weights, skip_zeros), exit_heads=heads_of(name))
    return replace(pair, trained=_every_trained(name, file))


def _every_trained(name: str, target: ModelFile) -> dict[str, Callable[[], TrainedSource]]:
    """Drafters that come with a model, by kind."""
    return {kind: cache(partial(_trained, name, kind, target)) for kind in KINDS if drafter_path(name, kind)}


def _trained(name: str, kind: str, target: ModelFile) -> TrainedSource:
    """With int4 weights, whatever the target has: half the cycles cost less acceptance than they save."""
    made = trained_drafter(name, kind, target)
    file = replace(made.file, network=narrowed(made.file.network, head=True),
                   sha256=f"{made.file.sha256}-int4-{NARROW_GROUP}-head")
    return TrainedSource(replace(made, file=file), FilePlace(
        MODELS_FOLDER, file, shown=f"the {KINDS[kind][1]} of {name}"))


def _pair(target: Path, file: ModelFile, name: str, draft: Path | None, weights: str | None,
          skip_zeros: bool) -> Pair:
    """``name``: of the target, as the report shows it."""
    int4 = Int4Copy(file, name)
    file = _skipping(file) if skip_zeros else file
    graph, tokenizer = file.network.graph, _tokenizer(file, target, "--model")
    other = None
    if draft is not None:
        other = _read(draft, "--draft-model", weights)
        if (_tokenizer(other, draft, "--draft-model").get_vocab() != tokenizer.get_vocab()
                or other.network.graph.vocab != graph.vocab):
            raise InputError(f"--draft-model {draft} must have the tokens of {name}: its vocabulary differs")
        if other.network.graph.text_positions < graph.text_positions:
            raise InputError(f"--draft-model {draft} must see the {graph.text_positions:,} positions of {name}, not "
                             f"{other.network.graph.text_positions:,}")

    def encode(prompt: str, *, begins: bool = True) -> list[int]:
        return _behind(file.made.prefix, text.token_ids(tokenizer, prompt, add_special_tokens=begins))

    def go_on(said: str) -> list[int]:
        return encode_behind(tokenizer, text.check_utf8("--turns", said))

    return Pair(
        name=name, positions=graph.text_positions, ends=frozenset(file.ends), encode=encode, go_on=go_on,
        plain=partial(encode, begins=False), words=detokenizer(tokenizer), chat=file.chat, parameters=graph.parameters,
        digests=(file.sha256, *((other.sha256,) if other else ())), target=FilePlace(target, file, shown=name),
        draft=FilePlace(draft, other, shown=draft.name) if draft and other else None, skips=skip_zeros,
        tokenizer=tokenizer, int4=int4, vocab=graph.vocab)


def _behind(prefix: tuple[int, ...], ids: list[int]) -> list[int]:
    """Tokens of a text without those that stand in every cache already, unless nothing is left."""
    count = len(prefix)
    return ids[count:] if tuple(ids[:count]) == prefix and len(ids) > count else ids


def open_pair(model: str, draft: Path | None = None, weights: str | None = None, *,
              skip_zeros: bool = False) -> Pair:
    """A bundled pair or published model by name, or the files of an imported one.

    ``weights``, ``skip_zeros``: as of :func:`bundled_pair`, weights of a published model as it is made.

    Raises:
        CacheError: a published model cannot be kept.
        CompileError: a file is missing, damaged or no model.
        InputError: there is neither such a pair nor such a file, or the models' tokens differ.
    """
    if model in MODELS:
        if draft is not None:
            raise InputError(f"--draft-model goes with --model FILE, not with the bundled {model}, which has its own: "
                             "drop it")
        return bundled_pair(model, weights, skip_zeros=skip_zeros)
    if is_published(model):
        return published_pair(model, draft, weights, skip_zeros=skip_zeros)
    if not model or not Path(model).exists():
        known = ", ".join((*MODELS, *PUBLISHED))
        raise InputError(f"--model must be one of {known} or a file that `gemmule import` wrote, not {model!r}")
    return imported_pair(Path(model), draft, weights, skip_zeros=skip_zeros)
