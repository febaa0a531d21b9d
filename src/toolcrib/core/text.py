"""Split text into words and terms, in the same way for tools and queries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import regex
import Stemmer

MAX_WORD_CHARS: Final = 64

# Replaces everything but letters and digits. `translate` and `split` are faster than a pattern.
_ASCII_SPACES = "".join(char if char.isalnum() else " " for char in map(chr, range(128)))
_ASCII_KEY = {code: char.lower() if char.isalnum() else None for code, char in enumerate(map(chr, range(128)))}
# Vowel signs and other marks are part of a word (`हिन्दी` is one word); `\w` of the standard library
# does not match them.
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+")
# Splits `HTTPGetURLs` into HTTP, Get, URLs.
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Scripts written without spaces between words.
_UNSPACED_SCRIPT = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]+")
_ACCENT = re.compile("[\u0300-\u036f]")

_stem = Stemmer.Stemmer("english", maxCacheSize=0).stemWord

# Common words without meaning for search, and the parts of contractions (`don't`, `I'll`).
_STOP_WORDS: Final = """
    a able about after all also am an and any are as at be because been before being both but by
    can could couldn d did didn do does doesn doing don each either every for from going got had
    has have having he hello help her here hers hey hi him his how i if in interested into is isn
    it its just know let like ll looking m may me might more most much must my need no not of off
    on one only or other our ours out over own please re s she should so some such t tell than
    thank thanks that the their theirs them then there these they this those through to too trying
    under until up us use used uses using ve very via want was we were what when where whether
    which while who whom whose why will with within without won wondering would you your yours
"""


class TextWord(NamedTuple):
    """A word of a text, the term of the whole word, and the terms of its parts.

    `GitHub` has the whole `github` and the parts `git`, `hub`; a plain word has itself as only part.
    """

    original: str
    whole: str
    parts: tuple[str, ...]


def split_words(text: str) -> list[TextWord]:
    """Return the analyzed words of a text in order."""
    return list(map(analyze_word, find_words(text)))


def find_words(text: str) -> list[str]:
    """Return the words of a text in order, split at everything but letters, digits and marks."""
    if text.isascii():
        return text.translate(_ASCII_SPACES).split()
    words: list[str] = []
    for word in text.translate(_ASCII_SPACES).split():
        if word.isascii():
            words.append(word)
        else:
            words += [piece for found in _WORD.findall(_strip_accents(word)) for piece in _split_scripts(found)]
    return words


def normalize_name(name: str) -> str:
    """Return a key that is the same for all case styles: `sendEmail`, `send-email`, `Send email`."""
    if name.isascii():
        return name.translate(_ASCII_KEY)
    # A name without letters and digits, such as an emoji, is its own key.
    return "".join(_WORD.findall(_strip_accents(name))).casefold() or name.casefold()


@lru_cache(maxsize=100_000)
def analyze_word(text: str) -> TextWord:
    """Return the terms of a word."""
    if not text.isascii():
        folded = text.casefold()[:MAX_WORD_CHARS]
        term = _stem_word(folded) if folded.isascii() else folded
        return TextWord(text, term, (term,))
    whole = _stem_word(text)
    # Most words are plain, so they are checked first.
    parts = () if text.islower() and text.isalpha() else _PART.findall(text)
    if len(parts) < 2:
        return TextWord(text, whole, (whole,))
    # A single letter or digit is not a useful part (`s3`, `iPhone`).
    return TextWord(text, whole, tuple(_stem_word(part) for part in parts if len(part) > 1) or (whole,))


def _stem_word(word: str) -> str:
    lower = word.lower()[:MAX_WORD_CHARS]
    return str(_stem(lower))


def _strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _ACCENT.sub("", decomposed))


def _split_scripts(word: str) -> Iterator[str]:
    """Split a word where its script changes (`API設計`), and scripts without spaces into bigrams.

    In scripts that do not separate words, overlapping pairs of characters are used as words.
    """
    end = 0
    for run in _UNSPACED_SCRIPT.finditer(word):
        if run.start() > end:
            yield word[end : run.start()]
        for at in range(run.start(), max(run.end() - 1, run.start() + 1)):
            yield word[at : min(at + 2, run.end())]
        end = run.end()
    if end < len(word):
        yield word[end:]


# Whether a term is a stop word. It is called for every word of every tool, so it is the method of the
# set itself.
is_stop_word: Final[Callable[[str], bool]] = frozenset(map(_stem_word, _STOP_WORDS.split())).__contains__
