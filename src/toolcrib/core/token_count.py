"""Estimate the number of LLM tokens of a text without a tokenizer.

Tokenizers of current models are large or not public. The estimate is a weighted count of words,
camelCase boundaries, digits and runs of signs; the weights were fitted to one public tokenizer on real
tool definitions. docs/explanation/prompt-caching.md compares it with other tokenizers. An exact counter
can be used instead: any function from a text to a number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from toolcrib.core.callbacks import discard_awaitable
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

TokenCounter = Callable[[str], int]
# Returns the tokens of a tool's definition in a request.
ToolTokenCounter = Callable[[Tool], int]

# Most words are one token each; of a longer word, every four more letters are another token.
LONG_WORD_CHARS: Final = 12
CHARS_PER_TOKEN: Final = 4
MAX_CACHED_COUNTS: Final = 50_000

_WORD = re.compile(r"[A-Za-z]+")
_HUMP = re.compile(r"[a-z][A-Z]")
_DIGITS = re.compile(r"[0-9]{1,3}")
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]+")
_BREAK = re.compile(r"\s{2,}|\n")
_FOREIGN = re.compile(r"[^\x00-\x7f]")


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text; at least one unless it is empty."""
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
    """Return the definition of a tool that a model is sent, as JSON."""
    fields = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=MAX_CACHED_COUNTS)
def count_tool_tokens(tool: Tool, count: TokenCounter = estimate_tokens) -> int:
    """Return the estimated number of tokens of a tool's definition in a request."""
    return count_tokens(render_definition(tool), count)


def count_tokens(text: str, count: TokenCounter) -> int:
    """Return the tokens of a text. Raises `InvalidConfig` if the counter returns no number."""
    tokens: object = count(text)
    discard_awaitable(tokens)
    if not isinstance(tokens, int | float) or not 0 <= tokens < math.inf:
        raise InvalidConfig(f"a token counter must return a number from 0, not {tokens!r}")
    return math.ceil(tokens)
