"""Which models have tool search on the provider's side, by model id."""

from __future__ import annotations

import re
from typing import Final, Literal

Provider = Literal["anthropic", "openai"]

FIRST_CLAUDE_VERSION: Final = (4, 5)
FIRST_GPT_VERSION: Final = (5, 4)

_CLAUDE = re.compile(r"claude-(?:sonnet|opus|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d{1,2})(?:\.(\d{1,2}))?(?![\d.])")


def find_hosting_provider(model: str) -> Provider | None:
    """Return the provider that searches tools for this model, or None.

    The result is None for unknown models and for models behind a gateway (`openai/gpt-5.4`), which
    may not pass the provider's own formats through.
    """
    claude = _CLAUDE.match(model)
    if claude and _version(claude) >= FIRST_CLAUDE_VERSION:
        return "anthropic"
    gpt = _GPT.match(model)
    if gpt and _version(gpt) >= FIRST_GPT_VERSION and "nano" not in model:
        return "openai"
    return None


def _version(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2] or 0)
