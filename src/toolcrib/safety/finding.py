"""What a scan finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingCategory = Literal[
    "hidden", "bidi", "encoded", "order", "secret", "reference", "lookalike", "size"
]
# High: hardly ever in an honest definition. Low: worth a look, and often innocent.
Severity = Literal["high", "low"]


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Something in a definition that may be there to mislead: what, where, and how grave."""

    category: FindingCategory
    location: str
    message: str
    severity: Severity
