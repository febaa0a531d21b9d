"""Combine the tools of an eval set with a larger catalog, as in a real deployment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final

from toolcrib.core.tool import Tool

# Descriptions are similar if the longer one has this share of the shorter one's words.
MIN_WORD_OVERLAP: Final = 0.65
# A tool is compared with at most this many tools of the same name.
MAX_NAMESAKES: Final = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ToolPool:
    """The tools of an eval set, followed by the tools that were added to them."""

    tools: tuple[Tool, ...]
    added_count: int
    duplicate_count: int


def build_pool(own: Iterable[Tool], foreign: Iterable[Tool]) -> ToolPool:
    """Return the own tools and the foreign tools, without duplicates among the latter.

    A duplicate has the same name and a similar description. It would be a correct answer that the
    eval set does not list. A foreign tool whose id is taken gets a new id.
    """
    tools = list(own)
    own_count = len(tools)
    ids = {tool.id for tool in tools}
    seen = _DuplicateFilter()
    for tool in tools:
        seen.add(tool)
    duplicate_count = 0
    for number, tool in enumerate(foreign, 1):
        if seen.has_duplicate(tool):
            duplicate_count += 1
            continue
        seen.add(tool)
        if tool.id in ids:
            tool = tool.replace(id=_find_free_id(f"pool-{number}", ids))
        ids.add(tool.id)
        tools.append(tool)
    return ToolPool(tuple(tools), len(tools) - own_count, duplicate_count)


@dataclass(slots=True)
class _DuplicateFilter:
    """The words of each description, by tool name."""

    words_by_name: dict[str, list[frozenset[str]]] = field(default_factory=dict)

    def add(self, tool: Tool) -> None:
        namesakes = self.words_by_name.setdefault(tool.name.casefold(), [])
        if len(namesakes) < MAX_NAMESAKES:
            namesakes.append(_description_words(tool))

    def has_duplicate(self, tool: Tool) -> bool:
        namesakes = self.words_by_name.get(tool.name.casefold(), ())
        words = _description_words(tool) if namesakes else frozenset()
        return any(words == other or _are_similar(words, other) for other in namesakes)


def _are_similar(words: frozenset[str], other: frozenset[str]) -> bool:
    # A tool without a description is similar only to another one without.
    shorter = min(len(words), len(other))
    return shorter > 0 and len(words & other) >= MIN_WORD_OVERLAP * shorter


def _find_free_id(id: str, taken: Set[str]) -> str:
    while id in taken:
        id += "'"
    return id


def _description_words(tool: Tool) -> frozenset[str]:
    return frozenset(_WORD.findall(tool.description.casefold()))
