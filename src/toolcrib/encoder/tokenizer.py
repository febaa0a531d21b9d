"""BERT's uncased WordPiece tokenizer.

Implemented here because the `tokenizers` package depends on a client for a model hub, and because
this is faster for single short texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

CLS: Final = "[CLS]"
SEP: Final = "[SEP]"
UNKNOWN: Final = "[UNK]"
MAX_WORD_CHARS: Final = 100

_ASCII_PIECE = re.compile(r"[a-z0-9]+|[^a-z0-9]")
_ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# The ideographs that BERT treats as words of one character; kana and hangul are not among them.
_IDEOGRAPH = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f])"
)


@cache
def load_vocabulary() -> tuple[str, ...]:
    """Return the shipped word pieces in the order of their ids."""
    text = (files("toolcrib.encoder") / "data" / "vocabulary.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


class WordPieceTokenizer:
    """Splits texts into the word pieces of a vocabulary."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: id for id, piece in enumerate(vocabulary)}
        self._cls, self._sep = self._ids[CLS], self._ids[SEP]
        self._unknown = self._ids[UNKNOWN]
        self._split_word_cached = lru_cache(maxsize=50_000)(self._split_word)

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the token ids with [CLS] and [SEP], at most `limit` in total."""
        return [self._cls, *self.encode_without_special_tokens(text, limit - 2), self._sep]

    def encode_without_special_tokens(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` token ids, without [CLS] and [SEP]."""
        ids: list[int] = []
        look_up = self._ids.get
        for word in _split_words(text):
            # Fast path: most words are in the vocabulary. Entries with punctuation, such as
            # "[SEP]", are special tokens and must not match.
            id = look_up(word) if word.isalnum() else None
            if id is None:
                for part in _split_at_punctuation(word):
                    ids += self._split_word_cached(part)
            else:
                ids.append(id)
        return ids[:limit]

    def find_token_span(self, text: str, part: str, limit: int) -> slice:
        """Return the slice of the text's token ids that belongs to the first match of `part`."""
        before, _, _ = text.partition(part)
        return slice(len(self.encode(before, limit)) - 1, len(self.encode(before + part, limit)) - 1)

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Return the ids of the longest pieces that match, from left to right."""
        if len(word) > MAX_WORD_CHARS:
            return (self._unknown,)
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                id = self._ids.get(prefix + word[start:end])
                if id is not None:
                    break
            else:
                return (self._unknown,)
            ids.append(id)
            start = end
        return tuple(ids)


def _split_words(text: str) -> list[str]:
    # Fast path: most texts are ASCII without control characters.
    if text.isascii() and (text.isprintable() or not _ASCII_CONTROL.search(text)):
        return text.lower().split()
    return _normalize(text).split()


def _split_at_punctuation(word: str) -> list[str]:
    return _ASCII_PIECE.findall(word) if word.isascii() else _split_unicode(word)


def _normalize(text: str) -> str:
    cleaned = "".join(
        " " if char in "\t\n\r" or unicodedata.category(char) == "Zs" else char
        for char in text
        if char in "\t\n\r" or not (char == "\ufffd" or unicodedata.category(char)[0] == "C")
    )
    spaced = _IDEOGRAPH.sub(r" \1 ", cleaned)
    decomposed = unicodedata.normalize("NFD", spaced)
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn").lower()


def _split_unicode(word: str) -> list[str]:
    pieces: list[str] = [""]
    for char in word:
        if _is_punctuation(char):
            pieces += [char, ""]
        else:
            pieces[-1] += char
    return [piece for piece in pieces if piece]


def _is_punctuation(char: str) -> bool:
    if char.isascii():
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")
