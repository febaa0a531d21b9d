"""Why a tool was found, put for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.cli.printing import sanitize
from toolcrib.search.ranker import MatchReason


def format_reasons(reasons: Sequence[MatchReason]) -> str:
    """The reasons by term, such as `refund (name 40%, title 12%), money (description 9%)`."""
    fields: dict[str, list[str]] = {}
    for one in reasons:
        place = f"{one.field.replace('_', ' ')} {one.share:.0%}"
        fields.setdefault(sanitize(one.term), []).append(place)
    return ", ".join(f"{term} ({', '.join(places)})" for term, places in fields.items())


def reasons_to_json(reasons: Sequence[MatchReason]) -> list[dict[str, Any]]:
    """The reasons as JSON values."""
    return [{"term": one.term, "field": one.field, "share": round(one.share, 6)} for one in reasons]
