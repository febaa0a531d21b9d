from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.token_count import definition, estimate, tool_tokens
from toolcrib.core.tool import Tool


def test_words_signs_and_digits_count() -> None:
    assert estimate("") == 0
    assert estimate("?") == 1
    assert 8 <= estimate("Send a message to a channel of the workspace.") <= 12
    assert estimate("sendMessageNow") > estimate("sendmessagenow")
    assert estimate('{"a":{"b":[]}}') > estimate("a b")
    assert estimate("12345678") > estimate("12")
    assert estimate("one\n\ntwo") > estimate("one two")


def test_one_endless_word_is_not_one_token() -> None:
    assert estimate("a" * 4_000) > 900
    assert estimate("訊" * 100) > 70


def test_a_definition_is_what_is_sent_and_any_counter_will_do() -> None:
    tool = Tool("a", "b", {"type": "object"})
    assert definition(tool) == '{"name":"a","description":"b","input_schema":{"type":"object"}}'
    assert tool_tokens(tool, len) == len(definition(tool))
    assert tool_tokens(tool) == estimate(definition(tool))


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_is_never_far_fewer_tokens(one: str, more: str) -> None:
    assert estimate(f"{one} {more}") >= estimate(one) - 1
