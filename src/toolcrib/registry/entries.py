"""The records of a registry: a tool with its function, its usage, and one call of it."""

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
    """How often a tool succeeded and failed, and when it last ran."""

    successes: int = 0
    failures: int = 0
    last_used: datetime | None = None

    def __add__(self, other: RegistryUsage) -> RegistryUsage:
        dates = [date for date in (self.last_used, other.last_used) if date]
        return RegistryUsage(
            self.successes + other.successes,
            self.failures + other.failures,
            max(dates, default=None),
        )


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One version of a tool, and the function behind it.

    `bind` turns JSON arguments into a callable without parameters. `successor` names the tool to
    use instead if this version is deprecated.
    """

    tool: Tool
    bind: Callable[[Mapping[str, Any]], Callable[[], Any]]
    timeout_seconds: float | None
    enabled: bool = True
    successor: str = ""

    @property
    def reference(self) -> str:
        """The name that refers to this version only."""
        return f"{self.tool.id}{VERSION_SEPARATOR}{self.tool.version}"

    @property
    def version_numbers(self) -> VersionNumbers:
        """The version as a tuple of numbers, for comparison."""
        return parse_version(self.tool.version)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A tool that is about to run, and its arguments."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """The result of a run: a value, or an error."""

    invocation: Invocation
    value: Any
    error: BaseException | None
    seconds: float


@dataclass(slots=True)
class RegistryRun:
    """A call in progress: `work` runs the function, `value` is its result."""

    entry: RegistryEntry
    invocation: Invocation
    work: Callable[[], Any] = lambda: None
    value: Any = None


def parse_version(version: str) -> VersionNumbers:
    """Return a version as numbers, so that 1.10 sorts after 1.9 and 1.0 equals 1."""
    if not _VERSION_PATTERN.fullmatch(version):
        raise InvalidTool(
            f"version {version[:40]!r} is not valid; "
            "use numbers separated by dots, such as 2 or 1.4"
        )
    numbers = [int(number) for number in version.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def split_reference(reference: str) -> tuple[str, str]:
    """Return the name and the version in `name@version`; an empty version if it has none."""
    name, _, version = reference.partition(VERSION_SEPARATOR)
    return name, version
