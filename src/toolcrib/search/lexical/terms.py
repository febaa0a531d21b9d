"""From a query to what it asks of an index: terms, alone or next to each other, in a field or any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolcrib.core import text
from toolcrib.search.lexical.fields import FieldConfig
from toolcrib.search.lexical.postings import Postings
from toolcrib.search.lexical.vocabulary import MIN_CORRECTED_CHARS, Vocabulary
from toolcrib.search.query.expression import PhraseNode, WordNode

# What a term counts that the asker did not write, but probably meant.
CORRECTION_CERTAINTY: Final = 0.7
# What the parts of a compound (`GitHub`: git, hub) count beside the whole, and the other way round.
COMPOUND_WEIGHT: Final = 0.5
# In a longer question a word that no tool has is no slip of the pen, it is just not there.
MAX_CORRECTED_WORDS: Final = 4
# How many terms a prefix or a guess may stand for.
MAX_ALTERNATIVES: Final = 100

# One tuple a place, with the terms that may take it.
TermSequence = tuple[tuple[int, ...], ...]
TermKey = tuple[TermSequence, TermSequence, str]


class QueryTerm(NamedTuple):
    """The smallest thing a query asks for.

    Identifiers are cut finer than prose, so a phrase reads differently there. `weight` is how much
    of the query this is; `certainty` is below 1 where the asker did not write it, and `guesses` are
    then the terms he may have meant.
    """

    label: str
    prose: TermSequence
    identifiers: TermSequence
    field: str = ""
    weight: float = 1.0
    certainty: float = 1.0
    corrections: tuple[str, ...] = ()

    @property
    def key(self) -> TermKey:
        """What it asks, apart from how it was written and how much it counts."""
        return self[1:4]

    @property
    def is_word(self) -> bool:
        """Whether an occurrence anywhere will do."""
        return len(self.prose) == 1 == len(self.identifiers) and not self.field


@dataclass(frozen=True, slots=True, eq=False)
class TermAnalyzer:
    """Reads queries as atoms, in view of the terms that the tools of one catalog hold."""

    field_config: FieldConfig
    vocabulary: Vocabulary
    postings: Postings

    def analyze_words(self, query: str) -> list[QueryTerm]:
        """The atoms of a query that is nothing but words."""
        words = self.field_config.split_words(query)
        is_stop_word = self.field_config.is_stop_word
        telling = [word for word in words if not is_stop_word(word.whole)] or words
        distinct = {word.whole: word for word in telling}
        guessing = len(distinct) <= MAX_CORRECTED_WORDS
        if len(distinct) == len(telling):
            return [atom for word in telling for atom in self._analyze_word(word, "", guessing)]
        # A word said again counts more, but not twice as much.
        times = Counter([word.whole for word in telling])
        return [
            atom if times[whole] == 1 else atom._replace(weight=atom.weight * times[whole] ** 0.5)
            for whole, word in distinct.items()
            for atom in self._analyze_word(word, "", guessing)
        ]

    def analyze_leaf(
        self, leaf: WordNode | PhraseNode, field: str, correct: bool
    ) -> list[QueryTerm]:
        """The atoms of one leaf of a query. None, if it holds nothing but stop words."""
        words = self.field_config.split_words(leaf.text)
        if not words:
            return []
        if isinstance(leaf, PhraseNode):
            return self._analyze_phrase(leaf, words, field)
        atoms = []
        if leaf.is_prefix:
            atoms.append(self._analyze_prefix(words.pop(), field))
        fields = self.field_config.fields if field else ()
        is_identifier = any(one.is_identifier for one in fields if one.name == field)
        for word in words:
            # Prose is read without its stop words, so asking for one there asks nothing.
            if is_identifier or not self.field_config.is_stop_word(word.whole):
                atoms += self._analyze_word(word, field, correct)
        return atoms

    def _analyze_word(self, word: text.TextWord, field: str, guessing: bool) -> list[QueryTerm]:
        written, whole, parts = word
        if parts[0] == whole:
            number = self.vocabulary.get(whole)
            if number is not None and (not guessing or self.postings.has_term(number)):
                sequence = ((number,),)
                return [QueryTerm(written, sequence, sequence, field)]
            return [
                self._correct_spelling(word, field)
                if guessing
                else QueryTerm(written, ((),), ((),), field)
            ]
        places = [(term, self._number_terms((term,))) for term in (whole, *parts)]
        return [
            QueryTerm(term, (place,), (place,), field, COMPOUND_WEIGHT)
            for term, place in places
            if place or term is not whole
        ]

    def _correct_spelling(self, word: text.TextWord, field: str) -> QueryTerm:
        """What a word that no tool has was probably meant to be."""
        terms = self.vocabulary.find_corrections(
            word.whole, lambda term: bool(self._number_terms((term,)))
        )
        if not terms and len(word.whole) >= MIN_CORRECTED_CHARS:
            terms = self._keep_used(self.vocabulary.find_containing(word.whole))
        if not terms:
            return QueryTerm(word.original, ((),), ((),), field)
        guesses = tuple(sorted(terms)[:MAX_ALTERNATIVES])
        place = self._number_terms(guesses)
        return QueryTerm(
            word.original, (place,), (place,), field, 1.0, CORRECTION_CERTAINTY, guesses
        )

    def _analyze_prefix(self, word: text.TextWord, field: str) -> QueryTerm:
        """The terms that begin as a word does."""
        terms = self._keep_used(self.vocabulary.find_by_prefix(text.normalize_name(word.original)))
        if not terms:
            # Terms are stems: none begins with `notifications`, but `notif` does.
            terms = self._keep_used(self.vocabulary.find_by_prefix(word.whole))
        place = self._number_terms(sorted(terms)[:MAX_ALTERNATIVES])
        return QueryTerm(f"{word.original}*", (place,), (place,), field)

    def _analyze_phrase(
        self, phrase: PhraseNode, words: list[text.TextWord], field: str
    ) -> list[QueryTerm]:
        last = self._analyze_prefix(words.pop(), field).prose if phrase.is_prefix else ()
        is_stop_word = self.field_config.is_stop_word
        prose = [self._number_terms((w.whole,)) for w in words if not is_stop_word(w.whole)]
        identifiers = [self._number_terms((part,)) for word in words for part in word.parts]
        return [QueryTerm(str(phrase), (*prose, *last), (*identifiers, *last), field)]

    def _keep_used(self, terms: Iterable[str]) -> list[str]:
        """Those terms that some tool holds: a vocabulary also remembers terms of earlier tools."""
        return [term for term in terms if self._number_terms((term,))]

    def _number_terms(self, terms: Iterable[str]) -> tuple[int, ...]:
        numbers = [self.vocabulary.get(term) for term in terms]
        return tuple([n for n in numbers if n is not None and self.postings.has_term(n)])
