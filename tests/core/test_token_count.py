from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.token_count import count_tokens, count_tool_tokens, estimate_tokens, render_definition
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig


def test_words_signs_and_digits_count() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("?") == 1
    assert 8 <= estimate_tokens("Send a message to a channel of the workspace.") <= 12
    assert estimate_tokens("sendMessageNow") > estimate_tokens("sendmessagenow")
    assert estimate_tokens('{"a":{"b":[]}}') > estimate_tokens("a b")
    assert estimate_tokens("12345678") > estimate_tokens("12")
    assert estimate_tokens("one\n\ntwo") > estimate_tokens("one two")


def test_very_long_word_is_several_tokens() -> None:
    assert estimate_tokens("a" * 4_000) > 900
    assert estimate_tokens("訊" * 100) > 70


def test_definition_is_counted_with_any_counter() -> None:
    tool = Tool("a", "b", {"type": "object"})
    assert render_definition(tool) == '{"name":"a","description":"b","input_schema":{"type":"object"}}'
    assert count_tool_tokens(tool, len) == len(render_definition(tool))
    assert count_tool_tokens(tool) == estimate_tokens(render_definition(tool))


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_is_never_much_fewer_tokens(one: str, more: str) -> None:
    assert estimate_tokens(f"{one} {more}") >= estimate_tokens(one) - 1


@pytest.mark.parametrize("value", [None, "7", -1, float("nan"), float("inf")])
def test_counter_that_returns_no_number_is_an_error(value: Any) -> None:
    with pytest.raises(InvalidConfig, match="a token counter must return a number"):
        count_tokens("text", lambda text: value)


def test_fractions_of_tokens_are_rounded_up() -> None:
    assert count_tokens("text", lambda text: len(text) / 3) == 2  # type: ignore[arg-type,return-value]
