"""Regular expressions with the meaning of Python's `re` and an end that always comes."""

from __future__ import annotations

from toolcrib.search.regex.deadline import Deadline
from toolcrib.search.regex.passages import Passages
from toolcrib.search.regex.syntax import Pattern
from toolcrib.search.regex.translate import read

__all__ = ["Deadline", "Passages", "Pattern", "read"]
