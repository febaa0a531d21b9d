from __future__ import annotations

from typing import Any

import pytest

from toolcrib import Catalog, Tool, Where
from toolcrib.errors import InvalidQuery
from toolcrib.search.filters import FacetIndex


@pytest.mark.parametrize(
    ("where", "slots"),
    [
        (Where(), list(range(12))),
        (Where(server="mail"), [0, 1]),
        (Where(server="MAIL"), [0, 1]),
        (Where(category="money"), [3, 4, 5]),
        (Where(tags=("message",)), [0, 1, 2]),
        (Where(tags=("message", "inbox")), [1]),
        (Where(read_only=True), [1, 4, 6, 8]),
        (Where(server="books", read_only=True), [4]),
        (Where(server="nobody"), []),
    ],
)
def test_filter_selects_tools_that_meet_every_condition(office: Catalog, where: Where, slots: list[int]) -> None:
    assert FacetIndex.fit(office).mask(where).nonzero()[0].tolist() == slots
    for slot, tool in enumerate(office):
        assert (not where.unmet_conditions(tool)) == (slot in slots)


@pytest.mark.parametrize("tags", ["inbox", ["inbox"], iter(["inbox"])])
def test_tags_of_a_filter_may_be_one_text_or_any_texts(office: Catalog, tags: Any) -> None:
    assert FacetIndex.fit(office).mask(Where(tags=tags)).nonzero()[0].tolist() == [1]


@pytest.mark.parametrize("tags", [None, 5, [5], [None]])
def test_tags_of_another_type_are_rejected(tags: Any) -> None:
    with pytest.raises(InvalidQuery, match="tags must be text"):
        Where(tags=tags)


def test_filter_follows_later_catalogs(office: Catalog) -> None:
    later = office.without(["mail___send_email"]).with_tools([Tool("x", server="mail")])
    where = Where(server="mail")
    updated = FacetIndex.fit(office).with_catalog(later)
    assert updated.mask(where).nonzero()[0].tolist() == [1, 12]
    assert FacetIndex.fit(later).mask(where).nonzero()[0].tolist() == [1, 12]
    assert updated.with_catalog(office).mask(where).nonzero()[0].tolist() == [0, 1]
    assert FacetIndex.fit(later).with_catalog(office).mask(where).nonzero()[0].tolist() == [0, 1]


def test_many_changes_or_an_unrelated_catalog_cause_a_new_fit(office: Catalog) -> None:
    index = FacetIndex.fit(office)
    many = office.with_tools([Tool(f"t{number}", server="mail") for number in range(300)])
    assert index.with_catalog(many).mask(Where(server="mail")).sum() == 302
    other = Catalog([Tool("x", server="mail")])
    assert index.with_catalog(other).mask(Where(server="mail")).tolist() == [True]
