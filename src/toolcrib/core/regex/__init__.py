"""Regular expressions with the meaning of Python's `re` and an end that always comes."""

from __future__ import annotations

from toolcrib.core.regex.deadline import Deadline
from toolcrib.core.regex.passages import Passages
from toolcrib.core.regex.syntax import Pattern
from toolcrib.core.regex.translate import read

__all__ = ["Deadline", "Passages", "Pattern", "read"]
