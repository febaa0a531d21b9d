"""How a setting is told beside its field: its JSON key, what it means, its default and its range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """How one setting is told in the file: its key, its meaning, and what it may be."""

    key: str
    description: str
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False


def setting(
    key: str,
    default: T,
    meaning: str,
    least: float | None = None,
    most: float | None = None,
    secret: bool = False,
) -> T:
    """A field with a default; what may be secret is not shown."""
    told = SettingInfo(key, meaning, least, most, secret)
    # The type checker is told of the default, as it is for `field` itself.
    made: Any = field(default=default, repr=not secret, metadata={"setting": told})
    return made  # type: ignore[no-any-return]


def mapping(key: str, meaning: str, secret: bool = True) -> Mapping[str, str]:
    """A field of names and texts, empty by default."""
    factory: Callable[[], Mapping[str, str]] = dict
    told = SettingInfo(key, meaning, secret=secret)
    return field(default_factory=factory, repr=not secret, metadata={"setting": told})
