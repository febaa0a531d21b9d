"""The time budget of a regex search, against hostile patterns."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import golden_vectors
from tests.search.regex.reference import ClockThatRunsOut, found, matching, stopped_clock, truth
from toolcrib.errors import SearchTimeout
from toolcrib.search.regex import Passages, read

HANG_SECONDS = 5.0


WORDS = [
    "get",
    "list",
    "create",
    "issue",
    "invoice",
    "user",
    "price",
    "calendar",
    "a",
    "aa",
    "ab",
    "x",
    "b",
    "d",
    "zq",
    "zz",
    "qa",
    "the",
    "to",
    "of",
]
EVIL = [
    "a" * 40 + "!",
    "a" * 60,
    "a" * 31,
    "a" * 30 + "b",
    "aaaa " * 15 + "!",
    "x" * 50 + "y",
    "aé" + "a" * 50 + "!",
    "日" + "a" * 40,
    "word " * 60 + "#",
    "0123456789" * 8,
    "\n" * 60 + ";",
    "a" * 100_000,
    "ab" * 50_000 + "!",
    "é" + "ba" * 50_000,
]

# Even `regex` does not finish this one.
EVIL_PASSAGES, EVIL_PATTERN = Passages(["a" * 60 + "!$"]), read(r"^(?:a|aa)+(?=[$])")

HOSTILE = [
    # a pattern that hangs or bursts an engine, and a harmless one that is found in the same texts
    (r"(a+)+$", r"a$"),
    (r"(a|aa)+$", r"a$"),
    (r"(.*a){25}", r"a(?:[^a\n]*a){24}"),
    (r"^(\w+\s?)*$", r"^(?:\w+(?:\s\w+)*\s?)?$"),
    (r"^(a?){30}a{30}$", r"^a{30,60}$"),
    (r"(x+x+)+y", r"xxy"),
    (r"([a-zA-Z]+)*!!", r"!!"),
    (r"(\w+\s?)+#", r"\w\s?#"),
    (r"(a{0,300}){3}zq", r"zq"),
    (r"[a-q][^u-z]{13}x", r"[a-q][^u-z]{13}x"),
    (r"(?:.{0,50}){15}zz", r"zz"),
    (r"[\w-]{0,1000}" * 5, r""),
    (r"(((a{1,100}){1,100}){1,100})", r"a"),
    (r"(?:a{1000}){1000}", r"(?!)"),
    (r"(?=(a+)+$)b", r"(?!)"),
    (r"(a+)+\1$", r"aa$"),
    (r"(?:a|a)*b", r"b"),
    (r"(a*)*c", r"c"),
    (r"(?:(?:a*)*)*d\b", r"d\b"),
    (r"(.*)(.*)(.*)(.*)(.*)\5q{9}", r"q{9}"),
    (r"(?i)(a|A)+[^\x00-\x7f]z", r"(?i)a[^\x00-\x7f]z"),
    (r"\b(\w+\W?)+~~", r"\w\W?~~"),
    (r"(?:a?){60}a{60}$", r"a{60}$"),
    (r"(?<=a)(?:a+)+b", r"aab"),
    (r"(?>(?:a+)+)$", r"a$"),
    (r"(?:(?:a+)+)++$", r"a$"),
    (r"()?(?(1)(?:a+)+|b)$", r"[ab]$"),
    (r"(?s)(?:.|\n)*(?:.|\n)*(?:.|\n)*@@@", r"@@@"),
    (r"(?m)^(?:\s*\w*)*;$", r"(?m)^[\s\w]*;$"),
    (r"(?:\d+)*(?:\d+)*(?:\d+)*%", r"%"),
    (r"a+[bc](?=x)", r"a[bc](?=x)"),
    # `regex` takes all memory for these, or crashes
    (r"(?=x)a{4000000000}", r"(?!)"),
    (r"(?:a|bc){1000000}(?=x)", r"(?!)"),
    (r"(?:a{65535}){65535}", r"(?!)"),
    ("(?:" * 50 + "a" + ")+" * 50 + "(?=b)", "a(?=b)"),
    ("(?:b|c" * 20 + "a" + "){2,3}" * 20 + "(?=@)", "(?!)"),
    (r"a" + "[ab]" * 240 + "x", r"(?!)"),
    (r"\b" * 499, r"\b"),
    (r".*" * 499, r""),
    (r"\w?" * 333, r""),
    ("(a)?" + r"\1?" * 300 + "@@@", "@@@"),
    ("(?i)" + "".join(map(chr, range(0xC0, 0xC0 + 990))), r"(?!)"),
]


@pytest.fixture(scope="module")
def catalog() -> list[str]:
    """The texts of 10,000 tools: names, descriptions, parameters, some of them evil."""
    chance = random.Random(7)

    def words(least: int, most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(least, most)))

    texts: list[str] = []
    for number in range(10_000):
        texts += [f"{'_'.join(chance.choices(WORDS, k=3))}_{number}", words(30, 60)]
        texts += [words(1, 16) for _ in range(6)]
        if number % 20 == 0:
            texts.append(f"{words(20, 40)} – naïve\n")
    return texts + EVIL


@pytest.fixture(scope="module")
def passages(catalog: list[str]) -> Passages:
    return Passages(catalog)


@pytest.fixture
def hang_guard() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < HANG_SECONDS


@pytest.mark.usefixtures("hang_guard")
@pytest.mark.parametrize(("hostile", "harmless"), HOSTILE)
def test_a_hostile_pattern_ends_with_the_truth_or_a_timeout(
    hostile: str, harmless: str, catalog: list[str], passages: Passages
) -> None:
    try:
        indexes = matching(passages, read(hostile))
    except SearchTimeout:
        return
    assert indexes.tolist() == truth(harmless, catalog)


@pytest.mark.usefixtures("hang_guard")
@pytest.mark.parametrize("hazard", golden_vectors("anthropic", "regex_hazards"))
def test_a_known_hazard_is_answered(hazard: dict[str, Any]) -> None:
    harmless = dict(HOSTILE)[hazard["pattern"]]
    texts = [hazard["text"], hazard["text"] + "a", hazard["text"] + "é", "a"]
    assert found(hazard["pattern"], texts) == truth(harmless, texts)


def test_a_timeout_says_the_budget_and_the_cure() -> None:
    with pytest.raises(
        SearchTimeout, match=r"not done within 20 ms; make it simpler .* plain words"
    ):
        matching(EVIL_PASSAGES, EVIL_PATTERN, budget_seconds=0.02)


@pytest.mark.parametrize("pattern", ["a", r"(a)\1?", r"(?=.*b)a", r"\w+b|é", "[ab]{400}"])
def test_time_that_is_up_at_any_look_leaves_no_partial_answer(pattern: str) -> None:
    passages = Passages(["ab", "é a", *map(str, range(3_000)), "b" * 40_000])
    clock = ClockThatRunsOut(10**9)
    whole = matching(passages, read(pattern), clock=clock)
    looks = 10**9 - clock.looks
    assert (
        whole.tolist() == matching(passages, read(pattern), clock=ClockThatRunsOut(looks)).tolist()
    )
    for fewer in range(1, looks):
        with pytest.raises(SearchTimeout):
            matching(passages, read(pattern), clock=ClockThatRunsOut(fewer))


def test_a_pattern_that_takes_longer_to_compile_than_there_is_time_is_not_begun() -> None:
    with pytest.raises(SearchTimeout):
        matching(
            Passages(["a"]), read("(a)" + r"\1?" * 300), budget_seconds=0.001, clock=stopped_clock
        )


def test_no_budget_is_no_search() -> None:
    with pytest.raises(SearchTimeout):
        matching(Passages(["a"]), read("a"), budget_seconds=0)


def test_a_search_leaves_no_thread_and_no_process_behind(passages: Passages) -> None:
    threads = threading.enumerate()
    for pattern in ("zzz", r"(a+)+\1$", "(?=(a+)+$)b"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", pytest.fail)
            try:
                matching(passages, read(pattern))
            except SearchTimeout:
                continue
    assert threading.enumerate() == threads
    assert multiprocessing.active_children() == []


def test_other_threads_go_on_during_a_hostile_search() -> None:
    counted, over = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    before = counted
    with pytest.raises(SearchTimeout):
        matching(EVIL_PASSAGES, EVIL_PATTERN, budget_seconds=0.3)
    during = counted - before
    over.set()
    counter.join()
    assert during > 100
