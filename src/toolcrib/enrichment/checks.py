"""Check written requests: their text, and that a search for them finds their tool before any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.enrichment.example_file import add_example_requests
from toolcrib.safety.scan import scan_definition
from toolcrib.search.engine import SearchEngine
from toolcrib.search.ranker import Ranker

MIN_REQUEST_CHARS: Final = 8
MAX_REQUEST_CHARS: Final = 300
# Before its requests are added, a search for each of them must find the tool among this number of hits, with this
# share of the best score. So a description cannot make a model write requests for another tool.
MAX_RANK: Final = 10
MIN_SCORE_SHARE: Final = 0.6


class RejectedRequest(NamedTuple):
    """A request that is not used, and why."""

    text: str
    reason: str


class CheckedRequests(NamedTuple):
    """The requests for one tool that passed the checks, and the rejected ones."""

    kept: tuple[str, ...]
    rejected: tuple[RejectedRequest, ...]


def find_text_problem(text: str, tool: Tool, other_names: frozenset[str]) -> str:
    """Return why a text is not a usable request for a tool; empty if it is usable."""
    if not MIN_REQUEST_CHARS <= len(text) <= MAX_REQUEST_CHARS:
        return f"it has {len(text):,} characters, not {MIN_REQUEST_CHARS} to {MAX_REQUEST_CHARS}"
    if not tool.name.isalpha() and tool.name.lower() in text.lower():
        return "it contains the name of the tool"
    findings = scan_definition({"description": text}, other_names - {tool.name})
    return f"the safety scan reports: {findings[0].message}" if findings else ""


class RequestChecker:
    """Checks requests against the tools of one catalog.

    Requests that pass are added to the catalog, so that later ones compete with them.
    """

    def __init__(self, catalog: Catalog, known: Mapping[str, Sequence[str]], rankers: Mapping[str, Ranker]) -> None:
        self.plain_engine = SearchEngine(catalog, rankers)
        self._engine = SearchEngine(add_example_requests(catalog, known), rankers)
        self._names = frozenset(tool.name for tool in catalog)

    def warm_up(self, max_tools: int) -> int:
        """Encode up to `max_tools` tools; return how many are left. Searches are better when none is left."""
        left = self.plain_engine.warm_up(max_tools=max_tools)
        return left or self._engine.warm_up(max_tools=max_tools)

    def check(self, tool: Tool, texts: Sequence[str], max_count: int) -> CheckedRequests:
        """Return the texts that pass the checks as requests for a tool, at most `max_count`, and the rejected ones."""
        rejected: list[RejectedRequest] = []
        found: list[str] = []
        for text in texts:
            problem = find_text_problem(text, tool, self._names) or self._find_search_problem(text, tool)
            if problem:
                rejected.append(RejectedRequest(text, problem))
            else:
                found.append(text)
        enriched = self._add(tool, found)
        kept: list[str] = []
        for text in found:
            rival = _find_better_tool(enriched, text, tool)
            if rival:
                rejected.append(RejectedRequest(text, f"{rival} fits better"))
            elif len(kept) < max_count:
                kept.append(text)
        if kept:
            self._engine = enriched if kept == found else self._add(tool, kept)
        return CheckedRequests(tuple(kept), tuple(rejected))

    def _add(self, tool: Tool, texts: list[str]) -> SearchEngine:
        if not texts:
            return self._engine
        return self._engine.with_catalog(self._engine.catalog.with_tools([tool.with_example_requests(texts)]))

    def _find_search_problem(self, text: str, tool: Tool) -> str:
        """Return why a search without example requests does not find the tool; empty if it does."""
        hits = self.plain_engine.search(text, limit=MAX_RANK).hits
        own = next((hit for hit in hits if hit.tool.id == tool.id), None)
        if own is None:
            first = f"; {hits[0].tool.id} is first" if hits else ""
            return f"a search for it does not find the tool among the first {MAX_RANK}{first}"
        if own.score < MIN_SCORE_SHARE * hits[0].score:
            return f"{hits[0].tool.id} fits much better"
        return ""


def _find_better_tool(engine: SearchEngine, text: str, tool: Tool) -> str:
    """Return the id of a tool that ranks before a tool; empty if there is none. Copies of the tool do not count."""
    for hit in engine.search(text, limit=MAX_RANK).hits:
        if hit.tool.id == tool.id:
            return ""
        if (hit.tool.name, hit.tool.description) != (tool.name, tool.description):
            return hit.tool.id
    return ""
