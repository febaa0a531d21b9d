"""The search engine: rank, leave out what the asker may not see, cut, and say why."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Final

import numpy as np

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import InvalidConfig, InvalidLimit, InvalidQuery, QueryTooLong, UnknownTool
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.filters import NO_FILTER, FacetIndex, Where
from toolcrib.search.hybrid.fusion import build_fast_ranker, build_hybrid_ranker
from toolcrib.search.lexical.exact_name import NameIndex, NameMatch, promote_names
from toolcrib.search.lexical.fuzzy import FuzzyRanker
from toolcrib.search.lexical.keyword import KeywordRanker
from toolcrib.search.lexical.prefix import PrefixRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import (
    Index,
    MatchReason,
    Note,
    Ranker,
    Ranking,
    SimilarityIndex,
    warm_up_index,
)
from toolcrib.search.regex import RegexRanker
from toolcrib.search.results import (
    Explanation,
    Hit,
    HitGroup,
    SearchResult,
    find_uncovered,
    group_hits,
)

MAX_QUERY_CHARS: Final = 4_000
MAX_LIMIT: Final = 10_000
MAX_QUERIES: Final = 20
# Tools of two servers that are this alike do the same.
DUPLICATE_SIMILARITY: Final = 0.9
# As many hits at the top are scored exactly by every ranker, if nothing is filtered.
_SCORED_EXACTLY: Final = 32
# A page may be shorter: whether a need is served is told by the best hits, so many at least.
_FEWEST_JUDGED: Final = 5
# How fast confidence grows around the floor: at the floor itself it is one half.
_CONFIDENCE_SLOPE: Final = 20

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
ToolPredicate = Callable[[Tool], bool]
AllowedTools = ToolPredicate | Collection[str]
_Rights = ToolPredicate | Set[str]
_Sure = Callable[[Set[int]], float]


class SearchEngine:
    """Searches one catalog. Each index is fitted once, when first needed; successors build on it."""

    def __init__(self, catalog: Catalog, rankers: Mapping[str, Ranker] = RANKERS) -> None:
        if not rankers:
            raise InvalidConfig("an engine needs a ranker; leave `rankers` out to have them all")
        self.catalog = catalog
        self._rankers = dict(rankers)
        self._indexes: dict[str, Index] = {}
        self._names: NameIndex | None = None
        self._facets: FacetIndex | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways to search, the first of which is the default."""
        return tuple(self._rankers)

    def with_catalog(self, catalog: Catalog) -> SearchEngine:
        """An engine for a later catalog, which fits only what has changed."""
        later = SearchEngine(catalog, self._rankers)
        # Copied first: another thread may be fitting an index to search in a mode of its own.
        indexes = list(self._indexes.items())
        later._indexes = {mode: index.with_catalog(catalog) for mode, index in indexes}
        later._names = self._names and self._names.with_catalog(catalog)
        later._facets = self._facets and self._facets.with_catalog(catalog)
        return later

    def warm_up(self, mode: str = "", max_tools: int = MAX_LIMIT) -> int:
        """Read up to so many tools that this mode has only sketched; say how many are left.

        Searching works without it, and reads what it finds promising. Settling ahead makes the
        first searches as good and as fast as the later ones.
        """
        return warm_up_index(self._index(self._known_mode(mode)), max_tools)

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
        """The best `limit` tools for a query, of those that `where` and `allowed` let through.

        `allowed` is a set of ids or a question to ask of each tool. An empty query pages through
        the catalog in its order. Several queries are several needs: the result has the best tools
        of each. It is confident if one of the hits on this page fits, and one need is enough.
        """
        _check_page(limit, offset)
        _check_where(where)
        allowed = None if allowed is None else _rights(allowed)
        mode = self._known_mode(mode)
        if isinstance(query, list | tuple):
            return self._search_all(query, limit, offset, mode, where, allowed)
        return self._search_one(query, limit, offset, mode, where, allowed)[0]

    def group_hits(self, result: SearchResult) -> tuple[HitGroup, ...]:
        """The hits of a result of this engine, those that do the same on several servers together."""
        index = self._index(result.mode)
        if not isinstance(index, SimilarityIndex) or len(result) < 2:
            return tuple(map(HitGroup, result.hits))
        alike = index.pairwise_similarity([hit.slot for hit in result])
        place = {id(hit): at for at, hit in enumerate(result)}

        def are_twins(one: Hit, other: Hit) -> bool:
            # The names of their servers, which are part of the meaning, may tell them apart.
            is_alike = bool(alike[place[id(one)], place[id(other)]] >= DUPLICATE_SIMILARITY)
            return is_alike or one.has_same_text(other)

        return group_hits(result.hits, are_twins)

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
        """Why a search returns a tool or does not. A tool that is not allowed is not known either."""
        _check_page(limit, 0)
        _check_where(where)
        mode = self._known_mode(mode)
        slot = self.catalog.slot(tool_id) if isinstance(tool_id, str) else None
        tool = None if slot is None else self.catalog.tool_at(slot)
        accepts = None if allowed is None else _accepting(_rights(allowed))
        if slot is None or tool is None or (accepts and not accepts(tool)):
            raise UnknownTool(f"no tool {tool_id!r} in this catalog; `search` finds its name")
        unmet = where.unmet_conditions(tool)
        if unmet:
            asked = ", ".join(f"{facet} {value!r}" if value else facet for facet, value in unmet)
            return Explanation(tool, False, None, 0.0, f"left out by the filter: {asked}")
        ranking, named = self._ranked(query, mode, where, accepts)
        ranking = self._filtered(ranking, where, accepts)
        if ranking.closer:
            ranking, accepts = self._closer(ranking, accepts, len(ranking.slots)), None
        matches = self._best(ranking, accepts, len(ranking.slots))
        place = next((at for at, (found, _) in enumerate(matches) if found == slot), None)
        if place is None:
            reasons = self._reasons(query, mode, named, slot)
            others = map(self.catalog.tool_at, named.slots) if named and named.is_exclusive else ()
            verdict = _why_unmatched(query, mode, reasons, [other.id for other in others if other])
            return Explanation(tool, False, None, 0.0, verdict, reasons)
        verdict = f"returned: number {place + 1} of {len(matches)} that match"
        if place >= limit:
            (last,) = self._hits(matches[limit - 1 : limit], query, mode, named)
            verdict = (
                f"matches, but is number {place + 1} of {len(matches)}; "
                f"the last of the {limit} returned is {last.tool.id} with {last.score:.3f}"
            )
        (hit,) = self._hits(matches[place : place + 1], query, mode, named)
        return Explanation(tool, place < limit, place + 1, hit.score, verdict, hit.reasons)

    def _search_one(
        self,
        query: str,
        limit: int,
        offset: int,
        mode: str,
        where: Where,
        allowed: _Rights | None,
    ) -> tuple[SearchResult, _Sure]:
        """The hits, and how sure it is of those of them that are in some slots."""
        accepts = None if allowed is None else _accepting(allowed)
        ranking, named = self._ranked(query, mode, where, accepts)
        has_facets = where is not NO_FILTER and where != NO_FILTER
        if has_facets:
            ranking = self._filtered(ranking, where, accepts)
        count = offset + limit + 1
        # Looking up a few ids is cheaper than asking of tool after tool until enough are allowed.
        if isinstance(allowed, Set) and len(allowed) ** 2 <= 16 * count * len(self.catalog):
            ranking = self._of_these(ranking, allowed)
        is_filtered = has_facets or accepts is not None
        if ranking.closer and (is_filtered or count > _SCORED_EXACTLY):
            ranking, accepts = self._closer(ranking, accepts, count), None
        best = self._best(ranking, accepts, max(count, _FEWEST_JUDGED))
        chosen = best[:count]
        page = chosen[offset : offset + limit]
        hits = self._hits(page, query, mode, named)
        notes = _notes(ranking, [slot for slot, _ in chosen]) if ranking.notes else ()
        more = len(chosen) > offset + limit
        sure = partial(_confidence, ranking, page)
        needs = ranking.uncovered_segments(best)
        return SearchResult(query, mode, hits, more, notes, sure(), uncovered=needs), sure

    def _search_all(
        self,
        queries: Sequence[str],
        limit: int,
        offset: int,
        mode: str,
        where: Where,
        allowed: _Rights | None,
    ) -> SearchResult:
        """The tools that cover several needs, each asked for by itself."""
        if not 1 <= len(queries) <= MAX_QUERIES:
            raise InvalidQuery(f"ask for 1 to {MAX_QUERIES} needs at once, not {len(queries)}")
        # A blank is no need; but nothing but blanks is what one blank is: the whole catalog.
        asked = [query for query in queries if not self._asks_nothing(query, mode)] or queries[:1]
        found_for = [
            self._search_one(query, limit + offset, 0, mode, where, allowed) for query in asked
        ]
        parts = tuple(part for part, _ in found_for)
        # In rounds: the best tool of each need, then the second of each, a tool in its first round.
        found = [(place, hit) for part in parts for place, hit in enumerate(part)]
        found.sort(key=lambda one: (one[0], -one[1].score, one[1].slot))
        hits: dict[int, Hit] = {}
        for _, hit in found:
            hits.setdefault(hit.slot, hit)
        page = tuple(hits.values())[offset : offset + limit]
        shown = {hit.slot for hit in page}
        return SearchResult(
            "\n".join(asked),
            mode,
            page,
            has_more=len(hits) > offset + limit or any(part.has_more for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            confidence=max(sure(shown) for _, sure in found_for),
            parts=parts,
            uncovered=find_uncovered(parts),
        )

    def _known_mode(self, mode: str) -> str:
        if not mode:
            return next(iter(self._rankers))
        if not isinstance(mode, str) or mode not in self._rankers:
            raise InvalidQuery(f"no mode {mode!r}; the modes are {', '.join(self._rankers)}")
        return mode

    def _ranked(
        self, query: str, mode: str, where: Where, accepts: ToolPredicate | None
    ) -> tuple[Ranking, NameMatch | None]:
        if not isinstance(query, str):
            raise InvalidQuery(f"a query must be text, not {type(query).__name__}")
        if len(query) > MAX_QUERY_CHARS:
            raise QueryTooLong(
                f"the query has {len(query):,} characters; the limit is {MAX_QUERY_CHARS:,}; "
                "say what the tool should do in a sentence"
            )
        if self._asks_nothing(query, mode):
            return self._everything(), None
        named = (
            self._name_index().match_names(query)
            if self._rankers[mode].prefers_exact_names
            else None
        )
        if named is not None:
            # Names come after rights: to one who may not see a tool, its name is just words.
            may_see = [
                slot
                for slot in named.slots
                if any(not where.unmet_conditions(tool) for tool in self._accepted([slot], accepts))
            ]
            named = NameMatch(may_see, named.is_exclusive) if may_see else None
        if named is None:
            return self._index(mode).rank(query), None
        if named.is_exclusive:
            slots = np.array(sorted(named.slots), np.int32)
            return Ranking(slots, np.ones(len(slots), np.float32)), named
        return promote_names(self._index(mode).rank(query), named), named

    def _asks_nothing(self, query: str, mode: str) -> bool:
        """Whether this is the empty query. A blank is a pattern, but no question in words."""
        return isinstance(query, str) and not (
            query.strip() if self._rankers[mode].prefers_exact_names else query
        )

    def _everything(self) -> Ranking:
        slots = self.catalog.occupied_mask.nonzero()[0]
        return Ranking(slots, np.ones(len(slots), np.float32))

    def _filtered(self, ranking: Ranking, where: Where, accepts: ToolPredicate | None) -> Ranking:
        mask = self._facet_index().mask(where)
        found = ranking.filter_slots(mask[ranking.slots])
        # A filter that fits no tool is probably misspelt. To one who may see none of the tools it
        # fits, it fits none.
        if not len(found.slots) and not any(self._accepted(mask.nonzero()[0].tolist(), accepts)):
            found = found._replace(notes=(*found.notes, Note(where.no_match_note)))
        return found

    def _of_these(self, ranking: Ranking, ids: Set[str]) -> Ranking:
        """What is left of a ranking if only these may be seen."""
        mask = np.zeros(self.catalog.slot_count, np.bool_)
        slots = map(self.catalog.slot, ids)
        mask[[slot for slot in slots if slot is not None]] = True
        return ranking.filter_slots(mask[ranking.slots])

    def _accepted(self, slots: Iterable[int], accepts: ToolPredicate | None) -> Iterator[Tool]:
        for slot in slots:
            tool = self.catalog.tool_at(slot)
            if tool is not None and (accepts is None or accepts(tool)):
                yield tool

    def _best(
        self, ranking: Ranking, accepts: ToolPredicate | None, count: int
    ) -> list[tuple[int, float]]:
        """The best slots that are accepted, with their scores; equal scores in catalog order."""
        if accepts is None:
            return _top(ranking, count)
        wanted = 4 * count
        while True:
            best = _top(ranking, wanted)
            accepted = [
                (slot, score)
                for slot, score in best
                if (tool := self.catalog.tool_at(slot)) is not None and accepts(tool)
            ]
            if len(accepted) >= count or len(best) < wanted:
                return accepted[:count]
            wanted *= 8

    def _closer(self, ranking: Ranking, accepts: ToolPredicate | None, count: int) -> Ranking:
        """The ranking of what may be chosen, all of it scored exactly.

        Which tools are scored exactly is decided before it is known what the asker may see. So the
        best of what he may see are looked at again, and some more that may overtake them.
        """
        assert ranking.closer is not None, "asked for only where there is one"
        near = self._best(ranking, accepts, 2 * count + _SCORED_EXACTLY)
        return ranking.closer(np.array(sorted(slot for slot, _ in near), np.intp))

    def _hits(
        self, chosen: list[tuple[int, float]], query: str, mode: str, named: NameMatch | None
    ) -> tuple[Hit, ...]:
        reasons = partial(self._reasons, query, mode, named)
        at = self.catalog.tool_at
        return tuple(
            [
                Hit(tool, round(score, 6), slot, reasons)
                for slot, score in chosen
                if (tool := at(slot)) is not None
            ]
        )

    def _reasons(
        self, query: str, mode: str, named: NameMatch | None, slot: int
    ) -> tuple[MatchReason, ...]:
        if named is not None and slot in named.slots:
            return (MatchReason(query.strip(), "name", 1.0),)
        if self._asks_nothing(query, mode):
            return ()
        return self._index(mode).reasons(query, slot)

    def _index(self, mode: str) -> Index:
        index = self._indexes.get(mode)
        if index is None:
            index = self._indexes[mode] = self._rankers[mode].fit(self.catalog)
        return index

    def _name_index(self) -> NameIndex:
        if self._names is None:
            self._names = NameIndex.fit(self.catalog)
        return self._names

    def _facet_index(self) -> FacetIndex:
        if self._facets is None:
            self._facets = FacetIndex.fit(self.catalog)
        return self._facets


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


def _notes(ranking: Ranking, chosen: list[int]) -> tuple[str, ...]:
    """The notes that are about nobody, or about a tool that was chosen: others would give away
    tools that the asker may not see."""
    return tuple(
        note.text
        for note in ranking.notes
        if note.slots is None or np.isin(note.slots, chosen).any()
    )


def _confidence(
    ranking: Ranking, page: list[tuple[int, float]], among: Set[int] | None = None
) -> float:
    """How sure it is of the hits on a page, or of those of them that are in some slots."""
    if among is not None:
        page = [one for one in page if one[0] in among]
    if not page:
        return 0.0
    # That of the hit which fits best: the order looks at more than at what fits.
    margin = ranking.margin(page)
    return round(1 / (1 + math.exp(-_CONFIDENCE_SLOPE * margin)), 6)


def _rights(allowed: AllowedTools) -> _Rights:
    if callable(allowed) or isinstance(allowed, Set):
        return allowed
    try:
        return frozenset([allowed] if isinstance(allowed, str) else allowed)
    except TypeError:
        raise InvalidQuery(
            "`allowed` must be the ids of tools, or a function that is asked about each tool, "
            f"not {type(allowed).__name__}"
        ) from None


def _accepting(allowed: _Rights) -> ToolPredicate:
    if callable(allowed):
        return allowed
    ids = allowed
    return lambda tool: tool.id in ids


def _why_unmatched(
    query: str, mode: str, reasons: tuple[MatchReason, ...], named: list[str]
) -> str:
    if named:
        return f"the query is the name of another tool: {', '.join(named)}"
    has = ", ".join(dict.fromkeys(reason.term for reason in reasons))
    return f"does not match {query!r} in mode {mode}" + (f", though it has {has}" if has else "")


def _top(ranking: Ranking, count: int) -> list[tuple[int, float]]:
    slots, scores = ranking.slots, ranking.scores
    # Sorting a few beats sorting all: first find a score that those at the top reach. That of the
    # last of as many among every 16th is one, as there are at least as many above it in all.
    for step, many in ((16, 256), (1, 4)):
        if len(scores) > many * count:
            sample = scores[::step].copy()
            sample.partition(len(sample) - count)
            kept = (scores >= sample[len(sample) - count]).nonzero()[0]
            slots, scores = slots.take(kept), scores.take(kept)
    best = list(zip(slots.tolist(), scores.tolist(), strict=True))
    # Slots ascend and the sort is stable, so equal scores stay in catalog order.
    best.sort(key=itemgetter(1), reverse=True)
    return best[:count]
