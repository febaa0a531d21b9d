"""A trained detector of sentences that instruct the model instead of describing the tool.

It runs three layers over the word vectors of the encoder, and classifies the mean of the token
vectors of each sentence. Sentences of one text share a passage, so that each is read in its context.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from toolcrib.encoder.default import DEFAULT_ENCODER, load_weights, read_checksums
from toolcrib.encoder.glossary import translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS, Array, TransformerEncoder

# A definition with more passages is too large; real ones have at most a tenth of it.
MAX_PASSAGES: Final = 500
MAX_CACHED_PASSAGES: Final = 4_096
MAX_SENTENCE_TOKENS: Final = 44
_MAX_SENTENCE_CHARS: Final = 400
_MAX_NAME_TOKENS: Final = 8
_MIN_WORDS: Final = 3
# A passage of fewer tokens describes the tool and contains nothing else: "Give back the text that it was given."
_MIN_PASSAGE_TOKENS: Final = 12
_MIN_FOREIGN_CHARS: Final = 8

# A line that starts with a lower-case letter continues the line before.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])[\"”')\]]*\s+|\s*\n\s*(?![a-z\s])|(?<=[。！？])")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_WORD_BREAKS: Final = re.compile(r"[_\-./]+|(?<=[a-z])(?=[A-Z])")
_ESCAPES: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# A long sentence is split between words, and a long word anywhere.
_PIECE: Final = re.compile(rf"\S.{{0,{_MAX_SENTENCE_CHARS}}}(?!\S)|\S{{1,{_MAX_SENTENCE_CHARS}}}")


class NamedText(NamedTuple):
    """A text of a definition, without disguises, and the name of the parameter it belongs to."""

    number: int
    parameter: str
    text: str


class PassageSentence(NamedTuple):
    """A sentence of a passage: the number of its text, and its tokens."""

    number: int
    text: str
    tokens: slice


class Passage(NamedTuple):
    """Consecutive sentences of one text that fit in the encoder's window, after the names."""

    ids: tuple[int, ...]
    sentences: tuple[PassageSentence, ...]


class SentenceScorer:
    """Scores the sentences of passages: some layers over the word vectors of the encoder, then a classifier."""

    def __init__(self, tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> None:
        self._encoder = TransformerEncoder(tokenizer, {**DEFAULT_ENCODER.weights, **weights})
        self._linear, self._bias = weights["linear"], weights["bias"]
        self._widen: Array = weights["widen"].astype(np.float32)
        self._widen_shift, self._narrow = weights["widen_shift"], weights["narrow"]
        self.threshold = float(weights["threshold"])

    def score(self, passages: Sequence[Passage]) -> Iterator[Array]:
        """Yield the scores of each passage's sentences."""
        tokens = self._encoder.encode_tokens([passage.ids for passage in passages])
        for passage, vectors in zip(passages, tokens, strict=True):
            means = np.array([vectors[sentence.tokens].mean(axis=0) for sentence in passage.sentences])
            hidden = np.maximum(means @ self._widen + self._widen_shift, 0)
            yield means @ self._linear + hidden @ self._narrow + self._bias


class InstructionDetector:
    """Finds suspicious sentences with the shipped weights.

    A filter that reads only words skips the passages that are clearly harmless, about three quarters.
    """

    def __init__(self) -> None:
        weights = load_weights("detector.npz")
        self.tokenizer = WordPieceTokenizer(load_vocabulary())
        self._filter, self._scorer = (
            SentenceScorer(
                self.tokenizer, {name.removeprefix(stage): weights[name] for name in weights if name.startswith(stage)}
            )
            for stage in ("filter.", "scorer.")
        )
        self._low = float(weights["low"])
        self._cache: dict[tuple[int, ...], Array] = {}

    def find_suspects(self, passages: Sequence[Passage]) -> Iterator[tuple[PassageSentence, bool]]:
        """Yield the most suspicious sentence of each passage with a high score, and whether it is certain.

        The layers mix the sentences of a passage, so the filter decides which of them it is.
        """
        counts = [sum(each.tokens.stop - each.tokens.start for each in passage.sentences) for passage in passages]
        passages = [passage for passage, count in zip(passages, counts, strict=True) if count >= _MIN_PASSAGE_TOKENS]
        filtered = zip(passages, self._filter.score(passages), strict=True)
        candidates = [(passage, scores) for passage, scores in filtered if scores.max() >= self._filter.threshold]
        scored = self._score_cached([passage for passage, _ in candidates])
        for (passage, word_scores), scores in zip(candidates, scored, strict=True):
            if scores.max() >= self._low:
                yield passage.sentences[int(word_scores.argmax())], bool(scores.max() >= self._scorer.threshold)

    def _score_cached(self, passages: Sequence[Passage]) -> list[Array]:
        # Another thread may replace the cache; this reference stays valid.
        cache = self._cache
        missing = list({passage.ids: passage for passage in passages if passage.ids not in cache}.values())
        new = dict(zip((passage.ids for passage in missing), self._scorer.score(missing), strict=True))
        scores = [new[passage.ids] if passage.ids in new else cache[passage.ids] for passage in passages]
        if len(cache) + len(new) > MAX_CACHED_PASSAGES:
            cache = self._cache = {}
        cache.update(new)
        return scores


def split_passages(tokenizer: WordPieceTokenizer, name: str, texts: Iterable[NamedText]) -> list[Passage]:
    """Return the passages of a definition, each after the names of the tool and the parameter."""
    first, last = tokenizer.encode("", 2)
    tool = tokenizer.encode_without_special_tokens(_WORD_BREAKS.sub(" ", name), _MAX_NAME_TOKENS)
    passages: list[Passage] = []
    seen: set[str] = set()
    for number, parameter, text in texts:
        own = tokenizer.encode_without_special_tokens(_WORD_BREAKS.sub(" ", parameter), _MAX_NAME_TOKENS)
        head = [first, *tool, *own, *tokenizer.encode_without_special_tokens(":", 1)]
        ids, sentences = list(head), list[PassageSentence]()
        for sentence in _split_sentences(text):
            if sentence in seen:
                continue
            seen.add(sentence)
            for part in _split_tokens(tokenizer, sentence):
                if sentences and len(ids) + len(part) >= MAX_TOKENS:
                    passages.append(Passage((*ids, last), tuple(sentences)))
                    ids, sentences = list(head), []
                sentences.append(PassageSentence(number, sentence, slice(len(ids), len(ids) + len(part))))
                ids += part
        if sentences:
            passages.append(Passage((*ids, last), tuple(sentences)))
    return passages


@cache
def compute_detector_version() -> str:
    """Return a hash of the weights. Stored findings are valid for one version."""
    return hashlib.blake2b(read_checksums("detector.npz").encode(), digest_size=8).hexdigest()


@cache
def load_detector() -> InstructionDetector:
    """Return the detector; the weights are read at the first call."""
    return InstructionDetector()


def _split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text that are long enough for an instruction."""
    for part in _SENTENCE_END.split(text):
        for sentence in _PIECE.findall(" ".join(_ESCAPES.sub(" ", part).split())):
            is_foreign = not sentence.isascii() and len(sentence) >= _MIN_FOREIGN_CHARS
            if is_foreign or len(_WORD.findall(sentence)) >= _MIN_WORDS:
                yield sentence


def _split_tokens(tokenizer: WordPieceTokenizer, sentence: str) -> Iterator[list[int]]:
    ids = tokenizer.encode_without_special_tokens(translate_to_english(sentence), _MAX_SENTENCE_CHARS)
    for start in range(0, len(ids), MAX_SENTENCE_TOKENS):
        yield ids[start : start + MAX_SENTENCE_TOKENS]
