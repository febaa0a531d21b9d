"""Argument types of the demo tools, with their limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_CHARS = 20_000
MAX_ITEMS = 2_000

Text = Annotated[str, Field(description="The text.", max_length=MAX_CHARS)]
Word = Annotated[str, Field(max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Numbers = Annotated[
    list[Number], Field(description="The numbers.", min_length=1, max_length=MAX_ITEMS)
]
Items = Annotated[list[str], Field(description="The items.", max_length=MAX_ITEMS)]
Whole = Annotated[int, Field(ge=0, le=10**12)]
Day = Annotated[str, Field(description="A day, such as 2026-07-28.", max_length=10)]
