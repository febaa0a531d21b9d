"""Correct misspelled words of a query.

A word is misspelled if no tool contains it and if it is not an English word. The English words are those of the
encoder's vocabulary, which is ordered by frequency.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Final

from toolcrib.core import text
from toolcrib.encoder.tokenizer import load_vocabulary
from toolcrib.search.lexical.vocabulary import Vocabulary

# The lexical ranker corrects shorter queries, with a certainty.
MIN_WORDS: Final = 3
# Shorter words are within one edit of too many others.
_MIN_CHARS: Final = 5
_MAX_CORRECTIONS: Final = 3
# A word with one of these after an English word is another form of it.
_ENDINGS: Final = ("s", "es", "d", "ed", "ing", "r", "er", "ers", "ly", "able")
# Identifiers, paths and words with digits are not corrected.
MISSPELLABLE = re.compile(rf"(?<![\w@./:#-])[A-Za-z][a-z]{{{_MIN_CHARS - 1},19}}(?![\w@/:-]|\.\w)")


def correct_spelling(query: str, is_unknown: Callable[[str], bool]) -> dict[str, str]:
    """Return the corrections of the misspelled words of a query; `is_unknown` is true if no tool contains a word."""
    if len(query.split()) < MIN_WORDS:
        return {}
    corrections: dict[str, str] = {}
    english = _number_english_words()
    for written in dict.fromkeys(MISSPELLABLE.findall(query)):
        word = written.lower()
        is_form = any(word.endswith(ending) and word.removesuffix(ending) in english for ending in _ENDINGS)
        if word in english or is_form or len(corrections) == _MAX_CORRECTIONS or not is_unknown(word):
            continue
        similar = _load_english_vocabulary().find_corrections(word, partial(_is_likely, word), max_edits=1)
        found = [other for other in similar if _is_stop_word(other) or not is_unknown(other)]
        if found:
            # Two letters in the wrong order are the likeliest error.
            corrections[written] = min(found, key=lambda other: (sorted(other) != sorted(word), english[other]))
    return corrections


def _is_likely(word: str, other: str) -> bool:
    """Return whether a word may be a misspelling of another one, and not another form of it.

    The first letter is right, and the difference is not in the ending: "trivia" is not "trivial".
    """
    return word[0] == other[0] and not other.startswith(word[:-1])


def _is_stop_word(word: str) -> bool:
    return all(text.is_stop_word(part.whole) for part in text.split_words(word))


@cache
def _number_english_words() -> dict[str, int]:
    return {word: number for number, word in enumerate(load_vocabulary()) if word.isascii() and word.isalpha()}


@cache
def _load_english_vocabulary() -> Vocabulary:
    vocabulary = Vocabulary()
    for word in _number_english_words():
        vocabulary.get_or_add(word)
    return vocabulary
