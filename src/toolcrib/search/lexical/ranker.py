"""BM25 over weighted fields: the ranker for words.

A term counts by how rare it is among the tools and by how strongly a tool holds it. A score is the
part a tool reaches of what a perfect match of the query would get: from 0 to 1, and comparable
between queries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.lexical.boolean import LeafMatch, evaluate_query
from toolcrib.search.lexical.fields import GAP, TOOL_FIELDS, FieldConfig
from toolcrib.search.lexical.postings import EMPTY_POSTING, Posting, Postings, ToolTerms
from toolcrib.search.lexical.terms import (
    MAX_CORRECTED_WORDS,
    QueryTerm,
    TermAnalyzer,
    TermKey,
    TermSequence,
)
from toolcrib.search.lexical.vocabulary import Vocabulary
from toolcrib.search.query import expression
from toolcrib.search.query.expression import Boost, Not, Or, PhraseNode, QueryNode, WordNode
from toolcrib.search.query.parser import ParsedQuery, Syntax, parse_query
from toolcrib.search.ranker import MatchReason, Note, Ranking, Scores, Slots

# How soon further occurrences of a term stop counting.
K1: Final = 1.2

_GAP_TOKEN: Final = -1
# A quotation of more words than this is a sentence.
_MAX_PHRASE_WORDS: Final = 6
# Answers that are kept, as most words are asked for again: how many, and how long.
_MAX_CACHED_MATCHES: Final = 1_000
_MAX_CACHED_SLOTS: Final = 2_000
# Expressions whose resolution is cached: each is needed for the ranking and again for the reasons.
_MAX_RESOLVED: Final = 100
# How many terms of tools that are gone may be kept, beside as many again as there were at first.
_MAX_STALE_TERMS: Final = 10_000
# Tools whose terms are laid out at a time to look for a phrase: bounds the memory of a search.
_TOOLS_PER_CHUNK: Final = 20_000


@dataclass(frozen=True, slots=True)
class LexicalRanker:
    """Words, ranked by BM25.

    `syntax` says how a query is read: "strict" refuses what is not one, "lenient" reads that as
    plain words and says so, "words" knows no operators at all.
    """

    syntax: Syntax = "strict"
    field_config: FieldConfig = TOOL_FIELDS
    k1: float = K1

    def fit(self, catalog: Catalog) -> LexicalIndex:
        """Fit to a catalog."""
        vocabulary = Vocabulary()
        documents = (
            None if tool is None else self.analyze_tool(tool, vocabulary)
            for tool in map(catalog.tool_at, range(catalog.slot_count))
        )
        postings = Postings.fit(documents, len(self.field_config.fields))
        reader = TermAnalyzer(self.field_config, vocabulary, postings)
        return LexicalIndex(self, catalog, postings, reader, len(vocabulary))

    def analyze_tool(self, tool: Tool, vocabulary: Vocabulary) -> ToolTerms:
        """A tool's terms, and what each counts: from 0 to 1, whatever other tools there are."""
        counts: dict[int, float] = {}
        tokens: list[int] = []
        lengths: list[int] = []
        number = vocabulary.get_or_add
        for field, terms in zip(
            self.field_config.fields, self.field_config.analyze(tool), strict=True
        ):
            lengths.append(len(terms))
            worth = field.occurrence_weight(len(terms))
            for term in terms:
                if term == GAP:
                    tokens.append(_GAP_TOKEN)
                    continue
                token = number(term)
                tokens.append(token)
                counts[token] = counts.get(token, 0.0) + worth
        k1 = self.k1
        impacts = {token: count / (k1 + count) for token, count in counts.items()}
        return ToolTerms(impacts, tokens, lengths)


class SlotScores(NamedTuple):
    """The scores of a ranking by slot, 0 where nothing matches, and what to tell the asker."""

    scores: NDArray[np.float32]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LexicalIndex:
    """The lexical ranker fitted to one catalog."""

    _ranker: LexicalRanker
    _catalog: Catalog
    _postings: Postings
    _analyzer: TermAnalyzer
    _fitted_terms: int
    _matches: dict[TermKey, LeafMatch] = dataclasses.field(default_factory=dict)
    _resolved: dict[QueryNode, QueryNode | str] = dataclasses.field(default_factory=dict)

    def rank(self, query: ParsedQuery) -> Ranking:
        """Every tool that matches, scored."""
        node, notes = self._resolve(query)
        reader = self._analyzer
        if isinstance(node, str):
            atoms = reader.analyze_words(node)
            answer = self._match_terms(atoms)
            if answer is None:
                return Ranking(*EMPTY_POSTING, notes)
            (slots, scores), ideal = answer
            return Ranking(slots, _normalize(scores, ideal), notes + self._correction_notes(atoms))
        atoms = []
        guessing = _allows_correction(node)

        def ask(leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
            found = reader.analyze_leaf(leaf, field, guessing)
            atoms.extend(found)
            return self._match_terms(found)

        scored = evaluate_query(node, ask, self._catalog.occupied_mask)
        if scored is None:
            return Ranking(*EMPTY_POSTING, notes)
        slots = scored.matches.nonzero()[0]
        return Ranking(
            slots,
            _normalize(scored.scores[slots], scored.max_score),
            notes + self._correction_notes(atoms),
        )

    def score_slots(self, query: ParsedQuery) -> SlotScores:
        """What `rank` finds, for those who go on with every slot."""
        node, notes = self._resolve(query)
        span = self._catalog.slot_count
        if isinstance(node, str) and (atoms := self._analyzer.analyze_words(node)):
            totals, ideal = self._sum_scores(atoms, span)
            scores = _normalize(totals.astype(np.float32), ideal)
            return SlotScores(scores, notes + self._correction_notes(atoms))
        found = self.rank(query)
        scores = np.zeros(span, np.float32)
        scores[found.slots] = found.scores
        return SlotScores(scores, found.notes)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Which words hit which fields of a tool, the strongest first."""
        found: list[tuple[float, str, str]] = []
        for atom, weight in self._weighted_terms(query):
            counts = self._count_occurrences(atom, np.array([slot], np.int32))[0].tolist()
            scale = atom.certainty * weight / (self._ranker.k1 + sum(counts))
            label = self._label(atom, slot)
            found += [
                (scale * count, label, field.name)
                for field, count in zip(self._ranker.field_config.fields, counts, strict=True)
                if scale * count
            ]
        whole = sum(score for score, _, _ in found)
        found.sort(key=lambda one: -one[0])
        return tuple(
            MatchReason(term, field, round(score / whole, 4)) for score, term, field in found
        )

    def is_unrestricted(self, query: ParsedQuery) -> bool:
        """Whether any tool may answer a query: it is words and phrases, and no operator binds it."""
        node, _ = self._resolve(query)
        if isinstance(node, WordNode | PhraseNode):
            return not node.is_prefix
        return isinstance(node, str) or (isinstance(node, Or) and _has_no_conditions(node))

    def match_leaf(self, leaf: WordNode | PhraseNode) -> LeafMatch | None:
        """What one leaf of a query finds, to the letter. None: it holds nothing but stop words."""
        return self._match_terms(self._analyzer.analyze_leaf(leaf, "", correct=False))

    def word_mask(self, word: str) -> NDArray[np.bool_] | None:
        """Return which slots contain a word; None if it is not a searchable word."""
        found = [
            self._match_term(atom).posting.slots
            for atom in self._analyzer.analyze_leaf(WordNode(word), "", False)
        ]
        if not found:
            return None
        mask = np.zeros(self._catalog.slot_count, np.bool_)
        for slots in found:
            mask[slots] = True
        return mask

    def is_unknown_word(self, word: str) -> bool:
        """Whether no tool holds a word, and it is one to look for."""
        atoms = self._analyzer.analyze_leaf(WordNode(word), "", correct=False)
        return bool(atoms) and not self._any_occurs(atoms)

    def with_catalog(self, catalog: Catalog) -> LexicalIndex:
        """This index brought to a later catalog."""
        slots = catalog.changed_slots(self._catalog)
        # A vocabulary keeps the terms of tools that are gone; when they may be most of it, start anew.
        vocabulary = self._analyzer.vocabulary
        if slots is None or len(vocabulary) > 2 * self._fitted_terms + _MAX_STALE_TERMS:
            return self._ranker.fit(catalog)
        documents = {
            slot: None if tool is None else self._ranker.analyze_tool(tool, vocabulary)
            for slot, tool in zip(slots, map(catalog.tool_at, slots), strict=True)
        }
        postings = self._postings.with_changes(
            documents, span=catalog.slot_count, count=len(catalog)
        )
        reader = TermAnalyzer(self._ranker.field_config, vocabulary, postings)
        return LexicalIndex(self._ranker, catalog, postings, reader, self._fitted_terms)

    def _resolve(self, query: ParsedQuery) -> tuple[QueryNode | str, tuple[Note, ...]]:
        """Return the query as an expression, or as a text if it is plain words, and notes about it."""
        if query.syntax != self._ranker.syntax:
            query = parse_query(query.text, self._ranker.syntax)
        if query.operators is None:
            return query.text, ()
        node = self._resolved.get(query.operators)
        if node is None:
            if len(self._resolved) >= _MAX_RESOLVED:
                self._resolved.clear()
            node = self._resolved[query.operators] = self._resolve_node(query.operators)
        return node, tuple(map(Note, query.notes))

    def _resolve_node(self, node: QueryNode) -> QueryNode | str:
        node = self._relax(expression.map_leaves(node, self._to_phrase))
        words = _collect_words(node)
        return node if words is None else " ".join(words)

    def _to_phrase(self, leaf: WordNode | PhraseNode) -> WordNode | PhraseNode:
        """An identifier of several words (`send_email`) means these words side by side."""
        is_one_word = len(self._ranker.field_config.split_words(leaf.text)) < 2
        return leaf if is_one_word else PhraseNode(leaf.text, leaf.is_prefix)

    def _relax(self, node: QueryNode) -> QueryNode:
        """A query in which a quotation that no tool holds stands for its words.

        People and models quote names and whole sentences without asking for an exact match. A
        short phrase by itself does ask for one. If the reading is lenient, not even that does, and
        what rules out nothing is no condition: in `tar -xzf` it is a flag.
        """
        is_lenient = self._ranker.syntax == "lenient"
        if isinstance(node, PhraseNode):
            is_sentence = len(node.text.split()) > _MAX_PHRASE_WORDS
            is_loose = is_sentence or (is_lenient and not node.is_prefix)
            return self._words_unless_found(node) if is_loose else node
        if isinstance(node, Or):
            nodes = [one for one in node.nodes if not (is_lenient and self._excludes_nothing(one))]
            return Or(tuple(map(self._words_unless_found, nodes or node.nodes)))
        return node

    def _excludes_nothing(self, node: QueryNode) -> bool:
        return (
            isinstance(node, Not)
            and isinstance(node.inner, WordNode | PhraseNode)
            and not self._occurs(node.inner)
        )

    def _occurs(self, leaf: WordNode | PhraseNode) -> bool:
        return self._any_occurs(self._analyzer.analyze_leaf(leaf, "", correct=False))

    def _any_occurs(self, atoms: list[QueryTerm]) -> bool:
        return any(len(self._find_posting(atom).slots) for atom in atoms)

    def _words_unless_found(self, node: QueryNode) -> QueryNode:
        if isinstance(node, PhraseNode) and not self._occurs(node):
            return expression.parse_plain_words(node.text)
        return node

    def _weighted_terms(self, query: ParsedQuery) -> Iterator[tuple[QueryTerm, float]]:
        """Every atom of a query, and the score of a perfect match of it."""
        reader = self._analyzer
        node, _ = self._resolve(query)
        if isinstance(node, str):
            boosted = [(atom, 1.0) for atom in reader.analyze_words(node)]
        else:
            boosted = [
                (atom, factor)
                for leaf, field, factor in expression.iter_leaves(node)
                for atom in reader.analyze_leaf(leaf, field, _allows_correction(node))
            ]
        for atom, factor in boosted:
            yield (
                atom,
                factor * atom.weight * self._term_idf(atom, len(self._find_posting(atom).slots)),
            )

    def _match_terms(self, atoms: list[QueryTerm]) -> LeafMatch | None:
        """What atoms find together. Most queries are just this."""
        if not atoms:
            return None
        totals, ideal = self._sum_scores(atoms)
        hits = totals.astype(np.bool_).nonzero()[0]
        return LeafMatch(Posting(hits, totals.take(hits)), ideal)

    def _sum_scores(self, atoms: list[QueryTerm], span: int = 0) -> tuple[Scores, float]:
        """The scores of atoms added up, for all slots or up to the last hit; and a perfect match's."""
        ideal = 0.0
        slots: list[Slots] = []
        scores: list[Scores] = []
        for atom in atoms:
            (found, impacts), rarity = self._match_term(atom)
            ideal += rarity * atom.weight
            weight = atom.weight * atom.certainty
            slots.append(found)
            scores.append(impacts if weight == 1 else impacts * weight)
        # Adding up by counting with weights: far fewer calls than adding posting by posting.
        totals = np.bincount(np.concatenate(slots), np.concatenate(scores), span)
        return cast(Scores, totals), ideal

    def _match_term(self, atom: QueryTerm) -> LeafMatch:
        """What one atom finds, by impact and rarity, and the score of a perfect match of it."""
        question = atom.key
        known = self._matches.get(question)
        if known is not None:
            return known
        slots, impacts = self._find_posting(atom)
        rarity = self._term_idf(atom, len(slots))
        answer = LeafMatch(Posting(slots, impacts * rarity), rarity)
        if len(slots) <= _MAX_CACHED_SLOTS:
            if len(self._matches) >= _MAX_CACHED_MATCHES:
                self._matches.clear()
            self._matches[question] = answer
        return answer

    def _find_posting(self, atom: QueryTerm) -> Posting:
        """The tools that hold an atom."""
        if not atom.is_word:
            return self._find_sequence(atom)
        terms = atom.prose[0]
        if len(terms) == 1:
            return self._postings.find_posting(terms[0])
        strongest = np.zeros(self._postings.span, np.float32)
        for term in terms:
            slots, impacts = self._postings.find_posting(term)
            strongest[slots] = np.maximum(strongest[slots], impacts)
        slots = (strongest > 0).nonzero()[0]
        return Posting(slots, strongest[slots])

    def _find_sequence(self, atom: QueryTerm) -> Posting:
        """The tools that hold an atom for which it matters where the terms stand."""
        candidates = self._find_candidates(atom.prose)
        if atom.identifiers != atom.prose:
            candidates = np.union1d(candidates, self._find_candidates(atom.identifiers))
        found = [EMPTY_POSTING]
        for begin in range(0, len(candidates), _TOOLS_PER_CHUNK):
            slots = candidates[begin : begin + _TOOLS_PER_CHUNK]
            counts = self._count_occurrences(atom, slots).sum(axis=1)
            held = counts > 0
            impacts = counts[held] / (self._ranker.k1 + counts[held])
            found.append(Posting(slots[held], impacts.astype(np.float32)))
        return Posting(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def _find_candidates(self, sequence: TermSequence) -> Slots:
        """The tools that hold a term for every place of a sequence, wherever it stands."""
        places = (
            reduce(
                np.union1d,
                (self._postings.find_posting(term).slots for term in terms),
                EMPTY_POSTING.slots,
            )
            for terms in sequence
        )
        found: Slots = reduce(np.intersect1d, places) if sequence else EMPTY_POSTING.slots
        return found

    def _count_occurrences(self, atom: QueryTerm, slots: Slots) -> NDArray[np.float64]:
        """How often each field of these tools holds an atom, in what an occurrence there is worth."""
        fields = self._ranker.field_config.fields
        streams = self._postings.streams(slots)
        shape = (len(slots), len(fields))
        counts = np.zeros(shape)
        for sequence, is_for in ((atom.prose, False), (atom.identifiers, True)):
            columns = [
                at
                for at, field in enumerate(fields)
                if field.is_identifier == is_for and atom.field in ("", field.name)
            ]
            begins = _find_sequences(streams.tokens, streams.places, sequence)
            occurrences = np.bincount(begins, minlength=shape[0] * shape[1]).reshape(shape)
            counts[:, columns] = occurrences[:, columns]
        lengths = self._postings.lengths(slots)
        for at, field in enumerate(fields):
            weight = 1 / field.weight if atom.field else 1.0
            counts[:, at] *= weight * field.occurrence_weight(lengths[:, at])
        return counts

    def _term_idf(self, atom: QueryTerm, count: int) -> float:
        """The weight of an atom that `count` tools hold (idf); a phrase has that of its words."""
        if len(atom.prose) > 1:
            counts = [len(self._find_candidates((place,))) for place in atom.prose]
            return sum(self._idf(count) for count in counts)
        return self._idf(count)

    def _idf(self, count: int) -> float:
        return math.log(1 + (self._postings.count - count + 0.5) / (count + 0.5))

    def _correction_notes(self, atoms: list[QueryTerm]) -> tuple[Note, ...]:
        guesses = [atom for atom in atoms if atom.corrections]
        if not guesses:
            return ()
        return tuple(
            Note(
                f"no tool has this word, so a near one was used: {atom.label} → {term}",
                self._postings.find_posting(number).slots,
            )
            for atom in {atom.label: atom for atom in guesses}.values()
            for term, number in zip(atom.corrections, atom.prose[0], strict=True)
        )

    def _label(self, atom: QueryTerm, slot: int) -> str:
        """What a tool has of an atom: of several guesses only its own."""
        if not atom.corrections:
            return atom.label
        own = [
            term
            for term, number in zip(atom.corrections, atom.prose[0], strict=True)
            if slot in self._postings.find_posting(number).slots
        ]
        return f"{atom.label} → {' | '.join(own)}"


def _find_sequences(
    tokens: NDArray[np.int32], places: NDArray[np.int64], sequence: TermSequence
) -> NDArray[np.int64]:
    """The places (tool and field) of every occurrence of a sequence of terms."""
    last = len(sequence) - 1
    if last < 0 or len(tokens) <= last:
        return np.empty(0, np.int64)
    size = len(tokens) - last
    found = places[:size] == places[last:]
    for at, terms in enumerate(sequence):
        found &= np.isin(tokens[at : at + size], terms)
    beginnings: NDArray[np.int64] = places[:size][found]
    return beginnings


def _normalize(scores: Scores, ideal: float) -> Scores:
    return scores / ideal if ideal else scores


def _collect_words(node: QueryNode) -> list[str] | None:
    """The words of a query that asks for nothing but any of some words."""
    if isinstance(node, WordNode):
        return None if node.is_prefix else [node.text]
    if not isinstance(node, Or):
        return None
    words: list[str] = []
    for inner in node.nodes:
        more = _collect_words(inner)
        if more is None:
            return None
        words += more
    return words


def _has_no_conditions(node: QueryNode) -> bool:
    """Whether a part of a query only speaks for tools, and rules none out."""
    match node:
        case Or():
            return all(map(_has_no_conditions, node.nodes))
        case Boost():
            return _has_no_conditions(node.inner)
        case _:
            return isinstance(node, WordNode | PhraseNode)


def _allows_correction(node: QueryNode) -> bool:
    return sum(1 for _ in expression.iter_leaves(node)) <= MAX_CORRECTED_WORDS
