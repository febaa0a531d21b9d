"""Lexical ranking: BM25 over weighted fields.

A term is weighted by its inverse document frequency and by its impact in a tool. A score is divided
by that of a perfect match, so it ranges from 0 to 1 and can be compared between queries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.search.lexical.analysis import ToolAnalyzer
from toolcrib.search.lexical.boolean import LeafMatch, evaluate_query
from toolcrib.search.lexical.fields import TOOL_FIELDS, FieldConfig
from toolcrib.search.lexical.postings import EMPTY_POSTING, Posting, Postings, split_by_tool
from toolcrib.search.lexical.terms import MAX_CORRECTED_WORDS, QueryTerm, TermAnalyzer, TermKey, TermSequence
from toolcrib.search.lexical.vocabulary import Vocabulary
from toolcrib.search.query import expression
from toolcrib.search.query.expression import Not, Or, PhraseNode, QueryNode, WordNode
from toolcrib.search.query.parser import ParsedQuery, Syntax, parse_query
from toolcrib.search.ranker import (
    MAX_CHANGES_OF_STORED,
    MIN_STORED_TOOLS,
    ArrayStore,
    MatchReason,
    Note,
    Ranking,
    Scores,
    Slots,
    match_slots,
)

# A keyword score is a weak sign of a fit: half of the answerable requests whose words differ from those of the tool
# score below 0.25. Below this score, almost no word of the request occurs.
CONFIDENT_SCORE: Final = 0.1
# The saturation parameter of BM25: how soon further occurrences of a term stop counting.
K1: Final = 1.2

# How clearly a tool belongs to a service that one of these fields mentions.
_MENTION_RATINGS: Final = {
    "name": 1.0,
    "title": 1.0,
    "server": 1.0,
    "tags": 1.0,
    "category": 1.0,
    "description": 0.5,
    "hint": 0.5,
    "server_description": 0.5,
}
# A longer phrase is a quoted sentence, not a request for an exact match.
_MAX_PHRASE_WORDS: Final = 6
# Limits of the cache of term matches: entries, and slots per entry.
MAX_CACHED_MATCHES: Final = 1_000
_MAX_CACHED_SLOTS: Final = 2_000
# Resolved expressions are cached, because the ranking and the reasons both need them.
MAX_RESOLVED_QUERIES: Final = 100
# How many terms of removed tools the vocabulary may contain before the index is fitted again.
_MAX_STALE_TERMS: Final = 10_000
# How many tools are searched for a phrase at a time; limits the memory of a search.
_TOOLS_PER_CHUNK: Final = 20_000


@dataclass(frozen=True, slots=True)
class LexicalRanker:
    """Ranks by BM25. `syntax` selects how operators in queries are parsed; see `parse_query`."""

    syntax: Syntax = "strict"
    field_config: FieldConfig = TOOL_FIELDS
    k1: float = K1
    # Where the index of a large catalog is kept between runs. The fields and `k1` must be the same in each.
    store: ArrayStore | None = dataclasses.field(default=None, compare=False)

    def fit(self, catalog: Catalog) -> LexicalIndex:
        store = self.store if len(catalog) >= MIN_STORED_TOOLS else None
        if store is None:
            return self._build(catalog)
        index = self._restore(catalog, store)
        if index is None:
            index = self._build(catalog)
            store.write({"digests": catalog.digests, **index.to_arrays()})
        return index

    def _restore(self, catalog: Catalog, store: ArrayStore) -> LexicalIndex | None:
        """Return an index from the stored one of a similar catalog; None if there is none."""
        arrays = store.read()
        if arrays is None:
            return None
        slots, changed = match_slots(catalog, arrays["digests"])
        if len(changed) > MAX_CHANGES_OF_STORED or (np.diff(slots[slots >= 0]) < 0).any():
            return None
        vocabulary = Vocabulary.decode(arrays["terms"])
        postings = Postings.from_arrays(arrays, slots, span=catalog.slot_count, count=len(catalog))
        analyzer = TermAnalyzer(self.field_config, vocabulary, postings)
        return LexicalIndex(self, catalog, postings, analyzer, len(vocabulary)).with_changes(catalog, changed)

    def _build(self, catalog: Catalog) -> LexicalIndex:
        vocabulary = Vocabulary()
        tools = map(catalog.tool_at, range(catalog.slot_count))
        batches = self.build_analyzer(vocabulary).analyze_batches(tools)
        postings = Postings.fit(batches, span=catalog.slot_count, count=len(catalog))
        analyzer = TermAnalyzer(self.field_config, vocabulary, postings)
        return LexicalIndex(self, catalog, postings, analyzer, len(vocabulary))

    def build_analyzer(self, vocabulary: Vocabulary) -> ToolAnalyzer:
        """Return an analyzer of tools."""
        return ToolAnalyzer(self.field_config, vocabulary, self.k1)


class SlotScores(NamedTuple):
    """A score for every slot, 0 for those that do not match, and notes about the search."""

    scores: NDArray[np.float32]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LexicalIndex:
    """The lexical index of one catalog."""

    _ranker: LexicalRanker
    catalog: Catalog
    _postings: Postings
    _analyzer: TermAnalyzer
    _fitted_terms: int
    _matches: dict[TermKey, LeafMatch] = dataclasses.field(default_factory=dict)
    _resolved: dict[QueryNode, QueryNode | str] = dataclasses.field(default_factory=dict)

    @property
    def cached_entries(self) -> int:
        """The number of matches and resolved queries in the caches."""
        return len(self._matches) + len(self._resolved)

    @property
    def vocabulary_size(self) -> int:
        """The number of terms, including those of tools that were removed."""
        return len(self._analyzer.vocabulary)

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that matches."""
        node, notes = self._resolve(query)
        analyzer = self._analyzer
        if isinstance(node, str):
            terms = analyzer.analyze_words(node)
            match = self._match_terms(terms)
            if match is None:
                return Ranking(*EMPTY_POSTING, notes)
            (slots, scores), max_score = match
            all_notes = notes + self._correction_notes(terms)
            return Ranking(slots, _normalize(scores, max_score), all_notes, CONFIDENT_SCORE)
        terms = []
        correct = _allows_correction(node)

        def match_leaf(leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
            found = analyzer.analyze_leaf(leaf, field, correct)
            terms.extend(found)
            return self._match_terms(found)

        scored = evaluate_query(node, match_leaf, self.catalog.occupied_mask)
        if scored is None:
            return Ranking(*EMPTY_POSTING, notes)
        slots = scored.matches.nonzero()[0]
        scores = _normalize(scored.scores[slots], scored.max_score)
        return Ranking(slots, scores, notes + self._correction_notes(terms), CONFIDENT_SCORE)

    def score_slots(self, query: ParsedQuery) -> SlotScores:
        """Return the scores of `rank` as an array over all slots."""
        node, notes = self._resolve(query)
        span = self.catalog.slot_count
        if isinstance(node, str) and (terms := self._analyzer.analyze_words(node)):
            totals, max_score = self._sum_scores(terms, span)
            scores = _normalize(totals.astype(np.float32), max_score)
            return SlotScores(scores, notes + self._correction_notes(terms))
        found = self.rank(query)
        scores = np.zeros(span, np.float32)
        scores[found.slots] = found.scores
        return SlotScores(scores, found.notes)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return which terms match which fields of a tool, highest share first."""
        found: list[tuple[float, str, str]] = []
        for term, weight in self._weighted_terms(query):
            counts = self._count_occurrences(term, np.array([slot], np.int32))[0].tolist()
            scale = term.certainty * weight / (self._ranker.k1 + sum(counts))
            label = self._label(term, slot)
            found += [
                (scale * count, label, field.name)
                for field, count in zip(self._ranker.field_config.fields, counts, strict=True)
                if scale * count
            ]
        total = sum(score for score, _, _ in found)
        found.sort(key=lambda match: -match[0])
        return tuple(MatchReason(term, field, round(score / total, 4)) for score, term, field in found)

    def is_unrestricted(self, query: ParsedQuery) -> bool:
        """Return whether a query only lists words and phrases, so that no operator excludes a tool."""
        node, _ = self._resolve(query)
        if isinstance(node, WordNode | PhraseNode):
            return not node.is_prefix
        return isinstance(node, str) or (isinstance(node, Or) and expression.has_no_conditions(node))

    def match_leaf(self, leaf: WordNode | PhraseNode) -> LeafMatch | None:
        """Return the exact matches of one leaf; None if it consists of stop words."""
        return self._match_terms(self._analyzer.analyze_leaf(leaf, "", correct=False))

    def rate_mentions(self, name: str) -> NDArray[np.float32] | None:
        """Return how clearly each slot mentions a name, from 0 to 1; None if it is a stop word.

        The name, title, server, tags and category of a tool say which service it belongs to. Its
        description may mention other services too, and its parameters mention them as examples.
        """
        terms = self._analyzer.analyze_name(name)
        if not terms:
            return None
        mentions = np.zeros(self.catalog.slot_count, np.float32)
        ratings = [_MENTION_RATINGS.get(field.name, 0.0) for field in self._ranker.field_config.fields]
        for term in terms:
            slots = self._find_posting(term).slots
            rated = np.where(self._count_occurrences(term, slots) > 0, ratings, 0.0).max(axis=1, initial=0.0)
            mentions[slots] = np.maximum(mentions[slots], rated)
        return mentions

    def unknown_share(self, text: str) -> float:
        """Return the share of the words of a text that no tool contains; 1 if it has no words."""
        terms = self._analyzer.analyze_words(text)
        total = sum(term.weight for term in terms)
        # A spelling correction is a guess: "fence" is one letter from "hence".
        known = (term.weight for term in terms if term.certainty == 1 and self._any_occurs([term]))
        return 1 - sum(known) / total if total else 1.0

    def is_unknown_word(self, word: str) -> bool:
        """Return whether a word is searchable and occurs in no tool."""
        terms = self._analyzer.analyze_leaf(WordNode(word), "", correct=False)
        return bool(terms) and not self._any_occurs(terms)

    def with_catalog(self, catalog: Catalog) -> LexicalIndex:
        """Return an index of a later catalog, built from this one."""
        slots = catalog.changed_slots(self.catalog)
        # The vocabulary keeps the terms of removed tools; fit again when they may be most of it.
        vocabulary = self._analyzer.vocabulary
        if slots is None or len(vocabulary) > 2 * self._fitted_terms + _MAX_STALE_TERMS:
            return self._ranker.fit(catalog)
        return self.with_changes(catalog, slots)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the index as it was fitted, as arrays."""
        return {"terms": self._analyzer.vocabulary.encode(), **self._postings.to_arrays()}

    def with_changes(self, catalog: Catalog, slots: list[int]) -> LexicalIndex:
        """Return an index of a later catalog that differs in these slots."""
        vocabulary = self._analyzer.vocabulary
        tools = list(map(catalog.tool_at, slots))
        analyzed = self._ranker.build_analyzer(vocabulary).analyze(tools)
        changes = {
            slot: None if tool is None else terms
            for slot, tool, terms in zip(slots, tools, split_by_tool(analyzed), strict=True)
        }
        postings = self._postings.with_changes(changes, span=catalog.slot_count, count=len(catalog))
        analyzer = TermAnalyzer(self._ranker.field_config, vocabulary, postings)
        return LexicalIndex(self._ranker, catalog, postings, analyzer, self._fitted_terms)

    def _resolve(self, query: ParsedQuery) -> tuple[QueryNode | str, tuple[Note, ...]]:
        """Return the query as an expression, or as a text if it is plain words, and notes about it."""
        if query.syntax != self._ranker.syntax:
            query = parse_query(query.text, self._ranker.syntax)
        if query.operators is None:
            return query.text, ()
        node = self._resolved.get(query.operators)
        if node is None:
            if len(self._resolved) >= MAX_RESOLVED_QUERIES:
                self._resolved.clear()
            node = self._resolved[query.operators] = self._resolve_node(query.operators)
        return node, tuple(map(Note, query.notes))

    def _resolve_node(self, node: QueryNode) -> QueryNode | str:
        node = self._relax(expression.map_leaves(node, self._to_phrase))
        words = expression.collect_words(node)
        return node if words is None else " ".join(words)

    def _to_phrase(self, leaf: WordNode | PhraseNode) -> WordNode | PhraseNode:
        """Return a phrase for an identifier of several words, such as `send_email`."""
        is_one_word = len(self._ranker.field_config.split_words(leaf.text)) < 2
        return leaf if is_one_word else PhraseNode(leaf.text, leaf.is_prefix)

    def _relax(self, node: QueryNode) -> QueryNode:
        """Replace phrases that occur in no tool by their words.

        People and models quote names and whole sentences without meaning an exact match. With
        strict syntax, a short phrase that is the whole query stays an exact match. With lenient
        syntax, an exclusion that matches nothing is dropped: in `tar -xzf` it is a flag.
        """
        is_lenient = self._ranker.syntax == "lenient"
        if isinstance(node, PhraseNode):
            is_sentence = len(node.text.split()) > _MAX_PHRASE_WORDS
            is_loose = is_sentence or (is_lenient and not node.is_prefix)
            return self._words_unless_found(node) if is_loose else node
        if isinstance(node, Or):
            nodes = [inner for inner in node.nodes if not (is_lenient and self._excludes_nothing(inner))]
            return Or(tuple(map(self._words_unless_found, nodes or node.nodes)))
        return node

    def _excludes_nothing(self, node: QueryNode) -> bool:
        return isinstance(node, Not) and isinstance(node.inner, WordNode | PhraseNode) and not self._occurs(node.inner)

    def _occurs(self, leaf: WordNode | PhraseNode) -> bool:
        return self._any_occurs(self._analyzer.analyze_leaf(leaf, "", correct=False))

    def _any_occurs(self, terms: list[QueryTerm]) -> bool:
        return any(len(self._find_posting(term).slots) for term in terms)

    def _words_unless_found(self, node: QueryNode) -> QueryNode:
        if isinstance(node, PhraseNode) and not self._occurs(node):
            return expression.parse_plain_words(node.text)
        return node

    def _weighted_terms(self, query: ParsedQuery) -> Iterator[tuple[QueryTerm, float]]:
        """Yield every term of a query with the score of a perfect match."""
        analyzer = self._analyzer
        node, _ = self._resolve(query)
        if isinstance(node, str):
            boosted = [(term, 1.0) for term in analyzer.analyze_words(node)]
        else:
            boosted = [
                (term, factor)
                for leaf, field, factor in expression.iter_leaves(node)
                for term in analyzer.analyze_leaf(leaf, field, _allows_correction(node))
            ]
        for term, factor in boosted:
            yield (term, factor * term.weight * self._term_idf(term, len(self._find_posting(term).slots)))

    def _match_terms(self, terms: list[QueryTerm]) -> LeafMatch | None:
        """Return the tools that match any of some terms; None if there are no terms."""
        if not terms:
            return None
        totals, max_score = self._sum_scores(terms)
        hits = totals.astype(np.bool_).nonzero()[0]
        return LeafMatch(Posting(hits, totals.take(hits)), max_score)

    def _sum_scores(self, terms: list[QueryTerm], span: int = 0) -> tuple[Scores, float]:
        """Return the summed scores of some terms by slot, and the score of a perfect match.

        The array covers at least `span` slots, and all that match.
        """
        max_score = 0.0
        slots: list[Slots] = []
        scores: list[Scores] = []
        for term in terms:
            (found, impacts), idf = self._match_term(term)
            max_score += idf * term.weight
            weight = term.weight * term.certainty
            slots.append(found)
            scores.append(impacts if weight == 1 else impacts * weight)
        # One weighted `bincount` is faster than adding the postings one by one.
        totals = np.bincount(np.concatenate(slots), np.concatenate(scores), span)
        return cast(Scores, totals), max_score

    def _match_term(self, term: QueryTerm) -> LeafMatch:
        """Return the tools that match a term, scored by impact and idf."""
        key = term.key
        cached = self._matches.get(key)
        if cached is not None:
            return cached
        slots, impacts = self._find_posting(term)
        idf = self._term_idf(term, len(slots))
        match = LeafMatch(Posting(slots, impacts * idf), idf)
        if len(slots) <= _MAX_CACHED_SLOTS:
            if len(self._matches) >= MAX_CACHED_MATCHES:
                self._matches.clear()
            self._matches[key] = match
        return match

    def _find_posting(self, term: QueryTerm) -> Posting:
        """Return the tools in which a term occurs."""
        if not term.is_word:
            return self._find_sequence(term)
        numbers = term.prose[0]
        if len(numbers) == 1:
            return self._postings.find_posting(numbers[0])
        strongest = np.zeros(self._postings.span, np.float32)
        for number in numbers:
            slots, impacts = self._postings.find_posting(number)
            strongest[slots] = np.maximum(strongest[slots], impacts)
        slots = (strongest > 0).nonzero()[0]
        return Posting(slots, strongest[slots])

    def _find_sequence(self, term: QueryTerm) -> Posting:
        """Return the tools in which a phrase, or a term of one field, occurs."""
        candidates = self._find_candidates(term.prose)
        if term.identifiers != term.prose:
            candidates = np.union1d(candidates, self._find_candidates(term.identifiers))
        found = [EMPTY_POSTING]
        for begin in range(0, len(candidates), _TOOLS_PER_CHUNK):
            slots = candidates[begin : begin + _TOOLS_PER_CHUNK]
            counts = self._count_occurrences(term, slots).sum(axis=1)
            occurs = counts > 0
            impacts = counts[occurs] / (self._ranker.k1 + counts[occurs])
            found.append(Posting(slots[occurs], impacts.astype(np.float32)))
        return Posting(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def _find_candidates(self, sequence: TermSequence) -> Slots:
        """Return the tools that contain a term for every position of a sequence, in any order."""
        places = (
            reduce(np.union1d, (self._postings.find_posting(number).slots for number in numbers), EMPTY_POSTING.slots)
            for numbers in sequence
        )
        found: Slots = reduce(np.intersect1d, places) if sequence else EMPTY_POSTING.slots
        return found

    def _count_occurrences(self, term: QueryTerm, slots: Slots) -> NDArray[np.float64]:
        """Return how often a term occurs in each field of some tools, weighted by field."""
        fields = self._ranker.field_config.fields
        streams = self._postings.streams(slots)
        shape = (len(slots), len(fields))
        counts = np.zeros(shape)
        for sequence, is_identifier in ((term.prose, False), (term.identifiers, True)):
            columns = [
                column
                for column, field in enumerate(fields)
                if field.is_identifier == is_identifier and term.field in ("", field.name)
            ]
            begins = _find_sequences(streams.tokens, streams.places, sequence)
            occurrences = np.bincount(begins, minlength=shape[0] * shape[1]).reshape(shape)
            counts[:, columns] = occurrences[:, columns]
        lengths = self._postings.lengths(slots)
        for column, field in enumerate(fields):
            weight = 1 / field.weight if term.field else 1.0
            counts[:, column] *= weight * field.occurrence_weight(lengths[:, column])
        return counts

    def _term_idf(self, term: QueryTerm, count: int) -> float:
        """Return the idf of a term that `count` tools contain; for a phrase the sum over its words."""
        if len(term.prose) > 1:
            counts = [len(self._find_candidates((place,))) for place in term.prose]
            return sum(self._idf(count) for count in counts)
        return self._idf(count)

    def _idf(self, count: int) -> float:
        return math.log(1 + (self._postings.count - count + 0.5) / (count + 0.5))

    def _correction_notes(self, terms: list[QueryTerm]) -> tuple[Note, ...]:
        corrected = {term.label: term for term in terms if term.corrections}
        if not corrected:
            return ()
        return tuple(
            Note(
                f"no tool contains this word, so a similar one was used: {term.label} → {correction}",
                self._postings.find_posting(number).slots,
            )
            for term in corrected.values()
            for correction, number in zip(term.corrections, term.prose[0], strict=True)
        )

    def _label(self, term: QueryTerm, slot: int) -> str:
        """Return the label of a term for one tool, with the corrections that occur in it."""
        if not term.corrections:
            return term.label
        own = [
            correction
            for correction, number in zip(term.corrections, term.prose[0], strict=True)
            if slot in self._postings.find_posting(number).slots
        ]
        return f"{term.label} → {' | '.join(own)}"


def _find_sequences(tokens: NDArray[np.int32], places: NDArray[np.int64], sequence: TermSequence) -> NDArray[np.int64]:
    """Return the place (tool and field) of every occurrence of a sequence of terms."""
    last = len(sequence) - 1
    if last < 0 or len(tokens) <= last:
        return np.empty(0, np.int64)
    size = len(tokens) - last
    found = places[:size] == places[last:]
    for offset, numbers in enumerate(sequence):
        found &= np.isin(tokens[offset : offset + size], numbers)
    starts: NDArray[np.int64] = places[:size][found]
    return starts


def _normalize(scores: Scores, max_score: float) -> Scores:
    return scores / max_score if max_score else scores


def _allows_correction(node: QueryNode) -> bool:
    return sum(1 for _ in expression.iter_leaves(node)) <= MAX_CORRECTED_WORDS
