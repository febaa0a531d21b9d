"""What the benchmark asks of every engine, and how peers without a tokenizer read text."""

import re
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from benchmarks.generate import Row
from benchmarks.vocabulary import listed

LIMIT = 10
STOP_WORDS = frozenset(
    listed(
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
    """An engine that holds tools in its own form and answers with tool ids, best first."""

    def prepare(self, row: Row) -> Prepared:
        """The engine's own form of a tool. Not part of any timed step."""

    def fit(self, tools: list[Prepared]) -> None:
        """Make every tool findable."""

    def search(self, query: str) -> list[str]:
        """The ten best."""

    def search_server(self, query: str, server: str) -> list[str]:
        """The ten best of one server."""

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        """The ten best among these ids."""

    def add(self, tool: Prepared) -> None:
        """Add one tool; the next search must find it."""

    def remove(self, id: str) -> None:
        """Remove one tool; the next search must not find it."""


def terms(text: str) -> list[str]:
    """Lower-case words, camelCase and snake_case split, stop words left out."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    return [word for word in words if word not in STOP_WORDS]


def parameter_text(row: Row) -> str:
    """The names and descriptions of a tool's parameters."""
    properties = row["input_schema"].get("properties") or {}
    return " ".join(
        f"{name} {schema.get('description') or ''}" if isinstance(schema, dict) else name
        for name, schema in properties.items()
    )


def plain(row: Row) -> Text:
    """A tool as an engine without fields knows it."""
    text = " ".join((row["id"], row["description"], parameter_text(row), *row["tags"]))
    return Text(row["id"], row["server"], text)


def best(scores: Sequence[float], ids: Sequence[str], order: Sequence[int]) -> list[str]:
    """The ids in this order, without those that score nothing."""
    return [ids[number] for number in order if scores[number] > 0]


def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of a coroutine that never waits, without the cost of an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer
    raise RuntimeError("the peer waited for something; it has to be run in an event loop")
