"""Analyze the fields of many tools into terms and their impacts.

Each distinct word is analyzed once. The rest is done with arrays for many tools at a time, which is
several times as fast as word after word.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.tool import Tool
from toolcrib.search.lexical.fields import MAX_FIELD_CHARS, MAX_FIELD_TERMS, FieldConfig
from toolcrib.search.lexical.vocabulary import Vocabulary

# How many tools are analyzed at a time. A larger batch needs more memory, a smaller one more time.
BATCH_TOOLS: Final = 1_000
# Separates terms that are not adjacent in the text.
GAP_TOKEN: Final = -1

_NO_TERMS: Final[list[int]] = []

_Ints = NDArray[np.int32]
_Offsets = NDArray[np.int64]


class AnalyzedTools(NamedTuple):
    """The terms of some tools, numbered from 0.

    `terms`, `tools` and `impacts` have one entry for each term of each tool, sorted by term, then by
    tool. `tokens` are the terms of all tools in the order of their fields, and `lengths` has the number
    of tokens of each field, one row a tool.
    """

    terms: _Ints
    tools: _Ints
    impacts: NDArray[np.float32]
    tokens: _Ints
    lengths: _Offsets


class ToolAnalyzer:
    """Analyzes tools into terms of one vocabulary. `k1` is the saturation parameter of BM25."""

    def __init__(self, field_config: FieldConfig, vocabulary: Vocabulary, k1: float) -> None:
        self._field_config = field_config
        self._vocabulary = vocabulary
        self._k1 = k1
        self._words = _WordTable(field_config, vocabulary)
        self._is_identifier = np.array([field.is_identifier for field in field_config.fields], np.bool_)

    def analyze_batches(self, tools: Iterable[Tool | None]) -> Iterator[AnalyzedTools]:
        """Yield the terms of many tools in batches; one batch if there are no tools. None in place of a tool has no terms."""
        remaining = iter(tools)
        yield self.analyze(list(islice(remaining, BATCH_TOOLS)))
        while batch := list(islice(remaining, BATCH_TOOLS)):
            yield self.analyze(batch)

    def analyze(self, tools: list[Tool | None]) -> AnalyzedTools:
        """Return the terms of tools with their impacts, which do not depend on other tools."""
        words, word_counts = self._find_words(tools)
        field_count = len(word_counts)
        field_of_word = np.repeat(np.arange(field_count, dtype=np.int32), word_counts)
        is_identifier = np.tile(self._is_identifier, len(tools))
        rows = words * 2 + is_identifier[field_of_word]
        main_forms, other_forms = self._words.build_forms()
        if word_counts.max(initial=0) * main_forms.max_size > MAX_FIELD_TERMS:
            kept = _find_indexed_words(main_forms.sizes[rows], field_of_word, word_counts)
            rows, field_of_word = rows[kept], field_of_word[kept]
        tokens, field_of_token, lengths = _join_forms(main_forms, other_forms, rows, field_of_word, field_count)
        lengths = lengths.reshape(len(tools), len(self._is_identifier))
        weights = self._occurrence_weights(lengths)
        is_term = tokens != GAP_TOKEN
        field_of_term = field_of_token[is_term]
        tool_of_term = field_of_term // lengths.shape[1]
        postings = _sum_weights(tokens[is_term], tool_of_term, weights.ravel()[field_of_term], len(tools))
        terms, tool_numbers, counts = postings
        impacts = (counts / (self._k1 + counts)).astype(np.float32)
        return AnalyzedTools(terms, tool_numbers, impacts, tokens, lengths)

    def _find_words(self, tools: list[Tool | None]) -> tuple[_Ints, _Offsets]:
        """Return the numbers of the words of all fields, and how many each field has."""
        find_words, extract_texts = self._field_config.find_words, self._field_config.extract_texts
        no_words = [0] * len(self._is_identifier)
        words: list[str] = []
        counts: list[int] = []
        # The tools of a server follow one another, and share its name and its description.
        last_texts: list[str] = [""] * len(self._is_identifier)
        last_words: list[list[str]] = [[] for _ in last_texts]
        for tool in tools:
            if tool is None:
                counts += no_words
                continue
            for field, text in enumerate(extract_texts(tool)):
                if text is not last_texts[field]:
                    last_texts[field] = text
                    last_words[field] = find_words(text[:MAX_FIELD_CHARS]) if text else []
                words += last_words[field]
                counts.append(len(last_words[field]))
        numbers = np.fromiter(map(self._words.__getitem__, words), np.int32, len(words))
        return numbers, np.array(counts, np.int64)

    def _occurrence_weights(self, lengths: _Offsets) -> NDArray[np.float64]:
        """Return the weight of one occurrence in each field of each tool."""
        weights = np.empty(lengths.shape)
        for column, field in enumerate(self._field_config.fields):
            weights[:, column] = field.occurrence_weight(lengths[:, column])
        return weights


class _Forms(NamedTuple):
    """The terms of some rows: those of row r start at starts[r], and there are sizes[r] of them."""

    terms: _Ints
    starts: _Offsets
    sizes: _Ints
    max_size: int

    def gather(self, rows: _Ints) -> _Ints:
        """Return the terms of some rows, one row after the other."""
        sizes = self.sizes[rows]
        ends = np.cumsum(sizes)
        shifts = np.repeat(self.starts[rows] - ends + sizes, sizes)
        return self.terms[shifts + np.arange(len(shifts))]


class _WordTable(dict[str, int]):
    """Numbers for words, and the terms of each as prose (row 2 n) and as an identifier (row 2 n + 1).

    A compound such as `GitHub` is one term in prose and several in an identifier. Its other form is
    stored separately.
    """

    def __init__(self, field_config: FieldConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._field_config = field_config
        self._vocabulary = vocabulary
        self._main_terms, self._other_terms = array("i"), array("i")
        self._main_sizes, self._other_sizes = array("i"), array("i")

    def __missing__(self, word: str) -> int:
        _, whole, parts = self._field_config.analyze_word(word)
        whole_number = [self._vocabulary.get_or_add(whole)]
        # A stop word is a term in identifiers only.
        prose = _NO_TERMS if self._field_config.is_stop_word(whole) else whole_number
        if parts[0] == whole:
            # Both rows at a time, because most words are plain.
            self._main_terms.extend(prose + whole_number)
            self._main_sizes.extend((len(prose), 1))
            self._other_sizes.extend((0, 0))
        else:
            part_numbers = list(map(self._vocabulary.get_or_add, parts))
            self._add_row(prose, part_numbers if prose else _NO_TERMS)
            self._add_row(part_numbers, whole_number)
        self[word] = index = len(self)
        return index

    def build_forms(self) -> tuple[_Forms, _Forms]:
        """Return the main terms of every row, and those of the other forms."""
        return _build_forms(self._main_terms, self._main_sizes), _build_forms(self._other_terms, self._other_sizes)

    def _add_row(self, main: list[int], other: list[int]) -> None:
        self._main_terms.extend(main)
        self._main_sizes.append(len(main))
        self._other_terms.extend(other)
        self._other_sizes.append(len(other))


def _build_forms(terms: array[int], sizes: array[int]) -> _Forms:
    # Copied, because an array cannot grow while numpy shares its memory.
    all_sizes = np.array(sizes, np.int32)
    starts = np.cumsum(all_sizes) - all_sizes
    return _Forms(np.array(terms, np.int32), starts, all_sizes, int(all_sizes.max(initial=0)))


def _find_indexed_words(sizes: _Ints, field_of_word: _Ints, word_counts: _Offsets) -> NDArray[np.bool_]:
    """Return which words begin within the first `MAX_FIELD_TERMS` terms of their field."""
    before = np.cumsum(sizes) - sizes
    first_words = (np.cumsum(word_counts) - word_counts)[field_of_word]
    kept: NDArray[np.bool_] = before - before[first_words] < MAX_FIELD_TERMS
    return kept


def _join_forms(
    main_forms: _Forms, other_forms: _Forms, rows: _Ints, field_of_word: _Ints, field_count: int
) -> tuple[_Ints, _Ints, _Offsets]:
    """Return the tokens of all fields, the field of each, and the length of each field.

    The other forms of a field follow after a gap, so they match as words but not in a phrase.
    """
    main_sizes, other_sizes = main_forms.sizes[rows], other_forms.sizes[rows]
    main_counts = np.bincount(field_of_word, main_sizes, field_count).astype(np.int64)
    other_counts = np.bincount(field_of_word, other_sizes, field_count).astype(np.int64)
    gap_counts = (other_counts > 0).astype(np.int64)
    lengths = main_counts + gap_counts + other_counts
    starts = np.cumsum(lengths) - lengths
    tokens = np.full(int(lengths.sum()), GAP_TOKEN, np.int32)
    for forms, sizes, counts, begins in (
        (main_forms, main_sizes, main_counts, starts),
        (other_forms, other_sizes, other_counts, starts + main_counts + gap_counts),
    ):
        field_of_term = np.repeat(field_of_word, sizes)
        shifts = begins - np.cumsum(counts) + counts
        tokens[shifts[field_of_term] + np.arange(len(field_of_term))] = forms.gather(rows)
    return tokens, np.repeat(np.arange(field_count, dtype=np.int32), lengths), lengths


def _sum_weights(
    terms: _Ints, tools: _Ints, weights: NDArray[np.float64], tool_count: int
) -> tuple[_Ints, _Ints, NDArray[np.float64]]:
    """Return the distinct pairs of a term and a tool, sorted, and the sum of the weights of each."""
    # The position in the low bits keeps the order of the text, and one sort of plain numbers is faster
    # than `argsort`.
    bits = len(terms).bit_length()
    keys = terms.astype(np.int64)
    keys *= max(tool_count, 1)
    keys += tools
    keys <<= bits
    keys |= np.arange(len(terms))
    keys.sort()
    positions = keys & ((1 << bits) - 1)
    keys >>= bits
    is_first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    starts = is_first.nonzero()[0]
    sums = np.add.reduceat(weights[positions], starts) if len(starts) else np.empty(0)
    found_terms, found_tools = np.divmod(keys[starts], max(tool_count, 1))
    return found_terms.astype(np.int32), found_tools.astype(np.int32), sums
