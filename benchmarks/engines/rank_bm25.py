"""rank_bm25's BM25Okapi. Adding or removing a tool rebuilds the index."""

import numpy as np
from rank_bm25 import BM25Okapi

from benchmarks.engines.contender import LIMIT, Text, best, plain, terms
from benchmarks.generate import Row


class RankBM25:
    """Scores every document for every query word."""

    def prepare(self, row: Row) -> Text:
        return plain(row)

    def fit(self, tools: list[Text]) -> None:
        self._tools = tools
        self._ids = [tool.id for tool in tools]
        self._index = BM25Okapi([terms(tool.text) for tool in tools])

    def search(self, query: str) -> list[str]:
        scores = self._index.get_scores(terms(query))
        return best(scores, self._ids, np.argsort(scores)[::-1][:LIMIT].tolist())

    def search_server(self, query: str, server: str) -> list[str]:
        return self._among(query, [number for number, tool in enumerate(self._tools) if tool.server == server])

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        return self._among(query, [number for number, id in enumerate(self._ids) if id in allowed])

    def add(self, tool: Text) -> None:
        self.fit([*self._tools, tool])

    def remove(self, id: str) -> None:
        self.fit([tool for tool in self._tools if tool.id != id])

    def _among(self, query: str, numbers: list[int]) -> list[str]:
        if not numbers:
            return []
        scores = self._index.get_batch_scores(terms(query), numbers)
        ids = [self._ids[number] for number in numbers]
        return best(scores, ids, np.argsort(scores)[::-1][:LIMIT].tolist())


def contender() -> RankBM25:
    """Return the engine."""
    return RankBM25()
