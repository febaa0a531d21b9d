"""Analyze the words and phrases of a query into the terms to look up in an index."""

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

# The weight of a spelling correction, relative to a word that occurs as written.
CORRECTION_CERTAINTY: Final = 0.7
# The weight of a compound word and of each of its parts (`GitHub`: git, hub).
COMPOUND_WEIGHT: Final = 0.5
# In longer queries, spelling is not corrected: a word that occurs in no tool is rarely a typo there.
MAX_CORRECTED_WORDS: Final = 4
# Shorter names are the start of too many words.
_MIN_SERVER_PREFIX_CHARS: Final = 3
# The maximum number of terms that a prefix or a misspelled word is replaced by.
MAX_ALTERNATIVES: Final = 100

# For each position the numbers of the terms that match it.
TermSequence = tuple[tuple[int, ...], ...]
TermKey = tuple[TermSequence, TermSequence, str]


class QueryTerm(NamedTuple):
    """A word, prefix or phrase to look up in an index.

    Identifiers are split into smaller words than prose, so a phrase is a different sequence there.
    `weight` is the term's share of the query. `certainty` is below 1 for a misspelled word, and
    `corrections` are then the terms that replace it.
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
        """The key of this term in a cache of matches: all but the label and the weights."""
        return self[1:4]

    @property
    def is_word(self) -> bool:
        """Whether the term matches a single word in any field."""
        return len(self.prose) == 1 == len(self.identifiers) and not self.field


@dataclass(frozen=True, slots=True, eq=False)
class TermAnalyzer:
    """Analyzes queries into terms of one catalog's vocabulary."""

    field_config: FieldConfig
    vocabulary: Vocabulary
    postings: Postings

    def analyze_words(self, query: str) -> list[QueryTerm]:
        """Return the terms of a query that consists of plain words."""
        words = self.field_config.split_words(query)
        is_stop_word = self.field_config.is_stop_word
        content_words = [word for word in words if not is_stop_word(word.whole)] or words
        distinct = {word.whole: word for word in content_words}
        correct = len(distinct) <= MAX_CORRECTED_WORDS
        if len(distinct) == len(content_words):
            return [term for word in content_words for term in self._analyze_word(word, "", correct)]
        # A repeated word counts more, but not twice as much.
        times = Counter([word.whole for word in content_words])
        return [
            term if times[whole] == 1 else term._replace(weight=term.weight * times[whole] ** 0.5)
            for whole, word in distinct.items()
            for term in self._analyze_word(word, "", correct)
        ]

    def analyze_leaf(self, leaf: WordNode | PhraseNode, field: str, correct: bool) -> list[QueryTerm]:
        """Return the terms of one leaf of a query; none if it consists of stop words."""
        words = self.field_config.split_words(leaf.text)
        if not words:
            return []
        if isinstance(leaf, PhraseNode):
            return self._analyze_phrase(leaf, words, field)
        terms = []
        if leaf.is_prefix:
            terms.append(self._analyze_prefix(words.pop(), field))
        fields = self.field_config.fields if field else ()
        is_identifier = any(other.is_identifier for other in fields if other.name == field)
        for word in words:
            # Stop words are indexed in identifiers only.
            if is_identifier or not self.field_config.is_stop_word(word.whole):
                terms += self._analyze_word(word, field, correct)
        return terms

    def analyze_name(self, name: str) -> list[QueryTerm]:
        """Return the terms that mention a name: as one word, or as its parts side by side.

        The name of a server may also start with it: `awslabs`, `gleanwork`.
        """
        words = self.field_config.split_words(name)
        if all(self.field_config.is_stop_word(word.whole) for word in words):
            return []
        terms = self._analyze_phrase(PhraseNode(name), words, "")
        if len(words) == 1 and len(words[0].parts) > 1:
            numbers = self._number_terms((words[0].whole,))
            terms.append(QueryTerm(name, (numbers,), (numbers,)))
        if len(words) == 1 and len(words[0].original) >= _MIN_SERVER_PREFIX_CHARS:
            terms.append(self._analyze_prefix(words[0], "server"))
        return terms

    def _analyze_word(self, word: text.TextWord, field: str, correct: bool) -> list[QueryTerm]:
        original, whole, parts = word
        if parts[0] == whole:
            number = self.vocabulary.get(whole)
            if number is not None and (not correct or self.postings.has_term(number)):
                sequence = ((number,),)
                return [QueryTerm(original, sequence, sequence, field)]
            return [self._correct_spelling(word, field) if correct else QueryTerm(original, ((),), ((),), field)]
        numbered = [(term, self._number_terms((term,))) for term in (whole, *parts)]
        return [
            QueryTerm(term, (numbers,), (numbers,), field, COMPOUND_WEIGHT)
            for term, numbers in numbered
            if numbers or term is not whole
        ]

    def _correct_spelling(self, word: text.TextWord, field: str) -> QueryTerm:
        """Return the likely corrections of a word that occurs in no tool."""
        terms = self.vocabulary.find_corrections(word.whole, lambda term: bool(self._number_terms((term,))))
        if not terms and len(word.whole) >= MIN_CORRECTED_CHARS:
            terms = self._keep_used(self.vocabulary.find_containing(word.whole))
        if not terms:
            return QueryTerm(word.original, ((),), ((),), field)
        corrections = tuple(sorted(terms)[:MAX_ALTERNATIVES])
        numbers = self._number_terms(corrections)
        return QueryTerm(word.original, (numbers,), (numbers,), field, 1.0, CORRECTION_CERTAINTY, corrections)

    def _analyze_prefix(self, word: text.TextWord, field: str) -> QueryTerm:
        """Return the terms that start with a word."""
        terms = self._keep_used(self.vocabulary.find_by_prefix(text.normalize_name(word.original)))
        if not terms:
            # Terms are stems: none starts with `notifications`, but `notif` does.
            terms = self._keep_used(self.vocabulary.find_by_prefix(word.whole))
        numbers = self._number_terms(sorted(terms)[:MAX_ALTERNATIVES])
        return QueryTerm(f"{word.original}*", (numbers,), (numbers,), field)

    def _analyze_phrase(self, phrase: PhraseNode, words: list[text.TextWord], field: str) -> list[QueryTerm]:
        last = self._analyze_prefix(words.pop(), field).prose if phrase.is_prefix else ()
        is_stop_word = self.field_config.is_stop_word
        prose = [self._number_terms((w.whole,)) for w in words if not is_stop_word(w.whole)]
        identifiers = [self._number_terms((part,)) for word in words for part in word.parts]
        return [QueryTerm(str(phrase), (*prose, *last), (*identifiers, *last), field)]

    def _keep_used(self, terms: Iterable[str]) -> list[str]:
        """Return the terms that occur in a tool; the vocabulary also has those of removed tools."""
        return [term for term in terms if self._number_terms((term,))]

    def _number_terms(self, terms: Iterable[str]) -> tuple[int, ...]:
        numbers = [self.vocabulary.get(term) for term in terms]
        return tuple([n for n in numbers if n is not None and self.postings.has_term(n)])
