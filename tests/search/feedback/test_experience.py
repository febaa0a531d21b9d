from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import InvalidConfig, InvalidEvidence
from toolcrib.search.feedback import experience as module
from toolcrib.search.feedback.experience import Experience, MemoryStore, Use

SALT = b"sixteen bytes or more"
QUERY = "the van has nine stops today"

uses = st.builds(
    Use,
    st.text("abcdef 9é翻", max_size=12),
    st.sampled_from(["a", "b", "c", "d"]),
    st.booleans(),
    st.sampled_from([1.0, 0.5, 0.25]),
)


@pytest.fixture
def experience() -> Experience:
    return Experience(SALT)


def _used(experience: Experience, query: str, tool_id: str, times: int = 1) -> None:
    for _ in range(times):
        experience.record(Use(query, tool_id))


def test_without_evidence_nothing_is_known(experience: Experience) -> None:
    assert experience.support(QUERY) == {}
    assert (experience.pieces, experience.pairs, experience.kept) == (0, 0, ())


def test_a_use_speaks_for_the_tool_where_the_words_come_again(experience: Experience) -> None:
    _used(experience, QUERY, "route")
    same = experience.support("Today the VAN has nine stops")
    part = experience.support("park the van")
    assert [*same] == [*part] == ["route"]
    assert 0 < part["route"] < same["route"] <= 0.5
    assert experience.support("the weather in Oslo") == {}


def test_each_further_use_counts_less_and_none_counts_beyond_the_limit(
    experience: Experience,
) -> None:
    seen = [0.0]
    for _ in range(6):
        _used(experience, QUERY, "route")
        seen.append(experience.support(QUERY)["route"])
    gains = [after - before for before, after in pairwise(seen)]
    assert gains == sorted(gains, reverse=True)
    _used(experience, QUERY, "route", 1_000)
    most = module.MAX_WEIGHT / (module.SATURATION + module.MAX_WEIGHT)
    assert experience.support(QUERY)["route"] == pytest.approx(most)


def test_a_failure_takes_back_and_never_goes_below_nothing(experience: Experience) -> None:
    experience.record(Use(QUERY, "route", succeeded=False))
    assert experience.support(QUERY) == {}
    _used(experience, QUERY, "route")
    before = experience.support(QUERY)["route"]
    experience.record(Use(QUERY, "route", succeeded=False))
    assert 0 < experience.support(QUERY)["route"] < before
    for _ in range(5):
        experience.record(Use(QUERY, "route", succeeded=False))
    assert experience.support(QUERY) == {}
    assert experience.pairs == 0


def test_evidence_fades_as_its_words_are_used_for_other_tools(experience: Experience) -> None:
    _used(experience, "order stops", "old")
    _used(experience, "weather", "unrelated")
    _used(experience, "order stops", "new", module.HALF_LIFE)
    row = experience.to_data()["tools"]
    assert [*row["old"].values()] == pytest.approx([0.5, 0.5])
    assert [*row["unrelated"].values()] == [1.0]
    _used(experience, "order stops", "new", 4 * module.HALF_LIFE)
    assert set(experience.support("order stops")) == {"new"}


def test_a_word_that_served_many_tools_says_little(experience: Experience) -> None:
    for number in range(20):
        _used(experience, f"create {chr(97 + number) * 4}", f"tool{number}")
    words = experience.words_for("create cccc", "tool2")
    assert words["cccc"] > 3 * words["create"]


def test_the_words_that_speak_for_a_tool_are_given_as_written(experience: Experience) -> None:
    _used(experience, "delivering parcels", "route")
    words = experience.words_for("Parcels to deliver", "route")
    assert set(words) == {"Parcels", "deliver"}
    assert sum(words.values()) == pytest.approx(experience.support("Parcels to deliver")["route"])
    assert experience.words_for("parcels", "other") == {}


def test_numbers_and_stop_words_are_not_learned(experience: Experience) -> None:
    _used(experience, "please call 4915112345678 at 10:30 about s3 for me", "phone")
    assert set(experience.words_for("call 4915112345678 10:30 s3 me please", "phone")) == {"call"}
    assert experience.pairs == 1


def test_neither_queries_nor_words_can_be_read_in_what_is_kept() -> None:
    experience = Experience(SALT)
    _used(experience, "confidential merger", "search")
    data = json.dumps(experience.to_data())
    assert "search" in data
    assert "confid" not in data and "merger" not in data
    assert SALT.hex() not in data and SALT.decode() not in data
    other = Experience(b"another salt of the same length")
    _used(other, "confidential merger", "search")
    assert not set(other.to_data()["tools"]["search"]) & set(
        experience.to_data()["tools"]["search"]
    )


def test_queries_are_kept_only_if_switched_on_and_only_the_latest() -> None:
    experience = Experience(SALT, keep_queries=2)
    for query in ("one", "two", "three"):
        _used(experience, query, "tool")
    assert [use.query for use in experience.kept] == ["two", "three"]
    assert "two" not in json.dumps(experience.to_data())
    _used(experience, "four", "other")
    experience.forget("tool")
    assert [use.query for use in experience.kept] == ["four"]


def test_a_tool_or_everything_can_be_forgotten() -> None:
    experience = Experience(SALT, keep_queries=5)
    _used(experience, QUERY, "route")
    _used(experience, QUERY, "other")
    experience.forget("route")
    experience.forget("never heard of")
    assert set(experience.support(QUERY)) == {"other"}
    experience.clear()
    assert experience.to_data() == Experience(SALT).to_data()
    assert experience.kept == ()


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TERMS_A_TOOL", 3)
    monkeypatch.setattr(module, "MAX_TOOLS_A_TERM", 2)
    monkeypatch.setattr(module, "MAX_PAIRS", 5)
    experience = Experience(SALT)
    _used(experience, "alpha", "greedy", 3)
    _used(experience, "bravo charlie delta echo", "greedy")
    assert experience.pairs == 3
    assert "greedy" in experience.support("alpha")
    assert experience.support("bravo") == {}
    for tool_id in ("b", "c"):
        _used(experience, "alpha", tool_id)
    # The weakest has to go: of the two that were used once, the elder, which has faded.
    assert set(experience.support("alpha")) == {"greedy", "c"}
    _used(experience, "foxtrot", "d")
    assert experience.pairs == 5
    # The one that has gone longest without evidence is forgotten.
    _used(experience, "golf", "e")
    assert experience.pairs == 3
    assert set(experience.to_data()["tools"]) == {"c", "d", "e"}


def test_a_long_query_is_read_as_far_as_its_first_words(experience: Experience) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    _used(experience, " ".join(a + b for a in "bcdz" for b in letters), "tool")
    assert experience.pairs == module.MAX_TERMS
    _used(experience, "\ud800 \n\0 " + "x" * 10_000_000, "tool")
    assert experience.pairs == module.MAX_TERMS + 1


@given(st.lists(uses, max_size=60), st.text("abcdef 9é翻", max_size=12))
def test_support_is_from_nothing_to_one_and_a_store_brings_it_back(
    recorded: list[Use], query: str
) -> None:
    experience = Experience(SALT)
    for use in recorded:
        experience.record(use)
    support = experience.support(query)
    assert all(0 < share <= 1 for share in support.values())
    data = experience.to_data()
    assert experience.pairs == sum(map(len, data["tools"].values()))
    store = MemoryStore()
    experience.save(store)
    loaded = Experience.load(store, SALT)
    assert loaded.to_data() == data
    assert [*loaded.to_data()["tools"]] == [*data["tools"]]
    assert loaded.support(query) == pytest.approx(support)
    assert loaded.pairs == experience.pairs


def test_an_empty_store_gives_an_empty_experience() -> None:
    experience = Experience.load(MemoryStore(), SALT, keep_queries=1)
    _used(experience, QUERY, "route")
    assert len(experience.kept) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "not a saved experience of format 1; start without it"),
        ({"salt_check": "0"}, "saved under another salt"),
        ({"pieces": None}, "is damaged"),
        ({"pieces": float("inf")}, "is damaged"),
        ({"tools": []}, "is damaged"),
        ({"tools": {"a": {"zz": 1.0}}}, "is damaged"),
        ({"tools": {"a": {"0f": 5.0}}}, "a weight of 5.0"),
        ({"tools": {"a": {"0f": float("nan")}}}, "a weight of nan"),
        ({"tools": {"a": {"0f": "1"}}}, "is damaged"),
        ({"tools": {"": {"0f": 1.0}}}, "needs the id of a tool"),
        ({"tools": {"a": {f"{term:x}": 1.0 for term in range(129)}}}, "129 words of a tool"),
        ({"tools": {f"t{at}": {"0f": 1.0} for at in range(65)}}, "65 tools of a word, where 64"),
    ],
)
def test_a_damaged_store_is_refused_with_the_cure(changes: dict[str, Any], message: str) -> None:
    data = {**Experience(SALT).to_data(), **changes}
    with pytest.raises(InvalidEvidence, match=message):
        Experience.from_data(data, SALT)


def test_what_is_no_saved_experience_or_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidEvidence, match="not a saved experience"):
        Experience.from_data([], SALT)
    experience = Experience(SALT)
    _used(experience, QUERY, "route")
    monkeypatch.setattr(module, "MAX_PAIRS", 2)
    with pytest.raises(InvalidEvidence, match="the limit is 2; start without it"):
        Experience.from_data(experience.to_data(), SALT)


@pytest.mark.parametrize("salt", [b"", b"short", "a text of sixteen and more"])
def test_a_salt_that_is_none_is_refused(salt: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"at least 16 secret bytes; make one"):
        Experience(salt)


@pytest.mark.parametrize("number", [-1, 10_001, "many"])
def test_keeping_queries_is_bounded(number: Any) -> None:
    with pytest.raises(InvalidConfig, match="keep_queries must be from 0"):
        Experience(SALT, keep_queries=number)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "a"), "both as text"),
        (("q", 7), "both as text"),
        (("q", ""), "1 to 512 characters"),
        (("q", "a" * 513), "this one has 513"),
        (("q", "a", True, 0.0), "more than 0 and at most 1, not 0.0"),
        (("q", "a", True, 1.5), "not 1.5"),
        (("q", "a", True, "much"), "not 'much'"),
    ],
)
def test_a_use_that_is_none_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidEvidence, match=message):
        Use(*arguments)


def test_recording_and_searching_at_once_loses_nothing() -> None:
    experience = Experience(SALT)
    words = ["alpha", "bravo", "charlie", "delta"]

    def work(number: int) -> None:
        _used(experience, " ".join(words), f"tool{number % 80}")
        assert all(share <= 1 for share in experience.support("alpha delta").values())

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(work, range(800)):
            pass
    assert experience.pieces == 800
    assert experience.pairs == sum(map(len, experience.to_data()["tools"].values()))
    assert len(experience.support("alpha")) <= module.MAX_TOOLS_A_TERM


@pytest.mark.parametrize("max_pairs", [-1, 0, 1.5, "9", None])
def test_room_for_nothing_is_refused(max_pairs: Any) -> None:
    with pytest.raises(InvalidConfig, match="max_pairs must be a whole number from 1"):
        Experience(SALT, max_pairs=max_pairs)
