from __future__ import annotations

import itertools

import pytest

from toolcrib import Catalog, Tool
from toolcrib.errors import InvalidPattern, SearchTimeout
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import MatchReason
from toolcrib.search.regex.ranker import RegexIndex, RegexRanker

# What is found does not hang on how soon: a collector may take its time in between.
PATIENT = RegexRanker(budget_seconds=60)


def _found(index: RegexIndex, pattern: str) -> list[int]:
    slots: list[int] = index.rank(ParsedQuery(pattern)).slots.tolist()
    return slots


@pytest.mark.parametrize(
    ("pattern", "slots"),
    [
        ("^send_", [0, 2]),
        ("^mail___", [0, 1]),
        ("[Ii]nvoice", [3, 4]),
        ("(?i)github.*repo", [7]),
        ("New issue", [7]),
        ("^amount$", [3]),
        ("Who pays", [3]),
        (r"(\w)\1", [0, 2, 4, 7, 8]),
        ("send_(?=mess)", [2]),
        ("翻", [10]),
        ("nothing like it", []),
    ],
)
def test_a_pattern_is_looked_for_in_each_text_by_itself(
    office: Catalog, pattern: str, slots: list[int]
) -> None:
    found = _found(PATIENT.fit(office), pattern)
    assert [slot for slot in slots if slot in found] == slots
    if pattern != r"(\w)\1":
        assert found == slots


def test_case_matters_unless_asked_otherwise(office: Catalog) -> None:
    assert _found(PATIENT.fit(office), "SEND_EMAIL") == []
    assert _found(RegexRanker(ignore_case=True, budget_seconds=60).fit(office), "SEND_EMAIL") == [0]


def test_a_hit_in_the_name_counts_more_than_one_elsewhere(office: Catalog) -> None:
    index = PATIENT.fit(office)
    ranking = index.rank(ParsedQuery("refund|customer"))
    scores = dict(zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True))
    assert scores == pytest.approx({5: 1.0, 3: 0.6, 9: 0.6})
    assert index.reasons(ParsedQuery("customer"), 3) == (
        MatchReason("customer", "description", 0.5455),
        MatchReason("customer", "parameter", 0.4545),
    )
    assert index.reasons(ParsedQuery("customer"), 0) == ()


def test_the_values_a_parameter_may_take_are_searched() -> None:
    tool = Tool("a", "", {"properties": {"unit": {"enum": ["celsius"]}}})
    assert _found(PATIENT.fit(Catalog([tool])), "celsius") == [0]


def test_a_bad_pattern_says_so_instead_of_finding_nothing(office: Catalog) -> None:
    with pytest.raises(InvalidPattern, match="character 5"):
        PATIENT.fit(office).rank(ParsedQuery("send("))


def test_a_search_over_budget_has_a_name(office: Catalog) -> None:
    ticks = itertools.count()
    index = RegexRanker(clock=lambda: float(next(ticks))).fit(office)
    with pytest.raises(SearchTimeout, match="within 50 ms"):
        index.rank(ParsedQuery("a"))


def test_a_longer_list_of_changes_is_fitted_anew() -> None:
    catalog = Catalog([Tool("a")])
    index = PATIENT.fit(catalog)
    catalog = catalog.with_tools([Tool(f"t{number}") for number in range(300)])
    assert _found(index.with_catalog(catalog), "t299$") == [300]
