"""Dense ranking: the cosine similarity of the vectors of a query and a tool.

Encoding a tool takes milliseconds, and a catalog may have thousands. So a large catalog gets
provisional vectors first, if the embedder has them. A query is compared with these, its best
candidates are encoded, and their similarities are replaced. Which candidates these are depends on the
query and the catalog alone, so neither earlier searches nor the progress of `warm_up` change a result.
Once `warm_up` has encoded every tool, the index uses the exact vectors only. It also does so from the start if
the embedder has stored the vectors of all tools in an earlier run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.dense.embedder import (
    Embedder,
    ProvisionalEmbedder,
    StoringEmbedder,
    Vectors,
    call_embedder,
    check_width,
    score_service_names,
    validate_vectors,
)
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_table import VectorTable, compare_vectors, normalize_vectors, round_vectors
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import (
    MAX_CHANGES_OF_STORED,
    MIN_STORED_TOOLS,
    ArrayStore,
    MatchReason,
    Ranking,
    match_slots,
    top_slots,
)

# Unrelated texts have about this similarity.
MIN_SIMILARITY: Final = 0.1
# A catalog, or a change of a catalog, of up to this many tools is encoded immediately.
MAX_ENCODED_ON_FIT: Final = 200
# How many candidates a query is compared with exactly while the others have provisional vectors.
MAX_ENCODED_PER_QUERY: Final = 8
# The share of the example requests in the vector of a tool that has some.
EXAMPLE_WEIGHT: Final = 0.4


@dataclass(frozen=True, slots=True)
class DenseRanker:
    """Ranks by the similarity of vectors."""

    syntax: Syntax = field(default="words", init=False, repr=False)

    embedder: Embedder
    # Keeps the vectors of a large catalog between runs. All of them are vectors of this embedder, which must know them.
    store: ArrayStore | None = field(default=None, compare=False)

    def fit(self, catalog: Catalog) -> DenseIndex:
        return DenseIndex(self, Catalog(), _ToolVectors()).with_catalog(catalog)


class _ToolVectors(NamedTuple):
    """The vectors of a catalog's tools.

    `table` is None if there are no tools. If it holds provisional vectors, `encoded` has the exact
    vectors that are known so far, by slot; otherwise it is None.
    """

    table: VectorTable | None = None
    encoded: dict[int, Vectors] | None = None


class VectorComparison(NamedTuple):
    """The similarity of some vectors to every slot, one row a vector; `is_exact` unless provisional."""

    rows: Vectors
    is_exact: bool


class DenseIndex:
    """The vectors of the tools of one catalog.

    A table is replaced, never modified, so that searches in other threads can finish with the one that
    they have. Exact vectors of further tools are added to `encoded`.
    """

    def __init__(self, ranker: DenseRanker, catalog: Catalog, vectors: _ToolVectors) -> None:
        self._ranker = ranker
        self._embedder = ranker.embedder
        self._catalog = catalog
        self._vectors = vectors
        self._lock = Lock()
        # `warm_up` has encoded all tools before this slot.
        self._first_missing = 0

    @property
    def can_score_service_names(self) -> bool:
        """Whether the embedder can tell names of services from others."""
        return hasattr(self._embedder, "score_service_names")

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that is similar to the query."""
        similarity, is_exact = self._compare_query(query)
        slots = (similarity > MIN_SIMILARITY).nonzero()[0]
        return Ranking(slots, np.minimum(similarity[slots], 1), fully_encoded=is_exact)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the similarity of meaning as the one reason; none if the tool is not similar."""
        if self._catalog.tool_at(slot) is None or self._compare_query(query)[0][slot] <= MIN_SIMILARITY:
            return ()
        return (MatchReason(query.text, "meaning", 1.0),)

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """Return the vectors of queries, with unit length."""
        vectors = call_embedder(self._embedder.embed_queries, queries)
        vectors = validate_vectors(vectors, len(queries))
        table = self._vectors.table
        if table is not None:
            check_width("queries", vectors, table.width)
        return _prepare(vectors)

    def score_service_names(self, query: str, names: Sequence[str]) -> Sequence[float]:
        """Return the probability that each of the names in a query is that of a service."""
        return score_service_names(self._embedder, query, names)

    def compare(self, vectors: Vectors) -> VectorComparison:
        """Compare vectors of queries with every tool."""
        table, encoded = self._vectors
        if table is None:
            return VectorComparison(np.zeros((len(vectors), self._catalog.slot_count), np.float32), True)
        return VectorComparison(table.compare(vectors), encoded is None)

    def compare_encoded(self, vectors: Vectors, slots: Iterable[int]) -> dict[int, Vectors]:
        """Return the exact similarities to each vector, by slot; slots without a tool are left out.

        Tools that are not encoded yet are encoded now.
        """
        rows = self._encode(slots)
        if not rows:
            return {}
        similarities = compare_vectors(vectors, np.stack(list(rows.values())))
        return dict(zip(rows, similarities.T, strict=True))

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """Return the similarity of each of these tools to each other."""
        table = self._vectors.table
        if table is None:
            return np.eye(len(slots), dtype=np.float32)
        rows = table.rows(slots)
        return compare_vectors(rows, rows)

    def warm_up(self, max_tools: int) -> int:
        """Encode up to `max_tools` more tools; return how many are left.

        When none is left, the exact vectors replace the provisional ones.
        """
        table, encoded = self._vectors
        if table is None or encoded is None:
            return 0
        occupied = self._catalog.occupied_mask
        slots = (self._first_missing + occupied[self._first_missing :].nonzero()[0]).tolist()
        missing = list(islice((slot for slot in slots if slot not in encoded), max_tools + 1))
        self._encode(missing[:max_tools])
        if len(missing) > max_tools:
            self._first_missing = missing[-1]
            return int(np.count_nonzero(occupied)) - len(encoded)
        with self._lock:
            rows = self._vectors.encoded
            if rows is not None:
                exact = VectorTable.empty(table.width).with_vectors(dict(rows), self._catalog.slot_count)
                self._vectors = _ToolVectors(exact)
        return 0

    def with_catalog(self, catalog: Catalog) -> DenseIndex:
        """Return an index of a later catalog. Only changed tools are embedded.

        Whether its vectors are exact depends on the size of the catalog and on `warm_up` alone: those
        of a small one are, and those of a large one if they were before and few tools have changed.
        """
        changed = catalog.changed_slots(self._catalog)
        is_small = len(catalog) <= MAX_ENCODED_ON_FIT
        if changed is not None and is_small and self._vectors.encoded is not None:
            # A catalog that has become small needs the exact vectors of all its tools.
            return self._ranker.fit(catalog)
        vectors = _ToolVectors() if changed is None else self._vectors
        slots = list(range(catalog.slot_count) if changed is None else changed)
        tools = {slot: tool for slot in slots if (tool := catalog.tool_at(slot)) is not None}
        was_warm = vectors.table is not None and vectors.encoded is None and len(self._catalog) > MAX_ENCODED_ON_FIT
        is_exact = is_small or (was_warm and len(tools) <= MAX_ENCODED_ON_FIT)
        if is_exact or not isinstance(self._embedder, ProvisionalEmbedder):
            updated = self._update_exact(vectors.table, slots, tools, catalog)
        else:
            stored = None if changed is not None else self._read_stored(catalog, tools)
            if stored is None:
                updated = self._update_provisional(self._embedder, vectors, slots, catalog)
            else:
                updated = _ToolVectors(VectorTable.from_rows(stored))
        return DenseIndex(self._ranker, catalog, updated)

    def _update_exact(
        self, table: VectorTable | None, slots: list[int], tools: dict[int, Tool], catalog: Catalog
    ) -> _ToolVectors:
        """Return the exact vectors of a later catalog, given those of this one."""
        rows: dict[int, Vectors | None] = dict.fromkeys(slots)
        if tools:
            embedded = self._embed_tools(list(tools.values()), table)
            rows.update(zip(tools, embedded, strict=True))
            table = table or VectorTable.empty(embedded.shape[1])
        return _ToolVectors(table and table.with_vectors(rows, catalog.slot_count))

    def _update_provisional(
        self, embedder: ProvisionalEmbedder, vectors: _ToolVectors, slots: list[int], catalog: Catalog
    ) -> _ToolVectors:
        """Return the provisional vectors of a later catalog, and the exact ones known so far."""
        table, encoded = vectors
        if encoded is None:
            # The table has exact vectors or none, so every tool needs a provisional one.
            unchanged = set() if table is None else set(range(table.span)) - set(slots)
            kept = [slot for slot in sorted(unchanged) if catalog.tool_at(slot) is not None]
            encoded = dict(zip(kept, table.rows(kept), strict=True)) if table else {}
            table, slots = None, list(range(catalog.slot_count))
        else:
            changed = set(slots)
            encoded = {slot: row for slot, row in dict(encoded).items() if slot not in changed}
        tools = {slot: tool for slot in slots if (tool := catalog.tool_at(slot)) is not None}
        rows: dict[int, Vectors | None] = dict.fromkeys(slots)
        if tools:
            result = call_embedder(embedder.embed_provisional, [build_tool_text(tool) for tool in tools.values()])
            provisional = _prepare(validate_vectors(result, len(tools)))
            if table is not None:
                check_width("tools", provisional, table.width)
            rows.update(zip(tools, provisional, strict=True))
            table = table or VectorTable.empty(provisional.shape[1])
        return _ToolVectors(table and table.with_vectors(rows, catalog.slot_count), encoded)

    def _compare_query(self, query: ParsedQuery) -> tuple[Vectors, bool]:
        """Return the similarity of every slot to a query, and whether all are exact."""
        vectors = self.embed_queries([query.text])
        (similarity,), is_exact = self.compare(vectors)
        if not is_exact:
            candidates = top_slots(similarity, MAX_ENCODED_PER_QUERY).tolist()
            for slot, exact in self.compare_encoded(vectors, candidates).items():
                similarity[slot] = exact[0]
        return similarity, is_exact

    def _encode(self, slots: Iterable[int]) -> dict[int, Vectors]:
        """Return the exact vectors of slots with a tool; encode those that are unknown."""
        table, encoded = self._vectors
        tools = {slot: tool for slot in slots if (tool := self._catalog.tool_at(slot)) is not None}
        if table is None or encoded is None:
            return dict(zip(tools, table.rows(list(tools)), strict=True)) if table else {}
        missing = {slot: tool for slot, tool in tools.items() if slot not in encoded}
        new: dict[int, Vectors] = {}
        if missing:
            rows = self._embed_tools(list(missing.values()), table)
            new = dict(zip(missing, rows, strict=True))
            # Added in place, because copying all of them for each step takes long in a large catalog.
            encoded.update(new)
        return {slot: new[slot] if slot in new else encoded[slot] for slot in tools}

    def _embed_tools(self, tools: list[Tool], table: VectorTable | None) -> Vectors:
        """Return the exact vectors of tools. They must be as wide as those in the table."""
        texts, counts = _build_texts(tools)
        rows = validate_vectors(call_embedder(self._embedder.embed_tools, texts), len(texts))
        if table is not None:
            check_width("tools", rows, table.width)
        return _prepare(_mix_examples(rows, counts))

    def _read_stored(self, catalog: Catalog, tools: dict[int, Tool]) -> Vectors | None:
        """Return the exact vector of every slot if those of all tools are stored, else None."""
        if not isinstance(self._embedder, StoringEmbedder) or not tools:
            return None
        store = self._ranker.store if len(tools) >= MIN_STORED_TOOLS else None
        arrays = store.read() if store else None
        known, missing = (None, list(tools)) if arrays is None else _match_vectors(catalog, arrays)
        if known is not None and not missing:
            return known
        texts, counts = _build_texts([tools[slot] for slot in missing])
        found = call_embedder(self._embedder.read_stored, texts)
        if found is None:
            return None
        read = _prepare(_mix_examples(validate_vectors(found, len(texts)), counts))
        rows = np.zeros((catalog.slot_count, read.shape[1]), np.float32) if known is None else known
        check_width("tools", read, rows.shape[1])
        rows[missing] = read
        if store and len(missing) > MAX_CHANGES_OF_STORED:
            store.write({"digests": catalog.digests, "vectors": rows})
        return rows


def _match_vectors(catalog: Catalog, arrays: Mapping[str, NDArray[Any]]) -> tuple[Vectors, list[int]]:
    """Return the stored vector of every slot, zeros if there is none, and the slots of tools without one."""
    slots, missing = match_slots(catalog, arrays["digests"])
    vectors: Vectors = arrays["vectors"]
    if np.array_equal(slots, np.arange(catalog.slot_count)):
        return vectors, []
    rows = np.zeros((catalog.slot_count, vectors.shape[1]), np.float32)
    rows[slots[slots >= 0]] = vectors[slots >= 0]
    return rows, missing


def _build_texts(tools: list[Tool]) -> tuple[list[str], list[int]]:
    """Return the texts of all tools, then those of all their examples, and the number of examples of each tool."""
    requests = [tool.example_requests for tool in tools]
    texts = [build_tool_text(tool) for tool in tools]
    return texts + [text for some in requests for text in some], list(map(len, requests))


def _mix_examples(rows: Vectors, counts: list[int]) -> Vectors:
    """Return a vector for each tool: a weighted mean of its own and the mean of its example requests.

    `rows` has the vectors of all tools, then those of all examples; `counts` has the number of examples of
    each tool.
    """
    if len(rows) == len(counts):
        return rows
    rows = normalize_vectors(rows)
    mixed = rows[: len(counts)].copy()
    begin = len(counts)
    for row, count in zip(mixed, counts, strict=True):
        if count:
            mean = normalize_vectors(rows[begin : begin + count].mean(axis=0, keepdims=True))
            row *= np.float32(1 - EXAMPLE_WEIGHT)
            row += np.float32(EXAMPLE_WEIGHT) * mean[0]
            begin += count
    return mixed


def _prepare(vectors: Vectors) -> Vectors:
    """Return vectors as they are compared: rounded, then scaled to unit length, once.

    Scaling a vector again could change its last digit.
    """
    return normalize_vectors(round_vectors(vectors))
