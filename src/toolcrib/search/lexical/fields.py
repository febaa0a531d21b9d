"""How a tool is read: which texts it has, how each is cut into terms, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from toolcrib.core import text
from toolcrib.core.schema import parameters
from toolcrib.core.tool import Tool

# Somebody else's text may be a book. What comes after this much of a field is not searched.
MAX_FIELD_TERMS: Final = 2_000
MAX_FIELD_CHARS: Final = 40_000

# Stands between terms that are not neighbours in the text.
GAP: Final = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a tool and what a hit in it is worth.

    A term counts `weight` times, divided by how much longer than `pivot` terms the field is (`b`
    says how much length matters, 0 to 1). The pivot is a constant and not the mean of the catalog:
    so a tool's numbers depend on that tool alone, and adding a tool never touches another one's.
    """

    name: str
    weight: float
    b: float
    pivot: float
    identifiers: bool = False

    @overload
    def worth(self, length: int) -> float: ...

    @overload
    def worth(self, length: NDArray[np.int64]) -> NDArray[np.floating[Any]]: ...

    def worth(self, length: int | NDArray[np.int64]) -> float | NDArray[np.floating[Any]]:
        """What one occurrence counts in a field of this many terms."""
        return self.weight / (1 - self.b + self.b * length / self.pivot)


@dataclass(frozen=True, slots=True)
class Reading:
    """Fields, the texts a tool has for them in the same order, and the rule that cuts texts."""

    fields: tuple[Field, ...]
    texts: Callable[[Tool], Sequence[str]]
    words: Callable[[str], list[text.Word]] = text.words
    is_stop_word: Callable[[str], bool] = text.is_stop_word

    def terms(self, tool: Tool) -> list[list[str]]:
        """The terms of each field, in order."""
        return [
            self._field_terms(field, words) if words else []
            for field, words in zip(self.fields, self.texts(tool), strict=True)
        ]

    def _field_terms(self, field: Field, written: str) -> list[str]:
        """In prose a compound is one word among others (`GitHub`), in an identifier its parts are.

        The other form follows behind a gap: found as a word, but not part of a phrase.
        """
        stream: list[str] = []
        other: list[str] = []
        is_stop_word = self.is_stop_word
        for _, whole, parts in self.words(written[:MAX_FIELD_CHARS]):
            if field.identifiers:
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


def _texts(tool: Tool) -> tuple[str, ...]:
    found = parameters(tool.input_schema)
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


TOOL_READING: Final = Reading(
    fields=(
        Field("name", weight=3.0, b=0.6, pivot=3, identifiers=True),
        Field("title", weight=1.5, b=0.3, pivot=3),
        Field("description", weight=1.0, b=0.6, pivot=20),
        Field("hint", weight=1.0, b=0.6, pivot=20),
        Field("tags", weight=1.5, b=0.3, pivot=3, identifiers=True),
        Field("category", weight=0.5, b=0.3, pivot=2, identifiers=True),
        Field("server", weight=1.0, b=0.3, pivot=2, identifiers=True),
        Field("parameter", weight=0.8, b=0.8, pivot=6, identifiers=True),
        Field("parameter_text", weight=0.5, b=0.8, pivot=20),
        Field("server_description", weight=0.3, b=0.6, pivot=20),
    ),
    texts=_texts,
)
