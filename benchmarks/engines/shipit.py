"""The first algorithm of shipit: SequenceMatcher over name and description, and a bonus per word."""

from collections.abc import Iterable
from difflib import SequenceMatcher

from benchmarks.engines.contender import LIMIT
from benchmarks.generate import Row

TOKEN_BONUS = 0.12


class Shipit:
    """No index: every tool is compared on every call."""

    def prepare(self, row: Row) -> tuple[str, str]:
        return row["id"], f"{row['id']} {row['description']}".lower()

    def fit(self, tools: list[tuple[str, str]]) -> None:
        self._texts = dict(tools)

    def search(self, query: str) -> list[str]:
        return self._find(query, self._texts.items())

    def search_server(self, query: str, server: str) -> list[str]:
        prefix = f"{server}___"
        tools = self._texts.items()
        return self._find(query, ((id, text) for id, text in tools if id.startswith(prefix)))

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        tools = self._texts.items()
        return self._find(query, ((id, text) for id, text in tools if id in allowed))

    def add(self, tool: tuple[str, str]) -> None:
        self._texts[tool[0]] = tool[1]

    def remove(self, id: str) -> None:
        del self._texts[id]

    def _find(self, query: str, tools: Iterable[tuple[str, str]]) -> list[str]:
        scored = [(_score(query.lower(), text), id) for id, text in tools]
        scored.sort(key=lambda pair: -pair[0])
        return [id for score, id in scored[:LIMIT] if score > 0.05]


def _score(query: str, text: str) -> float:
    hits = sum(word in text for word in query.split())
    return round(SequenceMatcher(None, query, text).ratio() + TOKEN_BONUS * hits, 4)


def contender() -> Shipit:
    """Return the engine."""
    return Shipit()
