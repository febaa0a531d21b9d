"""Read the arguments of a model's search, and the names in the reply to one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def parse_queries(arguments: Mapping[str, Any]) -> list[str]:
    """Return the queries of a search: `query`, `queries`, or both, as a list or a text."""
    several = arguments.get("queries")
    values = [arguments.get("query"), *(several if isinstance(several, list) else [several])]
    texts = (value.strip() for value in values if isinstance(value, str))
    return list(dict.fromkeys(filter(None, texts)))


def parse_limit(arguments: Mapping[str, Any], default: int, most: int) -> int:
    """Return how many hits a search asks for, between 1 and `most`."""
    limit = arguments.get("limit")
    # The last condition excludes NaN.
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit:
        return default
    return int(min(max(limit, 1), most))


def parse_found_names(text: str) -> tuple[str, ...]:
    """Return the names in the reply to a search; none if the text is something else, or was cut."""
    try:
        return tuple(str(entry["name"]) for entry in json.loads(text)["found"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
