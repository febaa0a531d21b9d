"""The search engine: rank, filter by rights and facets, cut a page, explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Final

import numpy as np

from toolcrib.core.catalog import Catalog, ToolSource, read_catalog
from toolcrib.core.rights import AllowedTools, ToolPredicate, ToolRights, build_rights
from toolcrib.core.tool import Tool
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import InvalidConfig, InvalidLimit, InvalidQuery, QueryTooLong, UnknownTool
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.filters import NO_FILTER, FacetIndex, Where
from toolcrib.search.hybrid.ranker import build_fast_ranker, build_hybrid_ranker
from toolcrib.search.lexical.exact_name import NameIndex, NameMatch, promote_names
from toolcrib.search.lexical.fuzzy import FuzzyRanker
from toolcrib.search.lexical.keyword import KeywordRanker
from toolcrib.search.lexical.prefix import PrefixRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.expression import MAX_QUERY_CHARS
from toolcrib.search.query.parser import has_words, parse_query
from toolcrib.search.ranker import Candidate, Index, MatchReason, Note, Ranker, Ranking, SimilarityIndex, warm_up_index
from toolcrib.search.regex import RegexRanker
from toolcrib.search.results import (
    Explanation,
    Hit,
    HitGroup,
    SearchResult,
    compute_confidence,
    find_uncovered,
    group_hits,
)

MAX_LIMIT: Final = 10_000
MAX_QUERIES: Final = 20
# Tools of two servers that are this similar are duplicates.
DUPLICATE_SIMILARITY: Final = 0.9
# Whether a segment is covered depends on at least this many of the best hits, also on a short page.
_MIN_JUDGED_HITS: Final = 5
_MAX_NAMED_TOOLS: Final = 5

RANKERS: Final[Mapping[str, Ranker]] = MappingProxyType(
    {
        "hybrid": build_hybrid_ranker(DEFAULT_ENCODER),
        "fast": build_fast_ranker(DEFAULT_ENCODER.static_embedder),
        "lexical": LexicalRanker(),
        "dense": DenseRanker(DEFAULT_ENCODER),
        "regex": RegexRanker(),
        "fuzzy": FuzzyRanker(),
        "keyword": KeywordRanker(),
        "prefix": PrefixRanker(),
    }
)


class SearchEngine:
    """Searches one catalog. Each index is fitted on first use and reused by later catalogs.

    The catalog can also be a list of tools, functions and definitions in any wire format.
    """

    def __init__(self, catalog: Catalog | ToolSource, rankers: Mapping[str, Ranker] = RANKERS) -> None:
        if not rankers or not isinstance(rankers, Mapping) or not all(hasattr(one, "fit") for one in rankers.values()):
            raise InvalidConfig(
                "an engine needs rankers by mode, such as {'lexical': LexicalRanker()}; leave `rankers` out to have "
                "them all"
            )
        self.catalog = catalog if isinstance(catalog, Catalog) else read_catalog(catalog)
        self._rankers = dict(rankers)
        self._indexes: dict[str, Index] = {}
        # The first thread that needs an index fits it, and the others wait for it.
        self._locks = {mode: Lock() for mode in self._rankers}
        self._names: NameIndex | None = None
        self._facets: FacetIndex | None = None

    def __repr__(self) -> str:
        return f"SearchEngine({len(self.catalog)} tools, modes: {', '.join(self._rankers)})"

    @property
    def modes(self) -> tuple[str, ...]:
        """The search modes; the first is the default."""
        return tuple(self._rankers)

    def with_catalog(self, catalog: Catalog | ToolSource) -> SearchEngine:
        """Return an engine for a later catalog. It fits only what has changed."""
        later = SearchEngine(catalog, self._rankers)
        catalog = later.catalog
        # Copied first, as another thread may be fitting an index for another mode.
        indexes = list(self._indexes.items())
        later._indexes = {mode: index.with_catalog(catalog) for mode, index in indexes}
        later._names = self._names and self._names.with_catalog(catalog)
        later._facets = self._facets and self._facets.with_catalog(catalog)
        return later

    def warm_up(self, mode: str = "", max_tools: int = MAX_LIMIT) -> int:
        """Encode up to `max_tools` more tools of a large catalog; return how many are left.

        A small catalog is encoded when it is first searched. In a large one, a search encodes its best
        candidates and compares the others by provisional vectors, until `warm_up` has encoded all tools.
        Then searches are better and faster, and their results are `fully_encoded`.
        """
        if not isinstance(max_tools, int) or isinstance(max_tools, bool) or max_tools < 0:
            raise InvalidLimit(f"max_tools must be a whole number from 0, not {max_tools!r}")
        return warm_up_index(self._index(self._check_mode(mode)), max_tools)

    def search(
        self,
        query: str | list[str] | tuple[str, ...],
        *,
        limit: int = 5,
        offset: int = 0,
        mode: str = "",
        where: Where = NO_FILTER,
        allowed: AllowedTools | None = None,
    ) -> SearchResult:
        """Return the best `limit` tools for a query, of those that `where` and `allowed` let through.

        `allowed` is a set of ids, or a function that is called with each tool. An empty query pages
        through the catalog in its order. For several queries, the result has the best tools of
        each. It is confident if one of the hits on this page fits one of the queries.
        """
        _check_page(limit, offset)
        _check_where(where)
        rights = None if allowed is None else build_rights(allowed)
        mode = self._check_mode(mode)
        if isinstance(query, list | tuple):
            return self._search_all(query, limit, offset, mode, where, rights)
        return self._search_one(query, limit, offset, mode, where, rights)

    async def async_search(
        self,
        query: str | list[str] | tuple[str, ...],
        *,
        limit: int = 5,
        offset: int = 0,
        mode: str = "",
        where: Where = NO_FILTER,
        allowed: AllowedTools | None = None,
    ) -> SearchResult:
        """Do the same as `search` in a worker thread, so that the event loop is not blocked.

        `allowed` may be an async function, which is awaited on the caller's event loop.
        """
        # Imported here, because only a caller with an event loop needs asyncio.
        from toolcrib.core.worker_thread import run_in_thread

        return await run_in_thread(
            self.search, query, limit=limit, offset=offset, mode=mode, where=where, allowed=allowed
        )

    def with_reasons(self, result: SearchResult) -> SearchResult:
        """Return a result of this engine with the reasons for each of its hits."""
        self._check_result(result)
        parts = tuple(map(self.with_reasons, result.parts))
        if parts:
            before = (hit for part in result.parts for hit in part)
            after = (hit for part in parts for hit in part)
            explained = {id(old): new for old, new in zip(before, after, strict=True)}
            return replace(result, hits=tuple(explained[id(hit)] for hit in result), parts=parts)
        names = self._match_names(result.query, result.mode)
        hits = [
            Hit(
                hit.tool, hit.score, hit.slot, hit.confidence, self._reasons(result.query, result.mode, names, hit.slot)
            )
            for hit in result
        ]
        return replace(result, hits=tuple(hits))

    def group_hits(self, result: SearchResult) -> tuple[HitGroup, ...]:
        """Return the hits of a result of this engine, with duplicates on several servers grouped."""
        self._check_result(result)
        index = self._index(result.mode)
        if not isinstance(index, SimilarityIndex) or len(result) < 2:
            return tuple(map(HitGroup, result.hits))
        similarity = index.pairwise_similarity([hit.slot for hit in result])
        position = {id(hit): at for at, hit in enumerate(result)}

        def are_duplicates(hit: Hit, other: Hit) -> bool:
            is_similar = similarity[position[id(hit)], position[id(other)]] >= DUPLICATE_SIMILARITY
            # The encoded text includes the server's name, so equal tools may differ in similarity.
            return bool(is_similar) or hit.has_same_text(other)

        return group_hits(result.hits, are_duplicates)

    def explain(
        self,
        query: str,
        tool_id: str,
        *,
        limit: int = 5,
        mode: str = "",
        where: Where = NO_FILTER,
        allowed: AllowedTools | None = None,
    ) -> Explanation:
        """Return why a search finds a tool or does not.

        `tool_id` is the id of a tool, or its name if no other tool has it. Raises `UnknownTool` if
        the catalog does not have the tool, or if it is not allowed.
        """
        _check_page(limit, 0)
        _check_where(where)
        mode = self._check_mode(mode)
        is_allowed = None if allowed is None else build_rights(allowed).is_allowed
        slot, tool = self._find_by_name(tool_id, is_allowed)
        unmet = where.unmet_conditions(tool)
        if unmet:
            facets = ", ".join(f"{facet} {value!r}" if value else facet for facet, value in unmet)
            return Explanation(tool, False, None, 0.0, f"left out by the filter: {facets}")
        ranking, names = self._rank(query, mode, where, is_allowed)
        ranking = self._filter_facets(ranking, where, is_allowed)
        matches = self._best(ranking, is_allowed, len(ranking.slots))
        place = next((at for at, (found, _) in enumerate(matches) if found == slot), None)
        reasons = self._reasons(query, mode, names, slot)
        if place is None:
            others = map(self.catalog.tool_at, names.slots) if names and names.is_exclusive else ()
            verdict = _explain_mismatch(query, mode, reasons, [tool.id for tool in others if tool])
            return Explanation(tool, False, None, 0.0, verdict, reasons)
        verdict = f"returned: number {place + 1} of {len(matches)} that match"
        if place >= limit:
            last_slot, last_score = matches[limit - 1]
            last = self.catalog.tool_at(last_slot)
            verdict = (
                f"matches, but is number {place + 1} of {len(matches)}; the last of the {limit} "
                f"returned is {last.id if last else ''} with {round(last_score, 6):.3f}"
            )
        score = round(matches[place][1], 6)
        return Explanation(tool, place < limit, place + 1, score, verdict, reasons)

    def _search_one(
        self, query: str, limit: int, offset: int, mode: str, where: Where, rights: ToolRights | None
    ) -> SearchResult:
        is_allowed = None if rights is None else rights.is_allowed
        ranking, _ = self._rank(query, mode, where, is_allowed)
        has_filter = where is not NO_FILTER and where != NO_FILTER
        if has_filter:
            ranking = self._filter_facets(ranking, where, is_allowed)
        count = offset + limit + 1
        # Looking up a few ids is cheaper than checking tool after tool until enough are allowed.
        ids = None if rights is None else rights.ids
        if ids is not None and len(ids) ** 2 <= 16 * count * len(self.catalog):
            ranking = self._filter_ids(ranking, ids)
        best = self._best(ranking, is_allowed, max(count, _MIN_JUDGED_HITS))
        fits, uncovered = ranking.judge(best)
        found = best[:count]
        end = offset + limit
        hits = self._hits(found[offset:end], fits[offset:end], ranking.threshold)
        notes = ranking.notes_about([slot for slot, _ in found]) if ranking.notes else ()
        confidence = max([hit.confidence for hit in hits], default=0.0)
        has_more = len(found) > end
        return SearchResult(
            query, mode, hits, has_more, notes, confidence, uncovered=uncovered, fully_encoded=ranking.fully_encoded
        )

    def _search_all(
        self, queries: Sequence[str], limit: int, offset: int, mode: str, where: Where, rights: ToolRights | None
    ) -> SearchResult:
        """Search for each of several queries and merge the results."""
        if not 1 <= len(queries) <= MAX_QUERIES:
            raise InvalidQuery(f"search for 1 to {MAX_QUERIES} queries at once, not {len(queries)}")
        # Blank queries are dropped; if all are blank, the result is the whole catalog.
        texts = [query for query in queries if not self._is_empty(query, mode)] or queries[:1]
        parts = tuple(self._search_one(query, limit + offset, 0, mode, where, rights) for query in texts)
        # Round-robin: the best tool of each query, then the second of each, without repeating one.
        found = [(rank, hit) for part in parts for rank, hit in enumerate(part)]
        found.sort(key=lambda ranked: (ranked[0], -ranked[1].score, ranked[1].slot))
        hits: dict[int, Hit] = {}
        for _, hit in found:
            hits.setdefault(hit.slot, hit)
        page = tuple(hits.values())[offset : offset + limit]
        slots = {hit.slot for hit in page}
        confidences = [hit.confidence for _, hit in found if hit.slot in slots]
        return SearchResult(
            "\n".join(texts),
            mode,
            page,
            has_more=len(hits) > offset + limit or any(part.has_more for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            confidence=max(confidences, default=0.0),
            parts=parts,
            uncovered=find_uncovered(parts),
            fully_encoded=all(part.fully_encoded for part in parts),
        )

    def _check_mode(self, mode: str) -> str:
        if not mode:
            return next(iter(self._rankers))
        if not isinstance(mode, str) or mode not in self._rankers:
            raise InvalidQuery(f"no mode {mode!r}; the modes are {', '.join(self._rankers)}")
        return mode

    def _check_result(self, result: SearchResult) -> None:
        if not isinstance(result, SearchResult):
            raise InvalidConfig(f"pass a result of `search`, not {type(result).__name__}")
        if result.mode not in self._rankers or any(self.catalog.tool_at(hit.slot) != hit.tool for hit in result):
            raise InvalidConfig(
                "this result is of another engine or an earlier catalog; pass it to the engine that returned it, "
                "or search again"
            )

    def _rank(
        self, query: str, mode: str, where: Where, is_allowed: ToolPredicate | None
    ) -> tuple[Ranking, NameMatch | None]:
        """Rank every tool; also return which tools the query names, if any."""
        _check_query(query)
        if self._is_empty(query, mode):
            slots = self.catalog.occupied_mask.nonzero()[0]
            return Ranking(slots, np.ones(len(slots), np.float32)), None
        names = self._match_names(query, mode)
        if names is not None:
            # Rights are checked first: a name that the caller may not see is treated like other words.
            visible = [
                slot
                for slot in names.slots
                if any(not where.unmet_conditions(tool) for tool in self._allowed_tools([slot], is_allowed))
            ]
            names = NameMatch(visible, names.is_exclusive) if visible else None
        if names is not None and names.is_exclusive:
            slots = np.array(sorted(names.slots), np.int32)
            return Ranking(slots, np.ones(len(slots), np.float32)), names
        syntax = self._rankers[mode].syntax
        ranking = self._index(mode).rank(parse_query(query, syntax))
        if names is not None:
            return promote_names(ranking, names), names
        if syntax != "pattern" and not has_words(query) and query.strip() != "*":
            # Nothing can fit a letter or an emoji; the hits are only the nearest tools. `*` means all tools.
            ranking = ranking._replace(threshold=math.inf)
        return ranking, None

    def _match_names(self, query: str, mode: str) -> NameMatch | None:
        return None if self._rankers[mode].syntax == "pattern" else self._name_index.match_names(query)

    @property
    def _name_index(self) -> NameIndex:
        if self._names is None:
            self._names = NameIndex.fit(self.catalog)
        return self._names

    def _find_by_name(self, name: str, is_allowed: ToolPredicate | None) -> tuple[int, Tool]:
        """Return the slot and the tool of an id, or of the name of one tool."""
        if not isinstance(name, str):
            raise UnknownTool(f"a tool is given by its id, not by {type(name).__name__}")
        slot = self.catalog.slot(name)
        names = self._name_index.match_names(name) if slot is None else NameMatch([slot], True)
        found = [
            (slot, tool) for slot in (names.slots if names else ()) for tool in self._allowed_tools([slot], is_allowed)
        ]
        if not found:
            raise UnknownTool(f"no tool {name!r} in this catalog; `search` finds its name")
        if len(found) > 1:
            ids = ", ".join(tool.id for _, tool in found[:_MAX_NAMED_TOOLS])
            raise UnknownTool(f"{len(found)} tools are called {name!r}; use the id of one, such as {ids}")
        return found[0]

    def _is_empty(self, query: str, mode: str) -> bool:
        """Return whether this is the empty query. A blank is a valid pattern."""
        is_pattern = self._rankers[mode].syntax == "pattern"
        return isinstance(query, str) and not (query if is_pattern else query.strip())

    def _filter_facets(self, ranking: Ranking, where: Where, is_allowed: ToolPredicate | None) -> Ranking:
        if self._facets is None:
            self._facets = FacetIndex.fit(self.catalog)
        mask = self._facets.mask(where)
        found = ranking.filter_slots(mask[ranking.slots])
        # A filter that no allowed tool meets is probably misspelt.
        if not len(found.slots) and not any(self._allowed_tools(mask.nonzero()[0].tolist(), is_allowed)):
            found = found._replace(notes=(*found.notes, Note(where.no_match_note)))
        return found

    def _filter_ids(self, ranking: Ranking, ids: Set[str]) -> Ranking:
        mask = np.zeros(self.catalog.slot_count, np.bool_)
        slots = map(self.catalog.slot, ids)
        mask[[slot for slot in slots if slot is not None]] = True
        return ranking.filter_slots(mask[ranking.slots])

    def _allowed_tools(self, slots: Iterable[int], is_allowed: ToolPredicate | None) -> Iterator[Tool]:
        for slot in slots:
            tool = self.catalog.tool_at(slot)
            if tool is not None and (is_allowed is None or is_allowed(tool)):
                yield tool

    def _best(self, ranking: Ranking, is_allowed: ToolPredicate | None, count: int) -> list[Candidate]:
        """Return the best allowed slots with their scores; equal scores in catalog order."""
        if is_allowed is None:
            return ranking.top(count)
        wanted = 4 * count
        while True:
            best = ranking.top(wanted)
            allowed = [
                (slot, score)
                for slot, score in best
                if (tool := self.catalog.tool_at(slot)) is not None and is_allowed(tool)
            ]
            if len(allowed) >= count or len(best) < wanted:
                return allowed[:count]
            wanted *= 8

    def _hits(self, page: list[Candidate], fits: list[float], threshold: float) -> tuple[Hit, ...]:
        tool_at = self.catalog.tool_at
        return tuple(
            [
                Hit(tool, round(score, 6), slot, compute_confidence(fit - threshold))
                for (slot, score), fit in zip(page, fits, strict=True)
                if (tool := tool_at(slot)) is not None
            ]
        )

    def _reasons(self, query: str, mode: str, names: NameMatch | None, slot: int) -> tuple[MatchReason, ...]:
        if names is not None and slot in names.slots:
            return (MatchReason(query.strip(), "name", 1.0),)
        if self._is_empty(query, mode):
            return ()
        return self._index(mode).reasons(parse_query(query, self._rankers[mode].syntax), slot)

    def _index(self, mode: str) -> Index:
        index = self._indexes.get(mode)
        if index is None:
            with self._locks[mode]:
                index = self._indexes.get(mode)
                if index is None:
                    index = self._indexes[mode] = self._rankers[mode].fit(self.catalog)
        return index


def _check_query(query: str) -> None:
    if not isinstance(query, str):
        raise InvalidQuery(f"a query must be text, not {type(query).__name__}")
    if len(query) > MAX_QUERY_CHARS:
        raise QueryTooLong(
            f"the query has {len(query):,} characters; the limit is {MAX_QUERY_CHARS:,}; "
            "say what the tool should do in a sentence"
        )


def _check_page(limit: int, offset: int) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidLimit(f"limit must be a whole number from 1 to {MAX_LIMIT:,}, not {limit!r}")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise InvalidLimit(f"offset must be a whole number from 0, not {offset!r}")


def _check_where(where: Where) -> None:
    if not isinstance(where, Where):
        raise InvalidQuery(
            f"`where` must be a filter such as Where(server='mail'), not {type(where).__name__}; "
            "leave it out to search everywhere"
        )


def _explain_mismatch(query: str, mode: str, reasons: tuple[MatchReason, ...], named_ids: list[str]) -> str:
    if named_ids:
        return f"the query is the name of another tool: {', '.join(named_ids)}"
    terms = ", ".join(dict.fromkeys(reason.term for reason in reasons))
    contained = f", though it has {terms}" if terms else ""
    return f"does not match {query!r} in mode {mode}{contained}"
