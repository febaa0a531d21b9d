"""The rendered difference between two definitions is complete, bounded and printable."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.safety.pinning import compute_fingerprint, render_definition_diff


def test_diff_names_the_field_and_both_values() -> None:
    old = {
        "name": "send",
        "description": "Send a mail.",
        "inputSchema": {"properties": {"to": {"type": "string"}, "cc": {}}, "required": ["to"]},
        "annotations": {"readOnlyHint": True},
    }
    new = {
        "name": "send",
        "description": "Send a mail to us.",
        "inputSchema": {"properties": {"to": {"type": "string"}, "b-cc": {}}, "required": []},
        "annotations": {"readOnlyHint": 1},
        "title": "Send\nnow",
    }
    assert render_definition_diff(old, new).splitlines() == [
        "description",
        "  - Send a mail.",
        "  + Send a mail to us.",
        "inputSchema.properties.cc",
        "  - {}",
        'inputSchema.properties."b-cc"',
        "  + {}",
        "inputSchema.required",
        "  (1 items before, 0 now)",
        '  - "to"',
        "annotations.readOnlyHint",
        "  - true",
        "  + 1",
        "title",
        "  + Send",
        "  + now",
    ]
    assert render_definition_diff(old, old) == ""


def test_diff_of_a_long_text_shows_only_the_change() -> None:
    lines = [f"Line {number} says something." for number in range(50)]
    changed = [*lines[:30], "Line 30 gives an order.", *lines[31:]]
    assert render_definition_diff({"d": "\n".join(lines)}, {"d": "\n".join(changed)}).splitlines() == [
        "d, line 31",
        "  - Line 30 says something.",
        "  + Line 30 gives an order.",
    ]
    lines = render_definition_diff({"d": "word " * 100 + "good"}, {"d": "word " * 100 + "bad"}).splitlines()
    assert lines[1].startswith("  - …")
    assert lines[1].endswith("good")
    assert len(lines[1]) < 60


def test_diff_is_limited() -> None:
    diff = render_definition_diff({}, {f"field {number}": number for number in range(1_000)})
    assert diff.splitlines()[-1] == "… (1,800 lines more)"
    assert len(render_definition_diff({"d": "a"}, {"d": "b" * 1_000_000})) < 1_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
definitions = st.dictionaries(st.text(), json_values, max_size=4)


@settings(max_examples=30)
@given(definitions, definitions)
def test_any_diff_is_printable_and_empty_only_without_changes(old: dict[str, Any], new: dict[str, Any]) -> None:
    diff = render_definition_diff(old, new)
    assert bool(diff) == (compute_fingerprint(old) != compute_fingerprint(new))
    assert all(line.isprintable() for line in diff.split("\n"))
