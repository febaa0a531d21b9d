"""A finding of a definition scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingCategory = Literal[
    "hidden", "bidi", "encoded", "order", "secret", "reference", "lookalike", "size"
]
# High: rare in legitimate definitions. Low: worth a look, and often harmless.
Severity = Literal["high", "low"]


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Suspicious text in a tool definition."""

    category: FindingCategory
    location: str
    message: str
    severity: Severity
