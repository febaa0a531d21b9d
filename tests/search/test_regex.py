from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.regex_search import find_interruptibly, find_with_ranker, find_with_re
from toolcrib import Catalog, Tool
from toolcrib.errors import InvalidPattern
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import MatchReason
from toolcrib.search.regex import MAX_PATTERN_CHARS, RegexIndex, RegexRanker

# --- the same matches as `re` ---------------------------------------------------------------------

TRICKY_TEXTS = [
    "",
    "\n",
    "\n\n",
    "\0",
    "a",
    "a\n",
    "\na",
    "a\nb",
    "a\n\nb\n",
    "foo\0bar",
    "foo bar foo",
    "Foo_Bar-1",
    "create an issue",
    "e<=1",
    "[:alpha:]",
    "(?R)",
    "aaaaaa",
    "abab",
    "a\x1cb\x85c\u2028d",
    "naïve café",
    "cafe\u0301",
    "ſtraße STRASSE Straẞe",
    "K k K",
    "ıIiİ",
    "µμΜ",
    "ςσΣ",
    "½ ² ٣ Ⅷ",
    "हिन्दी",
    "日本語 test",
    "e😀\ufe0f!",
    "\U0001f600",
    "\ud800",
    "a\udfffb\ud800",
    "é\nb\n",
    "é\0\x01\x02",
    "ⓐⒶ",
]

TRICKY_PATTERNS = [
    # nothing, anything, everywhere
    "", ".", ".*", "(?s).", "(?s)^.*$", "(?!)", "a{0}", "(?:){3}", "()", "|a",
    # edges
    "^", "$", r"\A", r"\Z", "^$", "^a$", r"\Aa\Z", "a$", r"a\Z", "$a", "a^", r"a$\n", r"\n$", "$$",
    "(?m)^", "(?m)$", "(?m)^b", "(?m)a$", "(?m)^$", r"(?m)^b\Z", r"(?m)a$\nb", "(?m)b^", "(?:^a|b$)",
    "(?:a$)?b", "(?:^a)?", "(?m)(?:^a)+", "(?m)(?:b$)+", "(?m:^)b$",
    # words
    r"\bfoo\b", r"\b", r"\B", r"\Bo", r"\w\b\W", r"\b\b", r"\B\B",
    # kinds of characters
    r"\w", r"\W", r"\d", r"\D", r"\s", r"\S",
    r"[^\W\d_]+", r"[\w-]+", r"[^\n]", "[^a]", "[é-ÿ]", "[\0-\x1f]", r"\x00", r"\n", "[一-龥]",
    "[\U0001f600-\U0001f64f]", "[\ud800-\udfff]", "\ud800", r"[\s\S]", r"[^\s\S]", "[]]", "[a^-]",
    # case
    "(?i)foo", "(?i)k", "(?i)K", "(?i)s", "(?i)ß", "(?i)STRASSE", "(?i)i", "(?i)ı", "(?i)µ", "(?i)σ",
    "(?i)[^k]", "(?i)[a-z]+ [A-Z]", "(?i)[Z-a]", "(?i:F)oo", "(?i)(?-i:f)oo", "(?i)ⓐ",
    r"(?i)(k) \1", r"(f)oo.*\1", r"(?i)(f)oo.*\1",
    # counts
    "a{2}", "a{2,}", "a{,2}b", "a{1,3}?b", "(?:ab){2}", "a{1,300}", "(?:a{1,40}){1,40}", "a{2000}", "(?:ab){0,400}b",
    "x{0,5000}y?",
    # not supported by RE2
    r"(a)\1", r"(.)(.)\1\2", r"(?P<x>a)(?P=x)", r"(a)?(?(1)b|\n)", r"(?:(a)|b)+(?(1)b|x)", r"(a)?(?(1)b)",
    "(?=a)", "(?!a)", "(?=.*b)a", "(?=.*foo)(?=.*bar)", "^(?!.*a)", "(?<=a)b", "(?<!a)b", r"(?<=\n)a", r"(?<=^a)b",
    "(?>a+)b", "(?>a|ab)c?b", "a++b", "a*+a", "a?+b", r"(?=(a))\1\1",
    "(?:(?=a)a)+b", "(?>(?=.*b)a)", r"(?<=(a))\1", r"(?:^|\s)b$", "(?=a$)a", r"(?<!\w)b(?!\w)",
    # different meaning in `regex`
    "e<=1", "(?:e){1}", "[[:alpha:]]", "[[a]b]", "[!--]", "[a||b]", "[a&&b]", r"\(\?R\)", "a{e<=1}", "a{1", "a{,",
    "(?s:.)b", r"(?s-i:a.b)", "\x85", "[ab]|[b-c]",
    # flags that change how a pattern is read
    r"(?a)\w", r"(?a:\w)é", r"(?a)\W\b", r"(?a)\s", r"(?a)[^\d\s]", "(?ai)k", "(?ai)[^i-k]", "(?ai:É)",
    "(?x) a  # comment", "(?x: a b )c", r"(?x)[a ]\ b",
    # possessive repeats of groups
    "(?:a|ab){1,2}+b", "(?:a|ab){2}+", "(?:ab?)*+b", "(?:(?:a+)+)++$", "(?:a|b)?+b", "(a|ab)++(c|b)",
]  # fmt: skip


@pytest.mark.parametrize("pattern", TRICKY_PATTERNS)
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
def test_tricky_pattern_matches_the_same_texts_as_re(pattern: str) -> None:
    expected = find_with_re(pattern, TRICKY_TEXTS)
    assert find_with_ranker(pattern, TRICKY_TEXTS) == expected
    assert find_interruptibly(pattern, TRICKY_TEXTS) == expected
    expected = find_with_re(pattern, TRICKY_TEXTS, re.IGNORECASE)
    assert find_with_ranker(pattern, TRICKY_TEXTS, ignore_case=True) == expected
    assert find_interruptibly(pattern, TRICKY_TEXTS, ignore_case=True) == expected


ALPHABETS = ["ab", "abAB_1 -\n", "aAkKsſKéÉßıİ日\n\0½\u0301\ufe0f😀\ud800µμ"]
CLASSES = [".", r"\w", r"\W", r"\d", r"\s", r"\S", "[ab]", "[^a]", "[a-z]", r"[^\W_]", "[Z-a]", "[é-ÿ]"]  # fmt: skip
PLACES = ["^", "$", r"\A", r"\Z", r"\b", r"\B"]
COUNTS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"]


@st.composite
def bodies(draw: st.DrawFn, depth: int, counts: int, captures: list[int]) -> str:
    """Draw a pattern of any construct; `counts` limits nested repeats, which `re` may never finish."""

    def inner(*, fewer: int = 0) -> str:
        return draw(bodies(depth - 1, counts - fewer, captures))

    kinds = ["literal", "literal", "class", "place"]
    if depth:
        kinds += ["sequence", "sequence", "choice", "capture", "look", "atomic", "flags", "reference"]
        kinds += ["repeat", "repeat", "possessive"] if counts else []
    match draw(st.sampled_from(kinds)):
        case "literal":
            return re.escape(draw(st.sampled_from("".join(ALPHABETS))))
        case "class":
            return draw(st.sampled_from(CLASSES))
        case "place":
            return draw(st.sampled_from(PLACES))
        case "sequence":
            return inner() + inner()
        case "choice":
            return f"(?:{inner()}|{inner()})"
        case "repeat":
            times = draw(st.sampled_from(COUNTS)) + draw(st.sampled_from(["", "?"]))
            return f"(?:{inner(fewer=1)}){times}"
        case "possessive":
            body = draw(st.sampled_from([*CLASSES, f"(?:{inner(fewer=1)})"]))
            return f"{body}{draw(st.sampled_from(COUNTS))}+"
        case "look":
            return f"({draw(st.sampled_from(['?=', '?!', '?<=', '?<!']))}{inner()})"
        case "atomic":
            return f"(?>{inner()})"
        case "flags":
            return f"(?{draw(st.sampled_from(['i', 's', 'm', '-i', 'im', 'a', 'x', 'ai']))}:{inner()})"
        case "reference" if captures:
            number = draw(st.sampled_from(captures))
            return draw(st.sampled_from([rf"(?:\{number})", f"(?({number}){inner()}|{inner()})"]))
    body = inner()
    captures.append(len(captures) + 1)
    return f"({body})"


@st.composite
def patterns(draw: st.DrawFn) -> str:
    flags = draw(st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?ims)", "(?a)", "(?ai)"]))
    return flags + draw(bodies(depth=4, counts=2, captures=[]))


def is_valid(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


texts = st.lists(st.sampled_from(ALPHABETS).flatmap(lambda letters: st.text(letters, max_size=8)), max_size=12)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(patterns().filter(is_valid), texts)
def test_any_pattern_matches_the_same_texts_as_re(pattern: str, texts: list[str]) -> None:
    expected = find_with_re(pattern, texts)
    assert find_with_ranker(pattern, texts) == expected
    assert find_interruptibly(pattern, texts) == expected


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(r"ab()[]{}*+?|^$.\-<!=:PiRe1,&#~ "), max_size=12))
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
def test_any_text_is_accepted_or_rejected_as_a_pattern_like_by_re(pattern: str) -> None:
    texts = ["", "a", "ab", "aabb", "b\na", "(a)", "{1}", "é-é"]
    try:
        expected = find_with_re(pattern, texts)
    except re.error as error:
        with pytest.raises(InvalidPattern) as caught:
            find_with_ranker(pattern, texts)
        assert caught.value.position == error.pos
    else:
        assert find_interruptibly(pattern, texts) == expected == find_with_ranker(pattern, texts)


@pytest.mark.parametrize("pattern", ["b.*e", "^a.e$", "(a).*e", "(?=.*e)a"])
@pytest.mark.parametrize("letters", ["abe", "abe\0", "abeé"])
def test_match_never_spans_two_texts(pattern: str, letters: str) -> None:
    texts = [letters[:2], letters[2:], letters[:2] + "\n" + letters[2:]]
    assert find_with_ranker(pattern, texts) == find_with_re(pattern, texts)


@pytest.mark.parametrize("pattern", ["a", r"(a)\1?", "a{1,300}", "^(?!b)"])
def test_long_text_among_short_ones_is_found(pattern: str) -> None:
    texts = ["a", "b" * 100_000 + "a", "b", "c" * 100_000, "é" * 50_000 + "a"]
    assert find_with_ranker(pattern, texts) == find_with_re(pattern, texts)


def test_equal_texts_are_all_found() -> None:
    assert find_with_ranker("b", ["ab", "é", "ab", "b", "ab"]) == [0, 2, 3, 4]


def test_empty_catalog_has_no_matches() -> None:
    assert find_with_ranker("", []) == []


def test_pattern_of_many_items_is_found() -> None:
    assert find_with_ranker(r"\w" * 500, ["a" * 500, "a" * 499, "é" * 500]) == [0, 2]


def test_longest_pattern_is_found() -> None:
    assert find_with_ranker("a?" * (MAX_PATTERN_CHARS // 2), ["", "a"]) == [0, 1]


# --- invalid patterns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "position", "message"),
    [
        ("get_(a", 4, r"at character 5: missing ), unterminated subpattern; escape it as \("),
        ("a)", 1, r"at character 2: unbalanced parenthesis; escape it as \)"),
        ("[a", 0, r"at character 1: unterminated character set; escape it as \["),
        ("*", 0, r"at character 1: nothing to repeat; escape it as \*"),
        ("a\\", 1, r"at character 2: bad escape (end of pattern); escape it as \\"),
        ("a{2,1}", 2, "at character 3: min repeat greater than max repeat; correct it"),
        ("(?P<n", 4, "at character 5: missing >, unterminated name; correct it"),
        ("(?<=a+)b", None, "look-behind requires fixed-width pattern; make it simpler"),
        ("a{99999999999999}", None, "the repetition number is too large; make it simpler"),
        ("(?a)(?u)b", None, "flags are incompatible; make it simpler"),
        ("(" * 300 + ")" * 300, None, "nests deeper than 60 levels; make it simpler"),
        ("(" * 499 + ")" * 499, None, "make it simpler"),
        ("(?i)" + "[\0-\uffff]" * 9, None, "more than 8 ranges of non-ASCII characters"),
        ("a" * 1_001, None, "it has 1,001 characters, 1,000 are allowed; make it simpler"),
        ("a{4000000000}", None, "its repeats make more than 5,000 items; make it simpler"),
        ("(?:a|bc){1000000}(?=x)", None, "its repeats make more than 5,000 items"),
        ("(?:a{1000}){1000}", None, "its repeats make more than 5,000 items"),
        ("(?:a{65535}){65535}", None, "its repeats make more than 5,000 items"),
        ("(?:" * 50 + "a" + ")+" * 50, None, "its repeats make more than 5,000 items"),
        ("(?:b|c" * 20 + "a" + "){2,3}" * 20, None, "its repeats make more than 5,000 items"),
    ],
)
def test_invalid_pattern_is_rejected_with_position_and_remedy(pattern: str, position: int | None, message: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        find_with_ranker(pattern, ["a"])
    assert message in str(caught.value)
    assert str(caught.value).endswith("or search with plain words")
    assert caught.value.position == position


# --- ranking --------------------------------------------------------------------------------------

# The matches do not depend on the time budget, so it is large enough for a slow machine.
PATIENT = RegexRanker(budget_seconds=60)


def _find(index: RegexIndex, pattern: str) -> list[int]:
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
        ("send_(?=mess)", [2]),
        ("翻", [10]),
        ("nothing like it", []),
    ],
)
def test_pattern_is_searched_in_each_text_separately(office: Catalog, pattern: str, slots: list[int]) -> None:
    assert _find(PATIENT.fit(office), pattern) == slots


def test_back_reference_finds_repeated_letters(office: Catalog) -> None:
    found = _find(PATIENT.fit(office), r"(\w)\1")
    assert {0, 2, 4, 7, 8} <= {*found}


def test_case_matters_unless_it_is_ignored(office: Catalog) -> None:
    assert _find(PATIENT.fit(office), "SEND_EMAIL") == []
    ignoring_case = RegexRanker(ignore_case=True, budget_seconds=60)
    assert _find(ignoring_case.fit(office), "SEND_EMAIL") == [0]


def test_match_in_the_name_scores_higher_than_one_elsewhere(office: Catalog) -> None:
    index = PATIENT.fit(office)
    ranking = index.rank(ParsedQuery("refund|customer"))
    scores = dict(zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True))
    assert scores == pytest.approx({5: 1.0, 3: 0.6, 9: 0.6})
    assert index.reasons(ParsedQuery("customer"), 3) == (
        MatchReason("customer", "description", 0.5455),
        MatchReason("customer", "parameter", 0.4545),
    )
    assert index.reasons(ParsedQuery("customer"), 0) == ()


def test_allowed_values_of_a_parameter_are_searched() -> None:
    tool = Tool("a", "", {"properties": {"unit": {"enum": ["celsius"]}}})
    assert _find(PATIENT.fit(Catalog([tool])), "celsius") == [0]


def test_changed_catalog_is_searched_as_if_fitted_again() -> None:
    catalog = Catalog([Tool("a"), Tool("b")])
    index = PATIENT.fit(catalog)
    later = catalog.with_tools([Tool(f"t{number}") for number in range(300)]).without(["a"])
    assert _find(index.with_catalog(later), "t299$") == [301]
    assert _find(index.with_catalog(later), "^a$") == []
    assert _find(index, "^a$") == [0]
