from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import InvalidQuery, QueryTooLong
from toolcrib.search.query.expression import (
    MAX_QUERY_CHARS,
    And,
    Boost,
    FieldNode,
    MatchAll,
    Must,
    Not,
    Or,
    PhraseNode,
    QueryNode,
    WordNode,
    iter_leaves,
    map_leaves,
    parse_expression,
    parse_plain_words,
)

A, B, C = WordNode("a"), WordNode("b"), WordNode("c")


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("", Or(())),
        ("a", A),
        ("a b", Or((A, B))),
        ("a OR b", Or((A, B))),
        ("a AND b c", Or((And((A, B)), C))),
        ("a AND (b OR c)", And((A, Or((B, C))))),
        ("NOT a", Not(A)),
        ("a -b", Or((A, Not(B)))),
        ("+a b", Or((Must(A), B))),
        ("git*", WordNode("git", is_prefix=True)),
        ('"a b"', PhraseNode("a b")),
        ('"a b"*', PhraseNode("a b", is_prefix=True)),
        (r'"say \"hi\" \\ \n"', PhraseNode(r'say "hi" \ \n')),
        ("*", MatchAll()),
        ("* -a", Not(A)),
        ("* *", MatchAll()),
        ("name:a", FieldNode("name", A)),
        ("Name:a", FieldNode("name", A)),
        ('name:"a b"', FieldNode("name", PhraseNode("a b"))),
        ("name:(a b)", FieldNode("name", Or((A, B)))),
        ("name:*", FieldNode("name", MatchAll())),
        ("a^2", Boost(A, 2.0)),
        ("(a b)^1.5", Boost(Or((A, B)), 1.5)),
        ("a^2^3", Boost(Boost(A, 2.0), 3.0)),
    ],
)
def test_query_is_parsed_into_the_expected_nodes(text: str, node: QueryNode) -> None:
    assert parse_expression(text) == node
    assert parse_expression(str(node)) == node


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("what's 12:30, C++ and e-mail?", ["what's", "12:30,", "C++", "and", "e-mail?"]),
        ("see http://x.org: now", ["see", "http://x.org:", "now"]),
        ("localhost:8080", ["localhost:8080"]),
        ("minus -5 degrees", ["minus", "-5", "degrees"]),
        ("call +49 170 1234567", ["call", "+49", "170", "1234567"]),
        ("5 * 3 ^ 2", ["5", "3", "2"]),
        ("find it -> send it", ["find", "it", "->", "send", "it"]),
        ("std::vector", ["std::vector"]),
    ],
)
def test_ordinary_text_is_parsed_as_words(text: str, words: list[str]) -> None:
    node = parse_expression(text)
    assert [str(leaf) for leaf, _, _ in iter_leaves(node)] == words


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("find (a b", 5, "parenthesis at character 6 is never closed"),
        ("a) b", 1, "closing parenthesis at character 2 has no opening one"),
        ('say "hi', 4, "quote at character 5 is never closed"),
        ("a AND", 5, "the query ends where a word was expected"),
        ("a AND OR b", 6, "there is 'OR' at character 7, where a word was expected"),
        ("owner:me", 0, "no field 'owner' .character 1.; the fields are name, title"),
        ("^2", 0, "'2' at character 1"),
        ("a^5000", 1, "boost at character 2 is over 1000"),
        ("(" * 40 + "a" + ")" * 40, None, "nested more than 32 deep"),
        ("NOT " * 40 + "a", None, "nested more than 32 deep"),
    ],
)
def test_malformed_query_is_rejected_with_position_and_remedy(text: str, position: int | None, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message) as caught:
        parse_expression(text)
    assert caught.value.position == position


def test_query_length_is_limited() -> None:
    with pytest.raises(QueryTooLong, match="the limit is 4,000"):
        parse_expression("x" * (MAX_QUERY_CHARS + 1))


def test_number_of_leaves_is_limited() -> None:
    with pytest.raises(QueryTooLong, match="has 301 words and phrases"):
        parse_expression("a* " * 301)


def test_field_names_can_be_configured() -> None:
    assert parse_expression("owner:me", fields=("owner",)) == FieldNode("owner", WordNode("me"))
    assert parse_expression("owner:5", fields=("owner",)) == FieldNode("owner", WordNode("5"))


def test_plain_words_parser_accepts_any_text() -> None:
    assert parse_plain_words('(a "b') == Or((A, B))
    assert parse_plain_words("a") == A
    assert parse_plain_words("^^") == Or(())


def test_every_word_and_phrase_can_be_transformed() -> None:
    query = '+a NOT b name:(c^2 "c") AND * OR git*'
    uppercase = map_leaves(parse_expression(query), lambda leaf: replace(leaf, text=leaf.text.upper()))
    assert uppercase == parse_expression('+A NOT B name:(C^2 "C") AND * OR GIT*')


def test_leaves_have_field_and_boost_and_exclude_negations() -> None:
    node = parse_expression("+a NOT b name:(c^2 c)^3 *")
    assert list(iter_leaves(node)) == [(A, "", 1.0), (C, "name", 6.0), (C, "name", 3.0)]


_pieces = st.sampled_from(
    [
        "a",
        "foo",
        " AND ",
        "OR",
        "NOT ",
        "(",
        ")",
        '"',
        " ",
        "  ",
        "*",
        "^",
        "2",
        "1.5",
        "^2",
        "+",
        "-",
        "name:",
        "x:",
        "server:",
        "\\",
        "5",
        ":",
        '"a b"',
        "_",
        "é",
        "\n",
    ]
)


@settings(max_examples=500)
@given(st.lists(_pieces, max_size=14).map("".join) | st.text(max_size=40))
def test_rendered_query_parses_to_the_same_query(text: str) -> None:
    try:
        node = parse_expression(text)
    except InvalidQuery:
        return
    assert parse_expression(str(node)) == node
