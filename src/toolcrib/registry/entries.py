"""What a registry keeps: a tool, its function, and how it has been used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

FIRST_VERSION = "1"
VERSION_SEPARATOR = "@"

_VERSION_PATTERN = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}", re.ASCII)

VersionNumbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegistryUsage:
    """How often a tool has done its work, how often it failed, and when it last ran."""

    successes: int = 0
    failures: int = 0
    last_used: datetime | None = None

    def __add__(self, other: RegistryUsage) -> RegistryUsage:
        used = [used for used in (self.last_used, other.last_used) if used]
        return RegistryUsage(
            self.successes + other.successes,
            self.failures + other.failures,
            max(used, default=None),
        )


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One version of a tool, and what does its work.

    `bound` makes of JSON arguments a function that is ready to be called. `successor` is what to
    use instead, where this version is deprecated.
    """

    tool: Tool
    bind: Callable[[Mapping[str, Any]], Callable[[], Any]]
    timeout_seconds: float | None
    enabled: bool = True
    successor: str = ""

    @property
    def reference(self) -> str:
        """The name that means this version and no other."""
        return f"{self.tool.id}{VERSION_SEPARATOR}{self.tool.version}"

    @property
    def version_numbers(self) -> VersionNumbers:
        """The version as numbers."""
        return parse_version(self.tool.version)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A tool that is about to be run, and with what."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """How a run ended: with a value, or with a fault."""

    invocation: Invocation
    value: Any
    error: BaseException | None
    seconds: float


def parse_version(version: str) -> VersionNumbers:
    """A version as numbers, so that 1.10 comes after 1.9, and 1.0 is 1."""
    if not _VERSION_PATTERN.fullmatch(version):
        raise InvalidTool(
            f"version {version[:40]!r} cannot be put in order; "
            "use numbers with dots between them, such as 2 or 1.4"
        )
    numbers = [int(number) for number in version.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def split_reference(reference: str) -> tuple[str, str]:
    """The name and the version in `name@version`; without one, the version is empty."""
    name, _, version = reference.partition(VERSION_SEPARATOR)
    return name, version
