from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.text import MAX_WORD_CHARS, is_stop_word, normalize_name, split_words


def _wholes(text: str) -> list[str]:
    return [word.whole for word in split_words(text)]


def _parts(text: str) -> list[str]:
    return [part for word in split_words(text) for part in word.parts]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("send_email", ["send", "email"]),
        ("send-email", ["send", "email"]),
        ("mail.send/now", ["mail", "send", "now"]),
        ("sendEmail", ["send", "email"]),
        ("HTTPGetURLs", ["http", "get", "url"]),
        ("parseJSONFile", ["pars", "json", "file"]),
        ("base64", ["base", "64"]),
        ("oauth2", ["oauth"]),
        ("s3", ["s3"]),
        ("don't", ["don", "t"]),
    ],
)
def test_names_of_every_case_style_have_the_same_parts(text: str, parts: list[str]) -> None:
    assert _parts(text) == parts


def test_compound_is_also_a_whole_word() -> None:
    assert _wholes("GitHub oauth2 sendEmail") == ["github", "oauth2", "sendemail"]


def test_inflections_of_a_word_are_one_term() -> None:
    assert _wholes("create creates created creating") == ["creat"] * 4
    assert _wholes("emails Email EMAIL") == ["email"] * 3


def test_accents_and_letter_forms_do_not_matter() -> None:
    assert _wholes("Übersetzen café ﬁle") == _wholes("ubersetzen cafe file")
    assert _wholes("Straße") == ["strass"]


def test_marks_that_are_part_of_a_word_stay() -> None:
    assert _wholes("हिन्दी_अनुवाद") == ["हिन्दी", "अनुवाद"]


def test_scripts_without_spaces_are_split_into_bigrams() -> None:
    assert _wholes("東京都") == ["東京", "京都"]
    assert _wholes("字") == ["字"]
    assert _wholes("API設計v2") == ["api", "設計", "v2"]


def test_very_long_words_are_truncated_the_same_in_tools_and_queries() -> None:
    assert _wholes("x" * 1_000) == ["x" * MAX_WORD_CHARS]
    assert _wholes("ж" * 1_000) == ["ж" * MAX_WORD_CHARS]


def test_stop_words_are_recognized_in_every_form() -> None:
    assert all(is_stop_word(word.whole) for word in split_words("the using THIS does"))
    assert not is_stop_word("email")


@pytest.mark.parametrize("style", ["send_email", "sendEmail", "Send-Email", "send email", "SENDEMAIL"])
def test_normalized_name_is_the_same_in_every_case_style(style: str) -> None:
    assert normalize_name(style) == "sendemail"


def test_normalized_name_supports_other_scripts() -> None:
    assert normalize_name("Über_Setzen") == "ubersetzen"
    assert normalize_name("東京_Tower") == "東京tower"


@given(st.text())
def test_any_text_gives_terms_that_are_short_and_not_empty(text: str) -> None:
    for word in split_words(text):
        assert word.parts
        for term in (word.whole, *word.parts):
            assert 0 < len(term) <= MAX_WORD_CHARS
    assert normalize_name(text) == normalize_name(normalize_name(text))
