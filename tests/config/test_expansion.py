"""Expansion of environment variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.config.fields import collect_required_variables, escape_variables, expand_variables
from toolcrib.config.parser import parse_config
from toolcrib.errors import InvalidConfig

_SET = {"HOST": "example.com", "EMPTY": "", "TRICK": "${HOST}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $HOME {x} $", "plain $HOME {x} $"),
        ("https://${HOST}/${EMPTY}x", "https://example.com/x"),
        ("${env:HOST}", "example.com"),
        ("${MISSING:-a:-b c}", "a:-b c"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-other}", "other"),
        ("${HOST:-other}", "example.com"),
        ("$${HOST} costs $5", "${HOST} costs $5"),
        # The value of a variable is not expanded again.
        ("${TRICK}", "${HOST}"),
    ],
)
def test_variables_are_replaced(text: str, result: str) -> None:
    assert expand_variables(text, _SET, ()) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${MISSING}", "a.b: the environment variable MISSING is not set; set it"),
        ("${input:token}", "only VS Code can prompt for it; use an environment variable instead"),
        ("${a.b}", "write ${NAME} or ${NAME:-default}, and $${ for a literal ${"),
        ("${}", "is not an environment variable"),
    ],
)
def test_invalid_variable_is_rejected_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        expand_variables(text, _SET, ("a", "b"))
    assert message in str(caught.value)
    assert "example.com" not in str(caught.value)


def test_required_variables_are_collected() -> None:
    assert collect_required_variables("${A} ${B:-x} $${C} ${env:D} ${not one}") == ["A", "D"]
    value = {"x": ["${B}", {"y": "${A}${B}"}, 3, None], "${KEY}": "${C}"}
    assert collect_required_variables(value) == ["B", "A", "C"]


@given(st.text(alphabet="${}AB:-x"))
def test_expanding_an_escaped_text_returns_the_original(text: str) -> None:
    assert expand_variables(escape_variables(text), {}, ()) == text


def test_empty_variable_gives_the_default() -> None:
    document = {"http": {"port": "${PORT:-}"}, "toolSearch": {"debug": "${DEBUG}"}}
    config = parse_config(document, {"DEBUG": " "})
    assert (config.http.port, config.tool_search.debug) == (8787, False)
