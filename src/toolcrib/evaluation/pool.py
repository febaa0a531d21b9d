"""Searching a small catalog inside a large one, which is what a deployment looks like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final

from toolcrib.core.tool import Tool

# The share of the shorter description's words that the longer must have too.
MIN_WORD_OVERLAP: Final = 0.65
# Of so many descriptions under one name each newcomer is compared with; bounds the time.
MAX_NAMESAKES: Final = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ToolPool:
    """Tools to search together, of which the set's come first.

    `added` is how many foreign tools stand behind them, `left_out` how many were twins.
    """

    tools: tuple[Tool, ...]
    added_count: int
    duplicate_count: int


def build_pool(own: Iterable[Tool], foreign: Iterable[Tool]) -> ToolPool:
    """The own tools, and the foreign ones that are no twins of a tool before them.

    A twin has the same name and a similar description: as an answer it would be as right, but the
    set does not say so. A foreign tool whose id is taken gets another.
    """
    tools = list(own)
    count = len(tools)
    ids = {tool.id for tool in tools}
    known = _DuplicateFilter()
    for tool in tools:
        known.add(tool)
    left_out = 0
    for number, tool in enumerate(foreign, 1):
        if known.has_duplicate(tool):
            left_out += 1
            continue
        known.add(tool)
        if tool.id in ids:
            tool = tool.replace(id=_find_free_id(f"pool-{number}", ids))
        ids.add(tool.id)
        tools.append(tool)
    return ToolPool(tuple(tools), len(tools) - count, left_out)


@dataclass(slots=True)
class _DuplicateFilter:
    """The words of the descriptions that were seen, by name."""

    by_name: dict[str, list[frozenset[str]]] = field(default_factory=dict)

    def add(self, tool: Tool) -> None:
        namesakes = self.by_name.setdefault(tool.name.casefold(), [])
        if len(namesakes) < MAX_NAMESAKES:
            namesakes.append(_description_words(tool))

    def has_duplicate(self, tool: Tool) -> bool:
        namesakes = self.by_name.get(tool.name.casefold(), ())
        words = _description_words(tool) if namesakes else frozenset()
        return any(words == other or _are_similar(words, other) for other in namesakes)


def _are_similar(words: frozenset[str], other: frozenset[str]) -> bool:
    # Of a tool without a description it is not known whether it is alike.
    shorter = min(len(words), len(other))
    return shorter > 0 and len(words & other) >= MIN_WORD_OVERLAP * shorter


def _find_free_id(id: str, taken: Set[str]) -> str:
    while id in taken:
        id += "'"
    return id


def _description_words(tool: Tool) -> frozenset[str]:
    return frozenset(_WORD.findall(tool.description.casefold()))
