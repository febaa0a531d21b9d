"""JSONPath (RFC 9535) over stored results, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from jsonpath import JSONPathEnvironment, JSONPathError
from jsonpath.function_extensions import ExpressionType, FilterFunction

from toolcrib.errors import InvalidQuery
from toolcrib.gateway.mcp.results.document import join_path
from toolcrib.search.regex import Deadline, compile_pattern

BUDGET_SECONDS: Final = 2.0
MAX_PATH_CHARS: Final = 500
MAX_MATCHES: Final = 100_000


class _PatternFunction(FilterFunction):
    """`search` or `match` of RFC 9535 with a time budget."""

    arg_types: Final = [ExpressionType.VALUE, ExpressionType.VALUE]
    return_type = ExpressionType.LOGICAL

    def __init__(self, environment: _BoundedEnvironment, *, whole: bool) -> None:
        self._environment = environment
        self._whole = whole

    def __call__(self, value: object, pattern: object) -> bool:
        """Return whether a string matches a pattern."""
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        compiled = compile_pattern(f"^(?:{pattern})$" if self._whole else pattern)
        return bool(compiled.search_timed(value, self._environment.deadline))


class _BoundedEnvironment(JSONPathEnvironment):
    """An environment for one query; every access to a member checks the deadline."""

    def __init__(self) -> None:
        super().__init__(strict=True)
        message = f"`path` did not finish within {BUDGET_SECONDS:g} seconds; make it simpler"
        self.deadline = Deadline(time.monotonic() + BUDGET_SECONDS, message)
        self._accesses = 0

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["search"] = _PatternFunction(self, whole=False)
        self.function_extensions["match"] = _PatternFunction(self, whole=True)

    def getitem(self, obj: Any, key: Any) -> Any:
        self._accesses += 1
        if self._accesses % 256 == 0:
            self.deadline.remaining_seconds()
        return super().getitem(obj, key)

    def compare(self, left: object, operator: str, right: object) -> bool:
        self._accesses += 1
        if self._accesses % 256 == 0:
            self.deadline.remaining_seconds()
        return super().compare(left, operator, right)


def find_by_path(value: Mapping[str, Any] | Sequence[Any], path: str) -> list[tuple[str, Any]]:
    """Return the location and value of each match; raise `InvalidQuery` for an invalid path."""
    if len(path) > MAX_PATH_CHARS:
        raise InvalidQuery(f"`path` has more than {MAX_PATH_CHARS} characters; shorten it")
    text = path.strip()
    if not text.startswith("$"):
        text = f"${text}" if text.startswith(("[", ".")) else f"$.{text}"
    environment = _BoundedEnvironment()
    matches: list[tuple[str, Any]] = []
    try:
        query = environment.compile(text)
        for match in islice(query.finditer(value), MAX_MATCHES):
            matches.append((_plain_location(match.parts), match.obj))
            if len(matches) % 256 == 0:
                environment.deadline.remaining_seconds()
    except (JSONPathError, RecursionError) as error:
        reason = " ".join(str(error).partition(" -> ")[0].split())[:200]
        raise InvalidQuery(f"`path` is not a valid JSONPath: {reason}; for example: $.items[0:10].name") from None
    return matches


def _plain_location(parts: Sequence[int | str]) -> str:
    location = "$"
    for part in parts:
        location = f"{location}[{part}]" if isinstance(part, int) else join_path(location, part)
    return location
