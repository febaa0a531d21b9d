"""The fields of a tool that are searched: their texts, their weights, and how they are analyzed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from toolcrib.core import text
from toolcrib.core.schema import list_parameter_texts
from toolcrib.core.tool import Tool

# Only the beginning of a very long field is indexed.
MAX_FIELD_TERMS: Final = 2_000
MAX_FIELD_CHARS: Final = 40_000


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of a tool, and its weight in BM25.

    An occurrence counts `weight`, normalized by the length of the field relative to `pivot` terms;
    `b` (0 to 1) is the influence of the length. The pivot is a constant, not the mean of the catalog,
    so that adding a tool does not change the impacts of other tools.
    """

    name: str
    weight: float
    b: float
    pivot: float
    is_identifier: bool = False

    @overload
    def occurrence_weight(self, length: int) -> float: ...

    @overload
    def occurrence_weight(self, length: NDArray[np.int64]) -> NDArray[np.floating[Any]]: ...

    def occurrence_weight(self, length: int | NDArray[np.int64]) -> float | NDArray[np.floating[Any]]:
        """Return the weight of one occurrence in a field of this many terms."""
        return self.weight / (1 - self.b + self.b * length / self.pivot)


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """The fields of a tool, and functions that extract their texts, find the words and analyze each."""

    fields: tuple[SearchField, ...]
    extract_texts: Callable[[Tool], Sequence[str]]
    find_words: Callable[[str], list[str]] = text.find_words
    analyze_word: Callable[[str], text.TextWord] = text.analyze_word
    is_stop_word: Callable[[str], bool] = text.is_stop_word

    def split_words(self, text: str) -> list[text.TextWord]:
        """Return the analyzed words of a text."""
        return list(map(self.analyze_word, self.find_words(text)))


def _extract_texts(tool: Tool) -> tuple[str, ...]:
    found = list_parameter_texts(tool.input_schema)
    return (
        tool.name,
        tool.title,
        tool.description,
        tool.hint,
        " ".join(tool.tags),
        tool.category,
        tool.server,
        " ".join([parameter.name for parameter in found]),
        " ".join([text for parameter in found for text in (parameter.description, *parameter.choices)]),
        tool.server_description,
        "\n".join(tool.example_requests),
    )


TOOL_FIELDS: Final = FieldConfig(
    fields=(
        SearchField("name", weight=3.0, b=0.6, pivot=3, is_identifier=True),
        SearchField("title", weight=1.5, b=0.3, pivot=3),
        SearchField("description", weight=1.0, b=0.6, pivot=20),
        SearchField("hint", weight=1.0, b=0.6, pivot=20),
        SearchField("tags", weight=1.5, b=0.3, pivot=3, is_identifier=True),
        SearchField("category", weight=0.5, b=0.3, pivot=2, is_identifier=True),
        SearchField("server", weight=1.0, b=0.3, pivot=2, is_identifier=True),
        SearchField("parameter", weight=0.8, b=0.8, pivot=6, is_identifier=True),
        SearchField("parameter_text", weight=0.5, b=0.8, pivot=20),
        SearchField("server_description", weight=0.3, b=0.6, pivot=20),
        SearchField("example", weight=0.5, b=0.6, pivot=20),
    ),
    extract_texts=_extract_texts,
)
