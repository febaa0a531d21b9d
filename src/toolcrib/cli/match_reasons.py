"""Why a tool was found, put for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.cli.printing import plain
from toolcrib.search.ranker import Reason


def reasons_in_words(reasons: Sequence[Reason]) -> str:
    """The reasons by term, such as `refund (name 40%, title 12%), money (description 9%)`."""
    fields: dict[str, list[str]] = {}
    for one in reasons:
        place = f"{one.field.replace('_', ' ')} {one.share:.0%}"
        fields.setdefault(plain(one.term), []).append(place)
    return ", ".join(f"{term} ({', '.join(places)})" for term, places in fields.items())


def reasons_in_json(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """The reasons as JSON values."""
    return [{"term": one.term, "field": one.field, "share": round(one.share, 6)} for one in reasons]
