from __future__ import annotations

import pytest

from toolcrib.errors import InvalidQuery
from toolcrib.search.query.expression import And, Or, PhraseNode, WordNode
from toolcrib.search.query.parser import Syntax, parse_query


def test_plain_words_have_no_operators() -> None:
    query = parse_query("resize a photo")
    assert query.text == "resize a photo"
    assert query.operators is None
    assert query.notes == ()


def test_strict_query_is_parsed_into_an_expression() -> None:
    query = parse_query("photo AND resize")
    assert query.operators == And((WordNode("photo"), WordNode("resize")))


def test_strict_query_raises_for_a_malformed_expression() -> None:
    with pytest.raises(InvalidQuery, match="character 11"):
        parse_query("photo AND OR resize"[:12])
    with pytest.raises(InvalidQuery, match="nested"):
        parse_query("(" * 40 + "photo" + ")" * 40)


@pytest.mark.parametrize(
    "text", ['photo "resize', "photo )", "(photo", "(a) photo (b", 'say "a" "', "at 10:00 " + "word " * 300]
)
def test_strict_query_reads_prose_with_stray_signs_or_many_words_as_words(text: str) -> None:
    query = parse_query(text)
    assert query.notes[0].startswith("read as plain words: ")


def test_lenient_query_reads_a_malformed_expression_as_words_and_notes_it() -> None:
    query = parse_query('photo "resize', "lenient")
    assert query.operators == Or((WordNode("photo"), WordNode("resize")))
    (note,) = query.notes
    assert note.startswith("read as plain words: the quote at character 7")


def test_words_syntax_ignores_operators() -> None:
    assert parse_query('"photo" AND (', "words").operators is None


@pytest.mark.parametrize("syntax", ["strict", "lenient", "words"])
def test_request_is_the_query_without_its_preamble(syntax: Syntax) -> None:
    query = parse_query("I need a tool that can shrink a photo", syntax)
    assert query.text == "I need a tool that can shrink a photo"
    assert query.request.text == "shrink a photo"
    assert query.request.request is query.request


def test_english_query_is_its_own_translation() -> None:
    query = parse_query("shrink a photo")
    assert query.translated is query
    assert query.english == "shrink a photo"


def test_query_in_another_language_is_translated_with_its_operators() -> None:
    query = parse_query('mach die "PDF-Datei" kleiner', "lenient")
    assert query.text == 'mach die "PDF-Datei" kleiner'
    assert query.english == 'make the "pdf-file" smaller'
    assert isinstance(query.translated.operators, Or)
    assert PhraseNode("pdf-file") in query.translated.operators.nodes


def test_single_request_has_no_segments() -> None:
    assert parse_query("find flights from Lisbon and Porto", "lenient").segments == ()


def test_several_requests_become_segments_in_english() -> None:
    query = parse_query("suche einen Flug und dann buche ein Hotel", "lenient")
    assert [segment.text for segment in query.segments] == ["search a flight", "book a hotel"]
    assert all(segment.syntax == "lenient" for segment in query.segments)


def test_names_are_those_of_the_original_text() -> None:
    assert parse_query("open an issue in GitLab", "lenient").names == ("GitLab",)
