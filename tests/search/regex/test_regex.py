from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.regex.reference import found, matching, truth
from toolcrib.errors import InvalidPattern, InvalidTool
from toolcrib.search.regex import Passages, blob, read
from toolcrib.search.regex.translate import MOST_CHARACTERS

# --- the same as `re` -----------------------------------------------------------------------------

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
    r"\bfoo\b", r"\b", r"\B", r"\Bo", r"(?a)\b", r"(?a)\Bt", r"(?a:\b)\W", r"\w\b\W", r"\b\b", r"\B\B",
    # kinds of characters
    r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"(?a)\w", r"(?a)\W", r"(?a)\d", r"(?a)\s", r"(?a:\w)é",
    r"[^\W\d_]+", r"[\w-]+", r"[^\n]", "[^a]", "[é-ÿ]", "[\0-\x1f]", r"\x00", r"\n", "[一-龥]",
    "[\U0001f600-\U0001f64f]", "[\ud800-\udfff]", "\ud800", r"[\s\S]", r"[^\s\S]", "[]]", "[a^-]",
    # case
    "(?i)foo", "(?i)k", "(?i)K", "(?i)s", "(?i)ß", "(?i)STRASSE", "(?i)i", "(?i)ı", "(?i)µ", "(?i)σ",
    "(?i)[^k]", "(?i)[a-z]+ [A-Z]", "(?i)[Z-a]", "(?ia)k", "(?ia)s", "(?i:F)oo", "(?i)(?-i:f)oo", "(?i)ⓐ",
    r"(?i)(k) \1", r"(f)oo.*\1", r"(?i)(f)oo.*\1",
    # counts
    "a{2}", "a{2,}", "a{,2}b", "a{1,3}?b", "(?:ab){2}", "a{1,300}", "(?:a{1,40}){1,40}", "a{2000}", "(?:ab){0,400}b",
    "x{0,5000}y?",
    # what RE2 cannot do
    r"(a)\1", r"(.)(.)\1\2", r"(?P<x>a)(?P=x)", r"(a)?(?(1)b|\n)", r"(?:(a)|b)+(?(1)b|x)", r"(a)?(?(1)b)",
    "(?=a)", "(?!a)", "(?=.*b)a", "(?=.*foo)(?=.*bar)", "^(?!.*a)", "(?<=a)b", "(?<!a)b", r"(?<=\n)a", r"(?<=^a)b",
    "(?>a+)b", "(?>a|ab)c?b", "a++b", "a*+a", "a?+b", "(?:a|ab){1,2}+b", r"(?:\w{2,}){2}+", r"(?=(a))\1\1",
    "(?:(?=a)a)+b", "(?>(?=.*b)a)", r"(?<=(a))\1", r"(?:^|\s)b$", "(?=a$)a", r"(?<!\w)b(?!\w)",
    # what `regex` reads otherwise
    "e<=1", "(?:e){1}", "[[:alpha:]]", "[[a]b]", "[!--]", "[a||b]", "[a&&b]", r"\(\?R\)", "a{e<=1}", "a{1", "a{,",
    r"(?x) a  # comment", r"(?x) [ ] b", "(?s:.)b", r"(?s-i:a.b)", "\x85", "[ab]|[b-c]",
]  # fmt: skip


@pytest.mark.parametrize("pattern", TRICKY_PATTERNS)
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
def test_a_tricky_pattern_is_found_in_the_same_tricky_texts_as_by_re(pattern: str) -> None:
    assert found(pattern, TRICKY_TEXTS) == truth(pattern, TRICKY_TEXTS)
    ignored = found(pattern, TRICKY_TEXTS, ignore_case=True)
    assert ignored == truth(pattern, TRICKY_TEXTS, re.IGNORECASE)


ALPHABETS = ["ab", "abAB_1 -\n", "aAkKsſKéÉßıİ日\n\0½\u0301\ufe0f😀\ud800µμ"]
CLASSES = [".", r"\w", r"\W", r"\d", r"\s", r"\S", "[ab]", "[^a]", "[a-z]", r"[^\W_]", "[Z-a]", "[é-ÿ]"]  # fmt: skip
PLACES = ["^", "$", r"\A", r"\Z", r"\b", r"\B"]
COUNTS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"]


@st.composite
def bodies(draw: st.DrawFn, depth: int, counts: int, captures: list[int]) -> str:
    """A pattern of every construct; `counts` bounds nested repeats, which `re` may never finish."""

    def inner(*, fewer: int = 0, remember: bool = True) -> str:
        return draw(bodies(depth - 1, counts - fewer, captures if remember else []))

    kinds = ["literal", "literal", "class", "place"]
    if depth:
        kinds += [
            "sequence",
            "sequence",
            "choice",
            "capture",
            "look",
            "atomic",
            "flags",
            "reference",
        ]
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
            # Captures in possessive repeats are broken in CPython itself.
            return f"(?:{inner(fewer=1, remember=False)}){draw(st.sampled_from(COUNTS))}+"
        case "look":
            return f"({draw(st.sampled_from(['?=', '?!', '?<=', '?<!']))}{inner()})"
        case "atomic":
            return f"(?>{inner()})"
        case "flags":
            return f"(?{draw(st.sampled_from(['i', 's', 'm', '-i', 'im']))}:{inner()})"
        case "reference" if captures:
            number = draw(st.sampled_from(captures))
            return draw(st.sampled_from([rf"(?:\{number})", f"(?({number}){inner()}|{inner()})"]))
    body = inner()
    captures.append(len(captures) + 1)
    return f"({body})"


@st.composite
def patterns(draw: st.DrawFn) -> str:
    flags = draw(st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?a)", "(?ims)"]))
    return flags + draw(bodies(depth=4, counts=2, captures=[]))


def is_valid(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


texts = st.lists(
    st.sampled_from(ALPHABETS).flatmap(lambda letters: st.text(letters, max_size=8)), max_size=12
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(patterns().filter(is_valid), texts)
def test_any_pattern_is_found_in_the_same_texts_as_by_re(pattern: str, texts: list[str]) -> None:
    assert found(pattern, texts) == truth(pattern, texts)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(r"ab()[]{}*+?|^$.\-<!=:PiRe1,&#~ "), max_size=12))
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
def test_any_text_is_read_as_re_reads_it_or_refused_as_re_refuses_it(pattern: str) -> None:
    texts = ["", "a", "ab", "aabb", "b\na", "(a)", "{1}", "é-é"]
    try:
        expected = truth(pattern, texts)
    except re.error as error:
        with pytest.raises(InvalidPattern) as caught:
            read(pattern)
        assert caught.value.position == error.pos
    else:
        assert found(pattern, texts) == expected


def test_equal_texts_are_all_found() -> None:
    assert found("b", ["ab", "é", "ab", "b", "ab"]) == [0, 2, 3, 4]


def test_no_texts_have_no_hits() -> None:
    indexes = matching(Passages([]), read(""))
    assert indexes.dtype == np.int32
    assert indexes.tolist() == []


@pytest.mark.parametrize("pattern", ["b.*e", "^a.e$", "(a).*e", "(?=.*e)a"])
@pytest.mark.parametrize("letters", ["abe", "abe\0", "abeé"])
def test_a_match_never_reaches_into_the_next_text(pattern: str, letters: str) -> None:
    texts = [letters[:2], letters[2:], letters[:2] + "\n" + letters[2:]]
    assert found(pattern, texts) == truth(pattern, texts)


@pytest.mark.parametrize("pattern", ["a", r"(a)\1?", "a{1,300}", "^(?!b)"])
def test_a_long_text_among_short_ones_is_found(pattern: str) -> None:
    texts = ["a", "b" * 100_000 + "a", "b", "c" * 100_000, "é" * 50_000 + "a"]
    assert found(pattern, texts) == truth(pattern, texts)


def test_the_answer_is_the_same_when_re2_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "_RE2_MEMORY_BYTES", 500)
    assert found("b+c|x", ["abc", "ac", "xé"]) == [0, 2]


def test_a_pattern_too_large_for_re2_gets_its_answer() -> None:
    assert found(r"\w" * 500, ["a" * 500, "a" * 499, "é" * 500]) == [0, 2]


def test_texts_that_leave_no_character_unused_are_refused() -> None:
    everything = "".join(map(chr, range(0x110000)))
    with pytest.raises(InvalidTool, match="leave one unused"):
        Passages([everything])


# --- bad patterns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "position", "says"),
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
        ("(?i)" + "[\0-\uffff]" * 9, None, "span more than 131,072 characters; make it simpler"),
        ("a" * 1_001, 1_000, "has 1,001 characters, 1,000 are allowed; shorten it"),
    ],
)
def test_a_bad_pattern_says_so_instead_of_finding_nothing(
    pattern: str, position: int | None, says: str
) -> None:
    with pytest.raises(InvalidPattern) as caught:
        read(pattern)
    assert says in str(caught.value)
    assert str(caught.value).endswith("or search with plain words")
    assert caught.value.position == position


def test_the_longest_allowed_pattern_is_read() -> None:
    assert found("a?" * (MOST_CHARACTERS // 2), ["", "a"]) == [0, 1]
