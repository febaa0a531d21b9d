"""bm25s with numpy. Adding or removing a tool rebuilds the index."""

import bm25s
import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.contender import LIMIT, Text, plain, terms
from benchmarks.generate import Row


class BM25S:
    """Sparse columns of scores made at build time; a filter is a mask of weights."""

    def prepare(self, row: Row) -> Text:
        return plain(row)

    def fit(self, tools: list[Text]) -> None:
        self._tools = tools
        self._ids = np.array([tool.id for tool in tools])
        self._servers = np.array([tool.server for tool in tools])
        self._numbers = {tool.id: number for number, tool in enumerate(tools)}
        self._index = bm25s.BM25()
        self._index.index([terms(tool.text) for tool in tools], show_progress=False)

    def search(self, query: str) -> list[str]:
        return self._find(query, None)

    def search_server(self, query: str, server: str) -> list[str]:
        return self._find(query, (self._servers == server).astype(np.float32))

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        mask = np.zeros(len(self._ids), dtype=np.float32)
        mask[[self._numbers[id] for id in allowed if id in self._numbers]] = 1
        return self._find(query, mask)

    def add(self, tool: Text) -> None:
        self.fit([*self._tools, tool])

    def remove(self, id: str) -> None:
        self.fit([tool for tool in self._tools if tool.id != id])

    def _find(self, query: str, mask: NDArray[np.float32] | None) -> list[str]:
        numbers, scores = self._index.retrieve(
            [terms(query)], k=min(LIMIT, len(self._ids)), show_progress=False, weight_mask=mask
        )
        pairs = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return [str(self._ids[number]) for number, score in pairs if score > 0]


def contender() -> BM25S:
    """Return the engine."""
    return BM25S()
