"""Text into the word pieces that the encoder was trained on: BERT's uncased tokenizer.

Our own few lines instead of a dependency: the official package brings a client for a model hub,
and per call this is faster. A test holds the two to the same output.
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
# The ideographs that BERT reads one by one; kana and hangul are read as words.
_IDEOGRAPH = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f])"
)


@cache
def load_vocabulary() -> tuple[str, ...]:
    """The word pieces that come with us, in the order of their ids."""
    text = (files("toolcrib.encoder") / "data" / "vocabulary.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


class WordPieceTokenizer:
    """A vocabulary, and how to spell a text with it."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: id for id, piece in enumerate(vocabulary)}
        self._cls, self._sep = self._ids[CLS], self._ids[SEP]
        self._unknown = self._ids[UNKNOWN]
        self._split_word_cached = lru_cache(maxsize=50_000)(self._split_word)

    def encode(self, text: str, limit: int) -> list[int]:
        """The ids of a text's pieces between the two marks, at most `limit` in all."""
        return [self._cls, *self.encode_without_special_tokens(text, limit - 2), self._sep]

    def encode_without_special_tokens(self, text: str, limit: int) -> list[int]:
        """The same without the marks."""
        found: list[int] = []
        known = self._ids.get
        for word in _split_words(text):
            # Most words are pieces themselves. Of what has signs in it, only marks would be.
            id = known(word) if word.isalnum() else None
            if id is None:
                for part in _split_at_punctuation(word):
                    found += self._split_word_cached(part)
            else:
                found.append(id)
        return found[:limit]

    def find_token_span(self, text: str, part: str, limit: int) -> slice:
        """Where the pieces of a part of a text stand among those of the whole."""
        before, _, _ = text.partition(part)
        return slice(
            len(self.encode(before, limit)) - 1, len(self.encode(before + part, limit)) - 1
        )

    def _split_word(self, word: str) -> tuple[int, ...]:
        """The fewest pieces from the left, each the longest that is known."""
        if len(word) > MAX_WORD_CHARS:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                id = self._ids.get(mark + word[start:end])
                if id is not None:
                    break
            else:
                return (self._unknown,)
            found.append(id)
            start = end
        return tuple(found)


def _split_words(text: str) -> list[str]:
    # Most texts are of one line, and hold nothing that could not be printed.
    if text.isascii() and (text.isprintable() or not _ASCII_CONTROL.search(text)):
        return text.lower().split()
    return _normalize(text).split()


def _split_at_punctuation(word: str) -> list[str]:
    return _ASCII_PIECE.findall(word) if word.isascii() else _split_unicode(word)


def _normalize(text: str) -> str:
    kept = "".join(
        " " if char in "\t\n\r" or unicodedata.category(char) == "Zs" else char
        for char in text
        if char in "\t\n\r" or not (char == "\ufffd" or unicodedata.category(char)[0] == "C")
    )
    spaced = _IDEOGRAPH.sub(r" \1 ", kept)
    marked = unicodedata.normalize("NFD", spaced)
    return "".join(char for char in marked if unicodedata.category(char) != "Mn").lower()


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
