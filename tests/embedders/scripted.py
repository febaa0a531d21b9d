"""A small embedder and a ranker for tests."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from toolcrib import Catalog
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import Embedder, Vectors
from toolcrib.search.dense.vector_table import VectorTable, normalize_vectors
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import Index, MatchReason, Ranking


class WordEmbedder:
    """Counts hashed words. Query vectors are doubled, so that they differ from tool vectors."""

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self.embedded_texts: list[str] = []
        self.is_down = False

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._rows(texts) * np.float32(2)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return self._rows(texts)

    def _rows(self, texts: Sequence[str]) -> Vectors:
        if self.is_down:
            raise EmbeddingFailed("the scripted embedder is down; set `down` to False")
        self.embedded_texts += texts
        rows = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[zlib.crc32(word.encode("utf-8", "surrogatepass")) % self.width] += 1
        return rows


class SimilarityRanker:
    """Ranks tools by the dot product of their vectors and the query's."""

    syntax: ClassVar[Syntax] = "words"

    def __init__(self, embedder: Embedder, width: int = 32) -> None:
        self.embedder = embedder
        self.width = width

    def fit(self, catalog: Catalog) -> Index:
        tools = [tool for slot in range(catalog.slot_count) if (tool := catalog.tool_at(slot))]
        slots = [slot for tool in tools if (slot := catalog.slot(tool.id)) is not None]
        rows = self.embedder.embed_tools([tool.description for tool in tools])
        table = VectorTable.empty(self.width).with_vectors(
            dict(zip(slots, normalize_vectors(rows), strict=True)), catalog.slot_count
        )
        return _SimilarityRankerIndex(self, catalog, table)


class _SimilarityRankerIndex:
    def __init__(self, ranker: SimilarityRanker, catalog: Catalog, table: VectorTable) -> None:
        self._ranker = ranker
        self._catalog = catalog
        self._table = table

    def rank(self, query: ParsedQuery) -> Ranking:
        vector = normalize_vectors(self._ranker.embedder.embed_queries([query.text])[0])
        similarity = self._table.compare(vector[None])[0]
        slots = (similarity > 0).nonzero()[0]
        return Ranking(slots, similarity[slots])

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        self._ranker.embedder.embed_queries([query.text])
        return (MatchReason(query.text, f"similarity, {self._ranker.width} dimensions", 1.0),)

    def with_catalog(self, catalog: Catalog) -> Index:
        return self._ranker.fit(catalog)
