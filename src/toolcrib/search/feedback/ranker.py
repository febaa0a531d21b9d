"""Any ranker, with what use has taught added to its scores: bounded, and never taken from any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidConfig
from toolcrib.search.feedback.experience import Teacher
from toolcrib.search.query.parser import has_operators
from toolcrib.search.ranker import (
    Index,
    Ranker,
    Ranking,
    Reason,
    Scores,
    Slots,
    likeness,
    settled,
)

# The most that use adds to a score, if nothing else is said, and the most that may be said.
BOOST: Final = 0.15
MAX_BOOST: Final = 0.5
# The support from which a tool is shown that the ranker itself did not find.
LIFTING_SUPPORT: Final = 0.25

# How far below fitting such a tool stays.
SHORT_OF_FITTING: Final = 0.05
# Of the tools that use speaks for, only so many rise: whatever was claimed, the best of the ranker
# is never further down than behind these.
MOST_RAISED: Final = 3

FIELD: Final = "use"


@dataclass(frozen=True, slots=True)
class Experienced:
    """A ranker whose scores grow where tools have served before.

    A score grows by at most `boost`, and by less the nearer it is to 1, which it never reaches by
    use: a tool asked for by its name stays first. No score falls, and only the few tools grow that
    most says something for. Without evidence for any word of a query its ranking is the ranker's
    own, to the bit.
    """

    ranker: Ranker
    experience: Teacher
    boost: float = BOOST

    def __post_init__(self) -> None:
        if not isinstance(self.boost, int | float) or not 0 <= self.boost <= MAX_BOOST:
            raise InvalidConfig(
                f"boost must be from 0 (learn nothing) to {MAX_BOOST}, not {self.boost!r}"
            )

    @property
    def names_win(self) -> bool:
        """As with the ranker itself."""
        return self.ranker.names_win

    def fit(self, catalog: Catalog) -> ExperiencedIndex:
        """Fit to a catalog. What is learned later counts without fitting anew."""
        return ExperiencedIndex(self, catalog, self.ranker.fit(catalog))


@dataclass(frozen=True, slots=True, eq=False)
class ExperiencedIndex:
    """An experienced ranker fitted to one catalog."""

    _ranker: Experienced
    _catalog: Catalog
    _index: Index

    def rank(self, query: str) -> Ranking:
        """What the ranker finds, and tools that the words of the query have often led to."""
        ranking = self._index.rank(query)
        support = self._support(query) if self._ranker.boost else {}
        return self._raised(query, ranking, support) if support else ranking

    def _raised(self, query: str, ranking: Ranking, support: dict[int, float]) -> Ranking:
        """A ranking, and what use adds to it."""
        closer = ranking.closer and partial(self._closer, query, ranking.closer, support)
        slots = np.array(sorted(support), ranking.slots.dtype)
        boosts = self._ranker.boost * np.array([support[slot] for slot in slots.tolist()])
        places = ranking.slots.searchsorted(slots)
        found = places < len(ranking.slots)
        found[found] = ranking.slots[places[found]] == slots[found]
        fits = partial(_fitting, ranking)
        scores = ranking.scores.copy()
        places = places[found]
        scores[places] = _boosted(scores[places], boosts[found])
        lifted = ~found & (boosts >= LIFTING_SUPPORT * self._ranker.boost)
        if not lifted.any() or not self._may_lift(query):
            return ranking._replace(scores=scores, fits=fits, closer=closer)
        slots = np.concatenate((ranking.slots, slots[lifted]))
        scores = np.concatenate((scores, boosts[lifted].astype(scores.dtype)))
        order = slots.argsort()
        return ranking._replace(slots=slots[order], scores=scores[order], fits=fits, closer=closer)

    def _closer(
        self,
        query: str,
        closer: Callable[[Slots], Ranking],
        support: dict[int, float],
        among: Slots,
    ) -> Ranking:
        """The same of some slots alone, which are compared exactly."""
        kept = frozenset(among.tolist())
        left = {slot: each for slot, each in support.items() if slot in kept}
        return self._raised(query, closer(among), left)

    def reasons(self, query: str, slot: int) -> tuple[Reason, ...]:
        """The ranker's reasons, and the words that led to the tool before, as the field "use"."""
        reasons = self._index.reasons(query, slot)
        tool = self._catalog.at(slot)
        words = self._ranker.experience.words_for(query, tool.id) if tool else {}
        if not words:
            return reasons
        own = self._score(self._index.rank(query), slot)
        score = self._score(self.rank(query), slot)
        if not score > own:
            return reasons
        learned = 1 - own / score
        support = sum(words.values())
        used = [Reason(word, FIELD, learned * share / support) for word, share in words.items()]
        told = [Reason(one.term, one.field, (1 - learned) * one.share) for one in reasons]
        shown = sorted(told + used, key=lambda one: -one.share)
        return tuple(Reason(one.term, one.field, round(one.share, 4)) for one in shown)

    def settle(self, most: int) -> int:
        """Do what the ranker can do ahead."""
        return settled(self._index, most)

    def alike(self, slots: list[int]) -> NDArray[np.float32]:
        """How alike tools are, as far as the ranker can tell."""
        return likeness(self._index, slots)

    def updated(self, catalog: Catalog) -> ExperiencedIndex:
        """This index brought to a later catalog."""
        return ExperiencedIndex(self._ranker, catalog, self._index.updated(catalog))

    def _support(self, query: str) -> dict[int, float]:
        """The slots of the tools that most says something for; of equals the first in the catalog."""
        said = self._ranker.experience.support(query)
        best: list[tuple[float, int]] = []
        for tool_id in sorted(said, key=said.__getitem__, reverse=True):
            if len(best) >= MOST_RAISED and -said[tool_id] > best[MOST_RAISED - 1][0]:
                break
            slot = self._catalog.slot(tool_id)
            if slot is not None:
                best.append((-said[tool_id], slot))
        return {slot: -share for share, slot in sorted(best)[:MOST_RAISED]}

    def _may_lift(self, query: str) -> bool:
        """Whether a query leaves open what may be found: operators and patterns do not."""
        return self._ranker.names_win and not has_operators(query)

    def _score(self, ranking: Ranking, slot: int) -> float:
        return float(ranking.scores[ranking.slots == slot].sum())


def _fitting(ranking: Ranking, slots: list[int]) -> list[float]:
    """How well tools fit, which is for the ranker to say: what was learned alone never claims to."""
    asked = np.array(slots, ranking.slots.dtype)
    found = asked[np.isin(asked, ranking.slots)]
    # By its own scores, if it has no better measure.
    told = (
        ranking.fits(found.tolist())
        if ranking.fits
        else ranking.scores[ranking.slots.searchsorted(found)].tolist()
    )
    by_slot = dict(zip(found.tolist(), told, strict=True))
    return [by_slot.get(slot, ranking.floor - SHORT_OF_FITTING) for slot in slots]


def _boosted(scores: Scores, boosts: Scores) -> Scores:
    """Scores brought nearer to 1: those that are high have little left to learn."""
    return scores + boosts * np.maximum(1 - scores, 0)
