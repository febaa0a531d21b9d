"""From a query to what it asks of an index: terms, alone or next to each other, in a field or any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolcrib.core import text
from toolcrib.search.lexical.fields import Reading
from toolcrib.search.lexical.postings import Postings
from toolcrib.search.lexical.vocabulary import MIN_GUESSED_CHARS, Vocabulary
from toolcrib.search.query.parser import Phrase, Word

# What a term counts that the asker did not write, but probably meant.
GUESS_CERTAINTY: Final = 0.7
# What the parts of a compound (`GitHub`: git, hub) count beside the whole, and the other way round.
COMPOUND_WEIGHT: Final = 0.5
# In a longer question a word that no tool has is no slip of the pen, it is just not there.
MAX_GUESSED_WORDS: Final = 4
# How many terms a prefix or a guess may stand for.
MAX_ALTERNATIVES: Final = 100

# One tuple a place, with the terms that may take it.
Sequence = tuple[tuple[int, ...], ...]
Question = tuple[Sequence, Sequence, str]


class Atom(NamedTuple):
    """The smallest thing a query asks for.

    Identifiers are cut finer than prose, so a phrase reads differently there. `weight` is how much
    of the query this is; `certainty` is below 1 where the asker did not write it, and `guesses` are
    then the terms he may have meant.
    """

    label: str
    prose: Sequence
    identifiers: Sequence
    field: str = ""
    weight: float = 1.0
    certainty: float = 1.0
    guesses: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        """What it asks, apart from how it was written and how much it counts."""
        return self[1:4]

    @property
    def is_word(self) -> bool:
        """Whether an occurrence anywhere will do."""
        return len(self.prose) == 1 == len(self.identifiers) and not self.field


@dataclass(frozen=True, slots=True, eq=False)
class AtomReader:
    """Reads queries as atoms, in view of the terms that the tools of one catalog hold."""

    reading: Reading
    vocabulary: Vocabulary
    postings: Postings

    def plain(self, query: str) -> list[Atom]:
        """The atoms of a query that is nothing but words."""
        words = self.reading.words(query)
        is_stop_word = self.reading.is_stop_word
        telling = [word for word in words if not is_stop_word(word.whole)] or words
        distinct = {word.whole: word for word in telling}
        guessing = len(distinct) <= MAX_GUESSED_WORDS
        if len(distinct) == len(telling):
            return [atom for word in telling for atom in self._word(word, "", guessing)]
        # A word said again counts more, but not twice as much.
        times = Counter([word.whole for word in telling])
        return [
            atom if times[whole] == 1 else atom._replace(weight=atom.weight * times[whole] ** 0.5)
            for whole, word in distinct.items()
            for atom in self._word(word, "", guessing)
        ]

    def leaf(self, leaf: Word | Phrase, field: str, guessing: bool) -> list[Atom]:
        """The atoms of one leaf of a query. None, if it holds nothing but stop words."""
        words = self.reading.words(leaf.text)
        if not words:
            return []
        if isinstance(leaf, Phrase):
            return self._phrase(leaf, words, field)
        atoms = []
        if leaf.star:
            atoms.append(self._prefix(words.pop(), field))
        fields = self.reading.fields if field else ()
        is_identifier = any(one.identifiers for one in fields if one.name == field)
        for word in words:
            # Prose is read without its stop words, so asking for one there asks nothing.
            if is_identifier or not self.reading.is_stop_word(word.whole):
                atoms += self._word(word, field, guessing)
        return atoms

    def _word(self, word: text.Word, field: str, guessing: bool) -> list[Atom]:
        written, whole, parts = word
        if parts[0] == whole:
            number = self.vocabulary.get(whole)
            if number is not None and (not guessing or self.postings.holds(number)):
                sequence = ((number,),)
                return [Atom(written, sequence, sequence, field)]
            return [self._guess(word, field) if guessing else Atom(written, ((),), ((),), field)]
        places = [(term, self._numbers((term,))) for term in (whole, *parts)]
        return [
            Atom(term, (place,), (place,), field, COMPOUND_WEIGHT)
            for term, place in places
            if place or term is not whole
        ]

    def _guess(self, word: text.Word, field: str) -> Atom:
        """What a word that no tool has was probably meant to be."""
        terms = self.vocabulary.near(word.whole, lambda term: bool(self._numbers((term,))))
        if not terms and len(word.whole) >= MIN_GUESSED_CHARS:
            terms = self._held(self.vocabulary.holding(word.whole))
        if not terms:
            return Atom(word.written, ((),), ((),), field)
        guesses = tuple(sorted(terms)[:MAX_ALTERNATIVES])
        place = self._numbers(guesses)
        return Atom(word.written, (place,), (place,), field, 1.0, GUESS_CERTAINTY, guesses)

    def _prefix(self, word: text.Word, field: str) -> Atom:
        """The terms that begin as a word does."""
        terms = self._held(self.vocabulary.starting_with(text.name_key(word.written)))
        if not terms:
            # Terms are stems: none begins with `notifications`, but `notif` does.
            terms = self._held(self.vocabulary.starting_with(word.whole))
        place = self._numbers(sorted(terms)[:MAX_ALTERNATIVES])
        return Atom(f"{word.written}*", (place,), (place,), field)

    def _phrase(self, phrase: Phrase, words: list[text.Word], field: str) -> list[Atom]:
        last = self._prefix(words.pop(), field).prose if phrase.star else ()
        is_stop_word = self.reading.is_stop_word
        prose = [self._numbers((w.whole,)) for w in words if not is_stop_word(w.whole)]
        identifiers = [self._numbers((part,)) for word in words for part in word.parts]
        return [Atom(str(phrase), (*prose, *last), (*identifiers, *last), field)]

    def _held(self, terms: Iterable[str]) -> list[str]:
        """Those terms that some tool holds: a vocabulary also remembers terms of earlier tools."""
        return [term for term in terms if self._numbers((term,))]

    def _numbers(self, terms: Iterable[str]) -> tuple[int, ...]:
        numbers = [self.vocabulary.get(term) for term in terms]
        return tuple([n for n in numbers if n is not None and self.postings.holds(n)])
