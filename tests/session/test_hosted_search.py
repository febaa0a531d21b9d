from __future__ import annotations

import pytest

from toolcrib.session.disclosure import find_hosting_provider


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-opus-4-8", "anthropic"),
        ("claude-sonnet-4-6", "anthropic"),
        ("claude-sonnet-4-5-20250929", "anthropic"),
        ("claude-haiku-4-5", "anthropic"),
        ("claude-fable-5", "anthropic"),
        ("claude-opus-4-1", None),
        ("claude-opus-4-20250514", None),
        ("claude-3-5-haiku", None),
        ("gpt-5.4", "openai"),
        ("gpt-5.6-mini", "openai"),
        ("gpt-6", "openai"),
        ("gpt-5.4-nano", None),
        ("gpt-5.3", None),
        ("gpt-4o", None),
        ("openai/gpt-5.4", None),
        ("anthropic/claude-opus-4-8", None),
        ("llama-4", None),
        ("", None),
    ],
)
def test_provider_is_found_by_model_id(model: str, provider: str | None) -> None:
    assert find_hosting_provider(model) == provider
