from __future__ import annotations

from toolcrib import Tool
from toolcrib.evaluation.eval_set import MAX_NAMESAKES, build_pool

OWN = [Tool("search", "Search the web for pages."), Tool("read", "Read a page.", id="pool-2")]


def test_duplicates_are_left_out_but_not_other_namesakes() -> None:
    foreign = [
        Tool("Search", "Search the web, for pages or images.", server="other"),
        Tool("search", "Look up a customer in the ledger.", server="crm"),
        Tool("find", "Search the web for pages.", server="other"),
        Tool("find", "Search the web for all pages.", server="third"),
    ]
    pool = build_pool(OWN, foreign)
    assert list(pool.tools) == [*OWN, foreign[1], foreign[2]]
    assert (pool.added_count, pool.duplicate_count) == (2, 2)


def test_tools_without_descriptions_are_duplicates_only_of_each_other() -> None:
    foreign = [Tool("search", server="a"), Tool("search", server="b")]
    pool = build_pool(OWN, foreign)
    assert list(pool.tools) == [*OWN, foreign[0]]


def test_foreign_tool_with_a_taken_id_gets_a_new_one() -> None:
    pool = build_pool(OWN, [Tool("jump", "Up."), Tool("search", "Find a customer's ledger.")])
    assert [tool.id for tool in pool.tools] == ["search", "pool-2", "jump", "pool-2'"]
    assert pool.tools[-1].name == "search"


def test_pool_without_foreign_tools() -> None:
    pool = build_pool(OWN, [])
    assert (list(pool.tools), pool.added_count, pool.duplicate_count) == (OWN, 0, 0)


def test_comparisons_per_name_are_limited() -> None:
    foreign = [Tool("a", f"word{number}", server=f"s{number}") for number in range(1_000)]
    pool = build_pool([], [*foreign, Tool("a", f"word{MAX_NAMESAKES - 1}", server="late")])
    assert (pool.added_count, pool.duplicate_count) == (1_000, 1)
