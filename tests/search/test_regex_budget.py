"""The time budget of a regex search, tested with hostile patterns."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden import golden_vectors
from tests.search.regex_search import find_with_re, index_texts
from toolcrib import Catalog, Tool
from toolcrib.errors import SearchTimeout
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.regex import RegexIndex, RegexRanker

HANG_SECONDS = 5.0
# A pattern that `regex` does not finish on this text.
EVIL_TEXTS, EVIL_PATTERN = ["a" * 60 + "!$"], r"^(?:a|aa)+(?=[$])"

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

HOSTILE = [
    # a pattern that hangs or crashes an engine, and a harmless one that matches the same texts
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
    (r"()?(?(1)(?:a+)+|b)$", r"[ab]$"),
    (r"(?s)(?:.|\n)*(?:.|\n)*(?:.|\n)*@@@", r"@@@"),
    (r"(?m)^(?:\s*\w*)*;$", r"(?m)^[\s\w]*;$"),
    (r"(?:\d+)*(?:\d+)*(?:\d+)*%", r"%"),
    (r"a+[bc](?=x)", r"a[bc](?=x)"),
    (r"a" + "[ab]" * 240 + "x", r"(?!)"),
    (r"\b" * 499, r"\b"),
    (r".*" * 499, r""),
    (r"\w?" * 333, r""),
    ("(a)?" + r"\1?" * 300 + "@@@", "@@@"),
    ("(?i)" + "".join(map(chr, range(0xC0, 0xC0 + 990))), r"(?!)"),
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return the texts of 10,000 tools, some of them hostile."""
    rng = random.Random(7)

    def words(least: int, most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))

    texts: list[str] = []
    for number in range(10_000):
        texts += [f"{'_'.join(rng.choices(WORDS, k=3))}_{number}", words(30, 60)]
        texts += [words(1, 16) for _ in range(6)]
        if number % 20 == 0:
            texts.append(f"{words(20, 40)} – naïve\n")
    return texts + EVIL


@pytest.fixture(scope="module")
def index(texts: list[str]) -> RegexIndex:
    return index_texts(texts, budget_seconds=0.3)


@pytest.fixture
def hang_guard() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < HANG_SECONDS


@pytest.mark.usefixtures("hang_guard")
@pytest.mark.parametrize(("hostile", "harmless"), HOSTILE)
def test_hostile_pattern_ends_with_the_matches_or_a_timeout(
    hostile: str, harmless: str, texts: list[str], index: RegexIndex
) -> None:
    try:
        ranking = index.rank(ParsedQuery(hostile))
    except SearchTimeout:
        return
    assert ranking.slots.tolist() == find_with_re(harmless, texts)


@pytest.mark.usefixtures("hang_guard")
@pytest.mark.parametrize("hazard", golden_vectors("anthropic", "regex_hazards"))
def test_known_hazard_ends_with_the_matches_or_a_timeout(hazard: dict[str, Any]) -> None:
    harmless = dict(HOSTILE)[hazard["pattern"]]
    texts = [hazard["text"], hazard["text"] + "a", hazard["text"] + "é", "a"]
    try:
        ranking = index_texts(texts).rank(ParsedQuery(hazard["pattern"]))
    except SearchTimeout:
        return
    assert ranking.slots.tolist() == find_with_re(harmless, texts)


def test_timeout_names_the_budget_and_the_remedy() -> None:
    index = index_texts(EVIL_TEXTS, budget_seconds=0.02)
    with pytest.raises(SearchTimeout, match=r"did not finish within 20 ms; make it simpler .* plain words"):
        index.rank(ParsedQuery(EVIL_PATTERN))


def test_budget_grows_with_the_number_of_tools() -> None:
    ticks = itertools.count()
    ranker = RegexRanker(budget_seconds=0.05, budget_seconds_per_tool=0.01, clock=lambda: float(next(ticks)))
    with pytest.raises(SearchTimeout, match="within 80 ms"):
        ranker.fit(Catalog([Tool("a"), Tool("b"), Tool("c")])).rank(ParsedQuery("a"))


class ClockThatRunsOut:
    """Shows 0 for a number of readings and a far later time after that."""

    def __init__(self, readings: int) -> None:
        self.readings = readings

    def __call__(self) -> float:
        self.readings -= 1
        return 0.0 if self.readings >= 0 else 1e9


@pytest.mark.parametrize("pattern", ["a", r"(a)\1?", r"(?=.*b)a", r"\w+b|é", "[ab]{400}"])
def test_timeout_at_any_clock_reading_returns_no_partial_result(pattern: str) -> None:
    texts = ["ab", "é a", *map(str, range(50)), "b" * 40_000]
    clock = ClockThatRunsOut(10**9)
    index = index_texts(texts, clock=clock)
    expected = index.rank(ParsedQuery(pattern)).slots.tolist()
    readings = 10**9 - clock.readings
    clock.readings = readings
    assert index.rank(ParsedQuery(pattern)).slots.tolist() == expected
    for fewer in range(1, readings):
        clock.readings = fewer
        with pytest.raises(SearchTimeout):
            index.rank(ParsedQuery(pattern))


def test_clock_is_read_between_the_texts_of_one_tool() -> None:
    texts = [("description", str(number)) for number in range(1_000)]
    # One reading at the start, one before the first text.
    ranker = RegexRanker(texts=lambda _: texts, clock=ClockThatRunsOut(2))
    with pytest.raises(SearchTimeout):
        ranker.fit(Catalog([Tool("a")])).rank(ParsedQuery("x"))


def test_search_without_budget_times_out() -> None:
    with pytest.raises(SearchTimeout):
        index_texts(["a"], budget_seconds=0).rank(ParsedQuery("a"))


def test_search_leaves_no_thread_and_no_process(index: RegexIndex) -> None:
    threads = threading.enumerate()
    for pattern in ("zzz", r"(a+)+\1$", "(?=(a+)+$)b"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", pytest.fail)
            try:
                index.rank(ParsedQuery(pattern))
            except SearchTimeout:
                continue
    assert threading.enumerate() == threads
    assert multiprocessing.active_children() == []


def test_other_threads_run_during_a_hostile_search() -> None:
    count, is_over = 0, threading.Event()

    def count_up() -> None:
        nonlocal count
        while not is_over.is_set():
            count += 1

    counter = threading.Thread(target=count_up, daemon=True)
    counter.start()
    before = count
    with pytest.raises(SearchTimeout):
        index_texts(EVIL_TEXTS, budget_seconds=0.3).rank(ParsedQuery(EVIL_PATTERN))
    during = count - before
    is_over.set()
    counter.join()
    assert during > 100
