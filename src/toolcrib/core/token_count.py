"""About how many tokens a text is, without a tokenizer.

Tokenizers of the current models are large or not public. This counts what they cut text into (words,
humps of camelCase, digits, runs of signs) and weighs each kind; the weights were fitted to one public
tokenizer on real tool definitions. docs/explanation/prompt-caching.md says how far off it is from
others, on tools it was not fitted to.
Whoever has an exact counter passes it instead: any function from text to a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from toolcrib.core.tool import Tool

TokenCounter = Callable[[str], int]

# Words are mostly one token each. What is longer than a word ever is, is cut into pieces of four.
LONG_WORD_CHARS: Final = 12
CHARS_PER_TOKEN: Final = 4
MAX_CACHED_COUNTS: Final = 10_000

_WORD = re.compile(r"[A-Za-z]+")
_HUMP = re.compile(r"[a-z][A-Z]")
_DIGITS = re.compile(r"[0-9]{1,3}")
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]+")
_BREAK = re.compile(r"\s{2,}|\n")
_FOREIGN = re.compile(r"[^\x00-\x7f]")


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is; never less than one for a text that is not empty."""
    words = _WORD.findall(text)
    signs = _SIGNS.findall(text)
    overlong = sum(len(word) - LONG_WORD_CHARS for word in words if len(word) > LONG_WORD_CHARS)
    tokens = (
        1.02 * len(words)
        + overlong / CHARS_PER_TOKEN
        + 1.07 * len(_HUMP.findall(text))
        + 1.6 * len(_DIGITS.findall(text))
        + 0.7 * len(signs)
        + 0.25 * sum(len(run) - 2 for run in signs if len(run) > 2)
        + 0.95 * len(_BREAK.findall(text))
        + 0.78 * len(_FOREIGN.findall(text))
    )
    return max(round(tokens), 1 if text else 0)


def render_definition(tool: Tool) -> str:
    """What a model is sent of a tool: its name, its description and its parameters, as JSON."""
    shown = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=MAX_CACHED_COUNTS)
def count_tool_tokens(tool: Tool, count: TokenCounter = estimate_tokens) -> int:
    """About how many tokens the definition of a tool takes in a request."""
    return count(render_definition(tool))
