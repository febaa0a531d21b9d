"""How a tool is read: which texts it has, how each is cut into terms, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from toolcrib.core import text
from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool

# Somebody else's text may be a book. What comes after this much of a field is not searched.
MAX_FIELD_TERMS: Final = 2_000
MAX_FIELD_CHARS: Final = 40_000

# Stands between terms that are not neighbours in the text.
GAP: Final = ""


@dataclass(frozen=True, slots=True)
class SearchField:
    """One field of a tool and what a hit in it is worth.

    A term counts `weight` times, divided by how much longer than `pivot` terms the field is (`b`
    says how much length matters, 0 to 1). The pivot is a constant and not the mean of the catalog:
    so a tool's numbers depend on that tool alone, and adding a tool never touches another one's.
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

    def occurrence_weight(
        self, length: int | NDArray[np.int64]
    ) -> float | NDArray[np.floating[Any]]:
        """What one occurrence counts in a field of this many terms."""
        return self.weight / (1 - self.b + self.b * length / self.pivot)


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """Fields, the texts a tool has for them in the same order, and the rule that cuts texts."""

    fields: tuple[SearchField, ...]
    extract_texts: Callable[[Tool], Sequence[str]]
    split_words: Callable[[str], list[text.TextWord]] = text.split_words
    is_stop_word: Callable[[str], bool] = text.is_stop_word

    def analyze(self, tool: Tool) -> list[list[str]]:
        """The terms of each field, in order."""
        return [
            self._analyze_field(field, words) if words else []
            for field, words in zip(self.fields, self.extract_texts(tool), strict=True)
        ]

    def _analyze_field(self, field: SearchField, written: str) -> list[str]:
        """In prose a compound is one word among others (`GitHub`), in an identifier its parts are.

        The other form follows behind a gap: found as a word, but not part of a phrase.
        """
        stream: list[str] = []
        other: list[str] = []
        is_stop_word = self.is_stop_word
        for _, whole, parts in self.split_words(written[:MAX_FIELD_CHARS]):
            if field.is_identifier:
                stream += parts
                if parts[0] != whole:
                    other.append(whole)
            elif not is_stop_word(whole):
                stream.append(whole)
                if parts[0] != whole:
                    other += parts
            if len(stream) >= MAX_FIELD_TERMS:
                break
        return [*stream, GAP, *other] if other else stream


def _extract_texts(tool: Tool) -> tuple[str, ...]:
    found = list_parameters(tool.input_schema)
    return (
        tool.name,
        tool.title,
        tool.description,
        tool.hint,
        " ".join(tool.tags),
        tool.category,
        tool.server,
        " ".join(parameter.name for parameter in found),
        " ".join(" ".join((parameter.description, *parameter.choices)) for parameter in found),
        tool.server_description,
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
    ),
    extract_texts=_extract_texts,
)
