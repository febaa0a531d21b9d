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
from typing import ClassVar, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery
from toolcrib.search.lexical.boolean import Answer, evaluate
from toolcrib.search.lexical.fields import GAP, TOOL_READING, Reading
from toolcrib.search.lexical.postings import NOWHERE, Document, Posting, Postings
from toolcrib.search.lexical.terms import MAX_GUESSED_WORDS, Atom, AtomReader, Question, Sequence
from toolcrib.search.lexical.vocabulary import Vocabulary
from toolcrib.search.query import parser as language
from toolcrib.search.query.parser import Boost, Node, Not, Or, Phrase, Word
from toolcrib.search.ranker import Note, Ranking, Reason, Scores, Slots

Syntax = Literal["strict", "lenient", "words"]
# A query as it was read, a text where it is nothing but words; and what to tell of it.
_Reading = tuple[Node | str, tuple[Note, ...]]

# How soon further occurrences of a term stop counting.
K1: Final = 1.2

_GAP_TOKEN: Final = -1
# A quotation of more words than this is a sentence.
_LONGEST_PHRASE: Final = 6
# Answers that are kept, as most words are asked for again: how many, and how long.
_MOST_KNOWN: Final = 1_000
_LONGEST_KNOWN: Final = 2_000
# Queries with operators that are kept as they were read: one is asked for its hits, then for reasons.
_MOST_READINGS: Final = 100
# How many terms of tools that are gone may be kept, beside as many again as there were at first.
_MOST_GONE_TERMS: Final = 10_000
# Tools whose terms are laid out at a time to look for a phrase: bounds the memory of a search.
_LAID_OUT: Final = 20_000


@dataclass(frozen=True, slots=True)
class Lexical:
    """Words, ranked by BM25.

    `syntax` says how a query is read: "strict" refuses what is not one, "lenient" reads that as
    plain words and says so, "words" knows no operators at all.
    """

    names_win: ClassVar[bool] = True

    syntax: Syntax = "strict"
    reading: Reading = TOOL_READING
    k1: float = K1

    def fit(self, catalog: Catalog) -> LexicalIndex:
        """Fit to a catalog."""
        vocabulary = Vocabulary()
        documents = (
            None if tool is None else self.document(tool, vocabulary)
            for tool in map(catalog.at, range(catalog.span))
        )
        postings = Postings.fit(documents, len(self.reading.fields))
        reader = AtomReader(self.reading, vocabulary, postings)
        return LexicalIndex(self, catalog, postings, reader, len(vocabulary))

    def document(self, tool: Tool, vocabulary: Vocabulary) -> Document:
        """A tool's terms, and what each counts: from 0 to 1, whatever other tools there are."""
        counts: dict[int, float] = {}
        tokens: list[int] = []
        lengths: list[int] = []
        number = vocabulary.number
        for field, terms in zip(self.reading.fields, self.reading.terms(tool), strict=True):
            lengths.append(len(terms))
            worth = field.worth(len(terms))
            for term in terms:
                if term == GAP:
                    tokens.append(_GAP_TOKEN)
                    continue
                token = number(term)
                tokens.append(token)
                counts[token] = counts.get(token, 0.0) + worth
        k1 = self.k1
        impacts = {token: count / (k1 + count) for token, count in counts.items()}
        return Document(impacts, tokens, lengths)


class Spread(NamedTuple):
    """The scores of a ranking by slot, 0 where nothing matches, and what to tell the asker."""

    scores: NDArray[np.float32]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LexicalIndex:
    """The lexical ranker fitted to one catalog."""

    _ranker: Lexical
    _catalog: Catalog
    _postings: Postings
    _reader: AtomReader
    _terms: int
    _known: dict[Question, Answer] = dataclasses.field(default_factory=dict)
    _readings: dict[str, _Reading] = dataclasses.field(default_factory=dict)

    def rank(self, query: str) -> Ranking:
        """Every tool that matches, scored."""
        node, notes = self._read(query)
        reader = self._reader
        if isinstance(node, str):
            atoms = reader.plain(node)
            answer = self._answer(atoms)
            if answer is None:
                return Ranking(*NOWHERE, notes)
            (slots, scores), ideal = answer
            return Ranking(slots, _share(scores, ideal), notes + self._notes(atoms))
        atoms = []
        guessing = _is_short(node)

        def ask(leaf: Word | Phrase, field: str) -> Answer | None:
            found = reader.leaf(leaf, field, guessing)
            atoms.extend(found)
            return self._answer(found)

        scored = evaluate(node, ask, self._catalog.occupied)
        if scored is None:
            return Ranking(*NOWHERE, notes)
        slots = scored.matches.nonzero()[0]
        return Ranking(
            slots, _share(scored.scores[slots], scored.ideal), notes + self._notes(atoms)
        )

    def spread(self, query: str) -> Spread:
        """What `rank` finds, for those who go on with every slot."""
        node, notes = self._read(query)
        span = self._catalog.span
        if isinstance(node, str) and (atoms := self._reader.plain(node)):
            totals, ideal = self._totals(atoms, span)
            scores = _share(totals.astype(np.float32), ideal)
            return Spread(scores, notes + self._notes(atoms))
        found = self.rank(query)
        scores = np.zeros(span, np.float32)
        scores[found.slots] = found.scores
        return Spread(scores, found.notes)

    def reasons(self, query: str, slot: int) -> tuple[Reason, ...]:
        """Which words hit which fields of a tool, the strongest first."""
        found: list[tuple[float, str, str]] = []
        for atom, weight in self._asked(query):
            counts = self._counts(atom, np.array([slot], np.int32))[0].tolist()
            scale = atom.certainty * weight / (self._ranker.k1 + sum(counts))
            label = self._label(atom, slot)
            found += [
                (scale * count, label, field.name)
                for field, count in zip(self._ranker.reading.fields, counts, strict=True)
                if scale * count
            ]
        whole = sum(score for score, _, _ in found)
        found.sort(key=lambda one: -one[0])
        return tuple(Reason(term, field, round(score / whole, 4)) for score, term, field in found)

    def is_open(self, query: str) -> bool:
        """Whether any tool may answer a query: it is words and phrases, and no operator binds it."""
        node, _ = self._read(query)
        if isinstance(node, Word | Phrase):
            return not node.star
        return isinstance(node, str) or (isinstance(node, Or) and _is_open(node))

    def answer(self, leaf: Word | Phrase) -> Answer | None:
        """What one leaf of a query finds, to the letter. None: it holds nothing but stop words."""
        return self._answer(self._reader.leaf(leaf, "", guessing=False))

    def lacking(self, word: str, slots: list[int]) -> list[bool]:
        """Which of some slots' tools do not hold a word; none of them if it is no word to look for."""
        found = [self._found(atom).found.slots for atom in self._reader.leaf(Word(word), "", False)]
        if not found:
            return [False] * len(slots)
        # A mark for each slot there is: made sooner than a few are looked for.
        holds = np.zeros(self._catalog.span, np.bool_)
        for each in found:
            holds[each] = True
        return [not held for held in holds.take(slots).tolist()]

    def is_strange(self, word: str) -> bool:
        """Whether no tool holds a word, and it is one to look for."""
        atoms = self._reader.leaf(Word(word), "", guessing=False)
        return bool(atoms) and not self._holds_any(atoms)

    def updated(self, catalog: Catalog) -> LexicalIndex:
        """This index brought to a later catalog."""
        slots = catalog.changed_slots(self._catalog)
        # A vocabulary keeps the terms of tools that are gone; when they may be most of it, start anew.
        vocabulary = self._reader.vocabulary
        if slots is None or len(vocabulary) > 2 * self._terms + _MOST_GONE_TERMS:
            return self._ranker.fit(catalog)
        documents = {
            slot: None if tool is None else self._ranker.document(tool, vocabulary)
            for slot, tool in zip(slots, map(catalog.at, slots), strict=True)
        }
        postings = self._postings.updated(documents, span=catalog.span, count=len(catalog))
        reader = AtomReader(self._ranker.reading, vocabulary, postings)
        return LexicalIndex(self._ranker, catalog, postings, reader, self._terms)

    def _read(self, query: str) -> _Reading:
        """A query read: a text where it is nothing but words, which is nearly always."""
        if self._ranker.syntax == "words" or not language.has_operators(query):
            return query, ()
        known = self._readings.get(query)
        if known is None:
            if len(self._readings) >= _MOST_READINGS:
                self._readings.clear()
            known = self._readings[query] = self._parsed(query)
        return known

    def _parsed(self, query: str) -> _Reading:
        notes: tuple[Note, ...] = ()
        query = language.as_written(query) if self._ranker.syntax == "lenient" else query
        try:
            node = self._relaxed(language.rewritten(language.parse(query), self._phrased))
        except InvalidQuery as fault:
            if self._ranker.syntax == "strict":
                raise
            node = language.plain(query)
            notes = (Note(f"read as plain words: {fault}"),)
        words = _only_words(node)
        return (node if words is None else " ".join(words)), notes

    def _phrased(self, leaf: Word | Phrase) -> Word | Phrase:
        """An identifier of several words (`send_email`) means these words side by side."""
        is_one_word = len(self._ranker.reading.words(leaf.text)) < 2
        return leaf if is_one_word else Phrase(leaf.text, leaf.star)

    def _relaxed(self, node: Node) -> Node:
        """A query in which a quotation that no tool holds stands for its words.

        People and models quote names and whole sentences without asking for an exact match. A
        short phrase by itself does ask for one. If the reading is lenient, not even that does, and
        what rules out nothing is no condition: in `tar -xzf` it is a flag.
        """
        is_lenient = self._ranker.syntax == "lenient"
        if isinstance(node, Phrase):
            is_sentence = len(node.text.split()) > _LONGEST_PHRASE
            is_loose = is_sentence or (is_lenient and not node.star)
            return self._words_unless_held(node) if is_loose else node
        if isinstance(node, Or):
            nodes = [one for one in node.nodes if not (is_lenient and self._excludes_nothing(one))]
            return Or(tuple(map(self._words_unless_held, nodes or node.nodes)))
        return node

    def _excludes_nothing(self, node: Node) -> bool:
        return (
            isinstance(node, Not)
            and isinstance(node.inner, Word | Phrase)
            and not self._is_held(node.inner)
        )

    def _is_held(self, leaf: Word | Phrase) -> bool:
        return self._holds_any(self._reader.leaf(leaf, "", guessing=False))

    def _holds_any(self, atoms: list[Atom]) -> bool:
        return any(len(self._posting(atom).slots) for atom in atoms)

    def _words_unless_held(self, node: Node) -> Node:
        if isinstance(node, Phrase) and not self._is_held(node):
            return language.plain(node.text)
        return node

    def _asked(self, query: str) -> Iterator[tuple[Atom, float]]:
        """Every atom of a query, and the score of a perfect match of it."""
        reader = self._reader
        node, _ = self._read(query)
        if isinstance(node, str):
            boosted = [(atom, 1.0) for atom in reader.plain(node)]
        else:
            boosted = [
                (atom, factor)
                for leaf, field, factor in language.leaves(node)
                for atom in reader.leaf(leaf, field, _is_short(node))
            ]
        for atom, factor in boosted:
            yield atom, factor * atom.weight * self._rarity(atom, len(self._posting(atom).slots))

    def _answer(self, atoms: list[Atom]) -> Answer | None:
        """What atoms find together. Most queries are just this."""
        if not atoms:
            return None
        totals, ideal = self._totals(atoms)
        hits = totals.astype(np.bool_).nonzero()[0]
        return Answer(Posting(hits, totals.take(hits)), ideal)

    def _totals(self, atoms: list[Atom], span: int = 0) -> tuple[Scores, float]:
        """The scores of atoms added up, for all slots or up to the last hit; and a perfect match's."""
        ideal = 0.0
        slots: list[Slots] = []
        scores: list[Scores] = []
        for atom in atoms:
            (found, impacts), rarity = self._found(atom)
            ideal += rarity * atom.weight
            weight = atom.weight * atom.certainty
            slots.append(found)
            scores.append(impacts if weight == 1 else impacts * weight)
        # Adding up by counting with weights: far fewer calls than adding posting by posting.
        totals = np.bincount(np.concatenate(slots), np.concatenate(scores), span)
        return cast(Scores, totals), ideal

    def _found(self, atom: Atom) -> Answer:
        """What one atom finds, by impact and rarity, and the score of a perfect match of it."""
        question = atom.question
        known = self._known.get(question)
        if known is not None:
            return known
        slots, impacts = self._posting(atom)
        rarity = self._rarity(atom, len(slots))
        answer = Answer(Posting(slots, impacts * rarity), rarity)
        if len(slots) <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[question] = answer
        return answer

    def _posting(self, atom: Atom) -> Posting:
        """The tools that hold an atom."""
        if not atom.is_word:
            return self._located(atom)
        terms = atom.prose[0]
        if len(terms) == 1:
            return self._postings.posting(terms[0])
        strongest = np.zeros(self._postings.span, np.float32)
        for term in terms:
            slots, impacts = self._postings.posting(term)
            strongest[slots] = np.maximum(strongest[slots], impacts)
        slots = (strongest > 0).nonzero()[0]
        return Posting(slots, strongest[slots])

    def _located(self, atom: Atom) -> Posting:
        """The tools that hold an atom for which it matters where the terms stand."""
        candidates = self._candidates(atom.prose)
        if atom.identifiers != atom.prose:
            candidates = np.union1d(candidates, self._candidates(atom.identifiers))
        found = [NOWHERE]
        for begin in range(0, len(candidates), _LAID_OUT):
            slots = candidates[begin : begin + _LAID_OUT]
            counts = self._counts(atom, slots).sum(axis=1)
            held = counts > 0
            impacts = counts[held] / (self._ranker.k1 + counts[held])
            found.append(Posting(slots[held], impacts.astype(np.float32)))
        return Posting(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def _candidates(self, sequence: Sequence) -> Slots:
        """The tools that hold a term for every place of a sequence, wherever it stands."""
        places = (
            reduce(
                np.union1d, (self._postings.posting(term).slots for term in terms), NOWHERE.slots
            )
            for terms in sequence
        )
        found: Slots = reduce(np.intersect1d, places) if sequence else NOWHERE.slots
        return found

    def _counts(self, atom: Atom, slots: Slots) -> NDArray[np.float64]:
        """How often each field of these tools holds an atom, in what an occurrence there is worth."""
        fields = self._ranker.reading.fields
        streams = self._postings.streams(slots)
        shape = (len(slots), len(fields))
        counts = np.zeros(shape)
        for sequence, is_for in ((atom.prose, False), (atom.identifiers, True)):
            columns = [
                at
                for at, field in enumerate(fields)
                if field.identifiers == is_for and atom.field in ("", field.name)
            ]
            begins = _beginnings(streams.tokens, streams.places, sequence)
            occurrences = np.bincount(begins, minlength=shape[0] * shape[1]).reshape(shape)
            counts[:, columns] = occurrences[:, columns]
        lengths = self._postings.lengths(slots)
        for at, field in enumerate(fields):
            weight = 1 / field.weight if atom.field else 1.0
            counts[:, at] *= weight * field.worth(lengths[:, at])
        return counts

    def _rarity(self, atom: Atom, count: int) -> float:
        """The weight of an atom that `count` tools hold (idf); a phrase has that of its words."""
        if len(atom.prose) > 1:
            counts = [len(self._candidates((place,))) for place in atom.prose]
            return sum(self._rarity_of(count) for count in counts)
        return self._rarity_of(count)

    def _rarity_of(self, count: int) -> float:
        return math.log(1 + (self._postings.count - count + 0.5) / (count + 0.5))

    def _notes(self, atoms: list[Atom]) -> tuple[Note, ...]:
        guesses = [atom for atom in atoms if atom.guesses]
        if not guesses:
            return ()
        return tuple(
            Note(
                f"no tool has this word, so a near one was used: {atom.label} → {term}",
                self._postings.posting(number).slots,
            )
            for atom in {atom.label: atom for atom in guesses}.values()
            for term, number in zip(atom.guesses, atom.prose[0], strict=True)
        )

    def _label(self, atom: Atom, slot: int) -> str:
        """What a tool has of an atom: of several guesses only its own."""
        if not atom.guesses:
            return atom.label
        own = [
            term
            for term, number in zip(atom.guesses, atom.prose[0], strict=True)
            if slot in self._postings.posting(number).slots
        ]
        return f"{atom.label} → {' | '.join(own)}"


def _beginnings(
    tokens: NDArray[np.int32], places: NDArray[np.int64], sequence: Sequence
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


def _share(scores: Scores, ideal: float) -> Scores:
    return scores / ideal if ideal else scores


def _only_words(node: Node) -> list[str] | None:
    """The words of a query that asks for nothing but any of some words."""
    if isinstance(node, Word):
        return None if node.star else [node.text]
    if not isinstance(node, Or):
        return None
    words: list[str] = []
    for inner in node.nodes:
        more = _only_words(inner)
        if more is None:
            return None
        words += more
    return words


def _is_open(node: Node) -> bool:
    """Whether a part of a query only speaks for tools, and rules none out."""
    match node:
        case Or():
            return all(map(_is_open, node.nodes))
        case Boost():
            return _is_open(node.inner)
        case _:
            return isinstance(node, Word | Phrase)


def _is_short(node: Node) -> bool:
    return sum(1 for _ in language.leaves(node)) <= MAX_GUESSED_WORDS
