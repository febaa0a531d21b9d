"""The protocol of all engines, and a tokenizer for peers without one."""

import re
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from benchmarks.generate import Row
from benchmarks.vocabulary import split_words

LIMIT = 10
STOP_WORDS = frozenset(
    split_words(
        """
        a an and are as at be by can do for from how i in is it its me my of on or please that the
        there this to use want wants was way what when which with you
        """
    )
)

Prepared = TypeVar("Prepared")
Answer = TypeVar("Answer")


class Text(NamedTuple):
    """A tool as one text."""

    id: str
    server: str
    text: str


class Contender(Protocol[Prepared]):
    """A search engine that returns tool ids, best first."""

    def prepare(self, row: Row) -> Prepared:
        """Convert a tool to an object of the engine. This is not measured."""

    def fit(self, tools: list[Prepared]) -> None:
        """Build the index."""

    def search(self, query: str) -> list[str]:
        """Return the ten best tools."""

    def search_server(self, query: str, server: str) -> list[str]:
        """Return the ten best tools of one server."""

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        """Return the ten best tools among these ids."""

    def add(self, tool: Prepared) -> None:
        """Add one tool; the next search must find it."""

    def remove(self, id: str) -> None:
        """Remove one tool; the next search must not find it."""


def terms(text: str) -> list[str]:
    """Return the lower-case words of a text, split at camelCase and snake_case, without stop words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    return [word for word in words if word not in STOP_WORDS]


def parameter_text(row: Row) -> str:
    """Return the names and descriptions of the parameters."""
    properties = row["input_schema"].get("properties") or {}
    return " ".join(
        f"{name} {schema.get('description') or ''}" if isinstance(schema, dict) else name
        for name, schema in properties.items()
    )


def plain(row: Row) -> Text:
    """Return a tool as one text, for engines without fields."""
    text = " ".join((row["id"], row["description"], parameter_text(row), *row["tags"]))
    return Text(row["id"], row["server"], text)


def best(scores: Sequence[float], ids: Sequence[str], order: Sequence[int]) -> list[str]:
    """Return the ids in this order, without those with score 0."""
    return [ids[number] for number in order if scores[number] > 0]


def run_coroutine(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine that never waits, without the cost of an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer
    raise RuntimeError("the peer waited for something; it has to be run in an event loop")
