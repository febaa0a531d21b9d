from __future__ import annotations

from toolcrib.search.feedback.experience import Use
from toolcrib.search.feedback.trail import MAX_COUNTED, MAX_RETURNED, MAX_SEARCHES, Trail


def test_a_call_counts_for_the_latest_search_that_returned_the_tool() -> None:
    trail = Trail().searched("first", ["a", "b"]).searched("second", ["b", "c"])
    _, use = trail.called("b")
    assert use == Use("second", "b")
    _, use = trail.called("a", succeeded=False)
    assert use == Use("first", "a", succeeded=False)


def test_a_call_to_a_tool_that_no_search_returned_is_no_evidence() -> None:
    trail = Trail().searched("first", ["a"])
    assert trail.called("b") == (trail, None)
    assert Trail().called("a") == (Trail(), None)


def test_a_repeated_call_counts_once_and_a_success_after_failures_counts() -> None:
    trail = Trail().searched("first", ["a"])
    found = []
    for succeeded in (False, False, True, True, True):
        trail, use = trail.called("a", succeeded)
        found.append(use)
    assert found == [Use("first", "a", False), None, Use("first", "a"), None, None]


def test_a_search_and_call_that_are_repeated_count_once_in_a_conversation() -> None:
    trail, found = Trail(), []
    # The last says the same in other words: what they teach is the same.
    asked = ["pay the bill", "pay the bill", "other words", "pay the bill", "Bills: to pay"]
    for query in asked:
        trail = trail.searched(query, ["a", "b"])
        for succeeded in (True, False, True):
            trail, use = trail.called("a", succeeded)
            found.append(use)
    assert [use for use in found if use] == [
        Use(query, "a", succeeded)
        for query in ("pay the bill", "other words")
        for succeeded in (True, False)
    ]
    assert trail.called("b")[1] == Use("Bills: to pay", "b")


def test_what_was_counted_is_remembered_within_a_bound() -> None:
    trail = Trail().searched("first", ["\ud800"])
    trail, use = trail.called("\ud800")
    assert use
    for number in range(MAX_COUNTED - 1):
        word = f"w{chr(97 + number // 26)}{chr(97 + number % 26)}k"
        trail, use = trail.searched(word, "a").called("a")
        assert use
    again = trail.searched("first", ["\ud800"])
    assert again.called("\ud800")[1] is None
    trail, use = trail.searched("one more", "a").called("a")
    assert use
    assert trail.searched("first", ["\ud800"]).called("\ud800")[1] == Use("first", "\ud800")
    assert len(trail._counted) == MAX_COUNTED


def test_tools_that_one_search_led_to_share_its_weight() -> None:
    trail = Trail().searched("all of it", "abc")
    weights = []
    for tool_id in "abc":
        trail, use = trail.called(tool_id)
        assert use
        weights.append(use.weight)
    assert weights == [1, 1 / 2, 1 / 3]


def test_a_trail_does_not_change() -> None:
    trail = Trail().searched("first", ["a"])
    later, _ = trail.called("a")
    assert later != trail
    assert trail.called("a")[1] == Use("first", "a")


def test_only_the_latest_searches_and_their_first_tools_are_remembered() -> None:
    trail = Trail()
    for number in range(MAX_SEARCHES + 1):
        trail = trail.searched(f"search {number}", [f"tool{number}"])
    assert trail.called("tool0")[1] is None
    assert trail.called("tool1")[1] == Use("search 1", "tool1")
    trail = Trail().searched("many", map(str, range(MAX_RETURNED + 1)))
    assert trail.called(str(MAX_RETURNED - 1))[1]
    assert trail.called(str(MAX_RETURNED))[1] is None
