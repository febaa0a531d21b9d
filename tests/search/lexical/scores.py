"""Read the ranking of an index."""

from __future__ import annotations

from toolcrib.search.lexical.fuzzy import FuzzyIndex
from toolcrib.search.lexical.keyword import KeywordIndex
from toolcrib.search.lexical.prefix import PrefixIndex
from toolcrib.search.query.parser import ParsedQuery


def find_scores(index: FuzzyIndex | KeywordIndex | PrefixIndex, query: str) -> dict[str, float]:
    """Return the scores of the tools that match a query, by name."""
    ranking = index.rank(ParsedQuery(query))
    tools = [index.catalog.tool_at(slot) for slot in ranking.slots.tolist()]
    return {tool.name: score for tool, score in zip(tools, ranking.scores.tolist(), strict=True) if tool}
