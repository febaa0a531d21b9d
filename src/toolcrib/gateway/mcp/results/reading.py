"""Reads of a stored result: pages, JSONPath, and searches for text or a pattern."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from jsonpath import JSONPathEnvironment, JSONPathError
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.parse import Parser
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment

from toolcrib.core.token_count import estimate_tokens
from toolcrib.errors import InvalidQuery
from toolcrib.gateway.mcp.results.document import ResultDocument, encode_json, join_path, shorten_json
from toolcrib.gateway.mcp.results.preview import cut_line, find_main_part
from toolcrib.search.regex import Deadline, compile_pattern

BUDGET_SECONDS: Final = 2.0
MAX_PATH_CHARS: Final = 500
MAX_PATH_MATCHES: Final = 100_000
MAX_SEARCH_CHARS: Final = 500
REGEX_BUDGET_SECONDS: Final = 2.0
MAX_MATCHES: Final = 10_000
# Up to this number of matching lines are shown with the lines around them.
MAX_CONTEXT_MATCHES: Final = 3
CONTEXT_LINES: Final = 3
DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 1_000
# A longer string is searched line by line.
_LONG_TEXT_CHARS: Final = 500
_WORD: Final = re.compile(r"\w+")
_INDEX: Final = re.compile(r"\[\d+\]")
_MIN_ENTRY_TOKENS: Final = 60

Key = TypeVar("Key", bound=Hashable)


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


class _ChildSegment(JSONPathChildSegment):
    env: _BoundedEnvironment

    def resolve(self, nodes: Iterable[Any]) -> Iterable[Any]:
        return super().resolve(self.env.check_each(nodes))


class _DescentSegment(JSONPathRecursiveDescentSegment):
    env: _BoundedEnvironment

    def resolve(self, nodes: Iterable[Any]) -> Iterable[Any]:
        return super().resolve(self.env.check_each(nodes))


class _BoundedParser(Parser):
    def parse_query(self, stream: Any) -> Iterator[JSONPathSegment]:
        for segment in super().parse_query(stream):
            kind = _DescentSegment if isinstance(segment, JSONPathRecursiveDescentSegment) else _ChildSegment
            yield kind(env=segment.env, token=segment.token, selectors=segment.selectors)


class _BoundedEnvironment(JSONPathEnvironment):
    """An environment for one query; every visit of a value checks the deadline."""

    parser_class = _BoundedParser

    def __init__(self) -> None:
        super().__init__(strict=True)
        message = f"`path` did not finish within {BUDGET_SECONDS:g} seconds; make it simpler"
        self.deadline = Deadline(time.monotonic() + BUDGET_SECONDS, message)
        self._accesses = 0

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["search"] = _PatternFunction(self, whole=False)
        self.function_extensions["match"] = _PatternFunction(self, whole=True)

    @property
    def max_recursion_depth(self) -> int:  # type: ignore[override]
        """The maximum depth of `..`, which reads it for each value that it visits."""
        self._check_deadline()
        return JSONPathEnvironment.max_recursion_depth

    def check_each(self, nodes: Iterable[Key]) -> Iterator[Key]:
        """Yield the nodes that a segment gets."""
        for node in nodes:
            self._check_deadline()
            yield node

    def compare(self, left: object, operator: str, right: object) -> bool:
        self._check_deadline()
        return super().compare(left, operator, right)

    def _check_deadline(self) -> None:
        self._accesses += 1
        if self._accesses % 256 == 0:
            self.deadline.remaining_seconds()


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
        for match in islice(environment.check_each(query.finditer(value)), MAX_PATH_MATCHES):
            matches.append((_plain_location(match.parts), match.obj))
    except (JSONPathError, RecursionError) as error:
        reason = " ".join(str(error).partition(" -> ")[0].split())[:200]
        raise InvalidQuery(f"`path` is not a valid JSONPath: {reason}; for example: $.items[0:10].name") from None
    return matches


def _plain_location(parts: Sequence[int | str]) -> str:
    location = "$"
    for part in parts:
        location = f"{location}[{part}]" if isinstance(part, int) else join_path(location, part)
    return location


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read of a result. `offset` and `limit` count items, matches or lines."""

    path: str = ""
    search: str = ""
    regex: str = ""
    offset: int = 0
    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True)
class _Entry:
    """One item, match or line, and where it is."""

    location: str
    value: Any


def read_document(document: ResultDocument, request: ReadRequest, max_tokens: int) -> str:
    """Return the requested part of a document within about `max_tokens` tokens.

    Raises `InvalidQuery` or `SearchTimeout` with advice for the model.
    """
    if request.search and request.regex:
        raise InvalidQuery("use either `search` or `regex`")
    if request.path:
        if not document.is_json:
            raise InvalidQuery("`path` needs a JSON result; this one is text: use `search`, `regex` or `offset`")
        return _read_path(document, request, max_tokens)
    if request.search or request.regex:
        is_json, found = document.is_json, _quote_search(request)
        entries = _search_value(document.value if is_json else document.text, "$" if is_json else "", request)
        what = f"matches of {found}" if is_json else f"lines for {found}"
        # With the header of a table, the cells of a row have names.
        heading = "" if document.table is None else " | ".join(document.table.columns)
        return _render_entries(entries, request, max_tokens, what, heading)
    if document.is_json:
        # An object has no items to skip, so `offset` counts those that the preview shows.
        is_list = isinstance(document.value, list)
        part = find_main_part(document.value) if request.offset and not is_list else ("$", document.value)
        return _read_value(*part, request, max_tokens)
    return _read_lines(document.text, request, max_tokens)


def _read_path(document: ResultDocument, request: ReadRequest, max_tokens: int) -> str:
    matches = find_by_path(document.value, request.path)
    if not matches:
        return f"Nothing matches {request.path}."
    if request.search or request.regex:
        found = [entry for location, value in matches for entry in _search_value(value, location, request)]
        return _render_entries(found, request, max_tokens, f"matches of {_quote_search(request)} in {request.path}")
    if len(matches) == 1:
        location, value = matches[0]
        return _read_value(location, value, request, max_tokens)
    entries = [_Entry(location, value) for location, value in matches]
    return _render_entries(entries, request, max_tokens, f"matches of {request.path}")


def _read_value(location: str, value: Any, request: ReadRequest, max_tokens: int) -> str:
    if isinstance(value, str) and len(value) <= _LONG_TEXT_CHARS:
        return f"{location}: {value}"
    if isinstance(value, str):
        return f"{location}:\n{_read_lines(value, request, max_tokens)}"
    if isinstance(value, list):
        entries = [_Entry(f"{location}[{number}]", item) for number, item in enumerate(value)]
        return _render_entries(entries, request, max_tokens, f"items of {location}")
    return f"{location}: {shorten_json(value, max_tokens)}"


def _read_lines(text: str, request: ReadRequest, max_tokens: int) -> str:
    lines = text.splitlines()
    # Lines that are too long for a page can't be counted.
    if len(text) > max_tokens * 4 * len(lines):
        return _read_characters(text, request, max_tokens)
    selected = lines[request.offset : request.offset + request.limit]
    shown: list[str] = []
    tokens = 0
    for number, line in enumerate(selected, request.offset + 1):
        rendered = f"{number}: {cut_line(line) if len(line) > max_tokens * 3 else line}"
        tokens += estimate_tokens(rendered) + 1
        if shown and tokens > max_tokens:
            break
        shown.append(rendered)
    end = request.offset + len(shown)
    if not shown:
        return f"There are {len(lines):,} lines; `offset` is beyond them."
    note = f"Lines {request.offset + 1:,} to {end:,} of {len(lines):,}."
    more = f" Continue with offset={end}." if end < len(lines) else ""
    return "\n".join([note + more, *shown])


def _read_characters(text: str, request: ReadRequest, max_tokens: int) -> str:
    """Return a page of a text with few line breaks; `offset` counts characters."""
    end = min(request.offset + max_tokens * 3, len(text))
    if request.offset >= len(text):
        return f"There are {len(text):,} characters; `offset` is beyond them."
    more = f" Continue with offset={end}." if end < len(text) else ""
    return f"Characters {request.offset:,} to {end:,} of {len(text):,}.{more}\n{text[request.offset : end]}"


def _render_entries(entries: list[_Entry], request: ReadRequest, max_tokens: int, what: str, heading: str = "") -> str:
    """Return a page of entries; an entry that is too large is shortened."""
    page = entries[request.offset : request.offset + request.limit]
    if not entries:
        return f"0 {what}."
    if not page:
        return f"There are {len(entries):,} {what}; `offset` is beyond them."
    shown: list[str] = []
    left = float(max_tokens)
    # One entry may take half of the page, so that others are seen too.
    share = max(left / 2 if len(page) > 1 else left, _MIN_ENTRY_TOKENS)
    for entry in page:
        value = entry.value
        text = (
            cut_line(value)
            if isinstance(value, str)
            else shorten_json(value, round(min(share, max(left, _MIN_ENTRY_TOKENS))))
        )
        line = f"{entry.location}: {text}"
        cost = estimate_tokens(line) + 1
        if shown and cost > left:
            break
        shown.append(line)
        left -= cost
    end = request.offset + len(shown)
    note = f"{request.offset + 1:,} to {end:,} of {len(entries):,} {what}."
    more = f" Continue with offset={end}." if end < len(entries) else ""
    return "\n".join(filter(None, [note + more, heading, *shown]))


def _quote_search(request: ReadRequest) -> str:
    return encode_json(request.search or request.regex)


def _search_value(value: Any, location: str, request: ReadRequest) -> list[_Entry]:
    """Return the records with a match; those with an equal value come first."""
    if isinstance(value, str):
        return list(_search_text(value, location, request))
    leaves = list(_iter_leaves(value, location))
    if request.regex:
        find = _build_finder(request)
        return _collect_records(leaf for leaf in leaves if find(leaf.text) >= 0)
    wanted = request.search.casefold()
    _check_length(wanted)
    equal = [leaf for leaf in leaves if leaf.folded == wanted]
    found = [leaf for leaf in leaves if wanted in leaf.folded and leaf.folded != wanted]
    records = _collect_records(iter([*equal, *found]))
    if not records:
        records = _collect_records(leaf for leaf in leaves if wanted in _INDEX.sub("", leaf.location).casefold())
    if records:
        return records
    # No record has the text literally.
    by_location = {leaf.record.location: leaf.record for leaf in leaves}
    ranked = _rank_by_words(((leaf.record.location, leaf.folded) for leaf in leaves), wanted)
    return [by_location[location] for location in ranked]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A scalar of a JSON value, and the innermost record that contains it."""

    text: str
    folded: str
    location: str
    record: _Entry


def _iter_leaves(value: Any, location: str) -> Iterator[_Leaf]:
    root = _Entry(location, value)
    pending: list[tuple[str, Any, _Entry]] = [(location, value, root)]
    while pending:
        path, item, record = pending.pop()
        if isinstance(item, Mapping):
            pending += reversed([(join_path(path, name), inner, record) for name, inner in item.items()])
        elif isinstance(item, list):
            for number in range(len(item) - 1, -1, -1):
                inner, place = item[number], f"{path}[{number}]"
                owner = _Entry(place, inner) if isinstance(inner, Mapping | list) else record
                pending.append((place, inner, owner))
        elif isinstance(item, str) and len(item) > _LONG_TEXT_CHARS:
            for number, line in enumerate(item.splitlines(), 1):
                yield _Leaf(line, line.casefold(), path, _Entry(f"{path} line {number}", line))
        else:
            text = item if isinstance(item, str) else encode_json(item)
            # A value outside of any array is shown alone, not with the whole document.
            owner = _Entry(path, item) if record is root else record
            yield _Leaf(text, text.casefold(), path, owner)


def _collect_records(leaves: Iterator[_Leaf]) -> list[_Entry]:
    records: dict[str, _Entry] = {}
    for leaf in leaves:
        records.setdefault(leaf.record.location, leaf.record)
        if len(records) >= MAX_MATCHES:
            break
    return list(records.values())


def _rank_by_words(texts: Iterable[tuple[Key, str]], wanted: str) -> list[Key]:
    """Return the keys of the texts with the most words of a search; texts with the same key count together."""
    words = set(_WORD.findall(wanted))
    found: dict[Key, set[str]] = {}
    for key, text in texts:
        if present := {word for word in words if word in text}:
            found.setdefault(key, set()).update(present)
    best = max(map(len, found.values()), default=0)
    # A single common word would match almost everything.
    ranked = sorted(found, key=lambda key: -len(found[key]))
    return [key for key in ranked if len(found[key]) >= max(best - 1, 1)][:MAX_MATCHES]


def _search_text(text: str, location: str, request: ReadRequest) -> Iterator[_Entry]:
    lines = text.splitlines()
    prefix = f"{location} line " if location else "line "
    find = _build_finder(request)

    def entry(number: int) -> _Entry:
        return _Entry(f"{prefix}{number + 1}", _line_excerpt(lines[number], find))

    def with_context(numbers: list[int]) -> Iterator[_Entry]:
        """Yield the matching lines; if they are few, with the lines around them."""
        distance = CONTEXT_LINES if len(numbers) <= MAX_CONTEXT_MATCHES and not location else 0
        # The lines up to the last match have to fit into the page.
        while distance and len(numbers) * (2 * distance + 1) - distance > request.limit:
            distance -= 1
        shown = {near for number in numbers for near in range(number - distance, number + distance + 1)}
        yield from (entry(number) for number in sorted(shown) if 0 <= number < len(lines))

    if request.regex:
        yield from with_context([number for number, line in enumerate(lines) if find(line) >= 0][:MAX_MATCHES])
        return
    wanted = request.search.casefold()
    _check_length(wanted)
    folded = [line.casefold() for line in lines]
    if literal := [number for number, line in enumerate(folded) if wanted in line]:
        yield from with_context(literal[:MAX_MATCHES])
        return
    yield from map(entry, _rank_by_words(enumerate(folded), wanted))


def _line_excerpt(line: str, find: Callable[[str], int]) -> str:
    """Return a line; of a very long one, the part around the match."""
    if len(line) <= 400:
        return line
    start = max(find(line) - 150, 0)
    return f"{'…' if start else ''}{line[start : start + 290]}…"


def _check_length(text: str) -> None:
    if len(text) > MAX_SEARCH_CHARS:
        raise InvalidQuery(f"`search` has more than {MAX_SEARCH_CHARS} characters; shorten it")


def _build_finder(request: ReadRequest) -> Callable[[str], int]:
    """Return a function that returns where a line matches, or -1; all calls share one time budget."""
    if not request.regex:
        return lambda text: text.casefold().find(request.search.casefold())
    pattern = compile_pattern(request.regex, ignore_case=True)
    message = f"`regex` did not finish within {REGEX_BUDGET_SECONDS:g} seconds; make it simpler, or use `search`"
    deadline = Deadline(time.monotonic() + REGEX_BUDGET_SECONDS, message)

    def find(text: str) -> int:
        match = pattern.search_timed(text, deadline)
        return match.start() if match else -1

    return find
