"""Read an eval set: a folder with tools and with queries whose answers are known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidCatalogFile, InvalidEvalSet, ToolcribError
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.files.json_file import JsonFile, read_json_file

# Metrics are also reported for each value of these fields.
FACETS = ("kind", "subset", "lang")

TOOLS_FILE: Final = "tools.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
FIELDS: Final = ("id", "query", "relevant", "groups", "any_of", *FACETS)
# Facet values are used as names of groups, so they must be short.
MAX_FACET_CHARS: Final = 100

_MAX_CHARS_SHOWN = 60

# Descriptions are similar if the longer one has this share of the shorter one's words.
MIN_WORD_OVERLAP: Final = 0.65
# A tool is compared with at most this many tools of the same name.
MAX_NAMESAKES: Final = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuery:
    """A query with its targets: for each target, one of several tools must be found.

    A query without targets is impossible: the correct result is that no tool fits.
    """

    id: str
    text: str
    targets: tuple[frozenset[str], ...]
    # Whether each target is a step of a task, so that covering all steps can be measured.
    has_steps: bool = False
    kind: str = ""
    subset: str = ""
    lang: str = ""

    @property
    def is_impossible(self) -> bool:
        """Whether no tool answers the query."""
        return not self.targets

    @property
    def relevant_ids(self) -> frozenset[str]:
        """The ids of all tools in any target."""
        return frozenset().union(*self.targets)


def build_targets(
    relevant: Sequence[str], groups: Iterable[Iterable[str]] = (), *, any_of: bool = False
) -> tuple[frozenset[str], ...]:
    """Return the groups if there are any, else one target with all tools or one per tool."""
    targets = tuple(map(frozenset, groups))
    if targets or not relevant:
        return targets
    if any_of:
        return (frozenset(relevant),)
    return tuple(frozenset((id,)) for id in dict.fromkeys(relevant))


@dataclass(frozen=True, slots=True)
class EvalSet:
    """A catalog with its queries."""

    name: str
    catalog: Catalog
    queries: tuple[EvalQuery, ...]

    def sample(self, count: int) -> EvalSet:
        """Return a set with at most `count` queries, evenly spaced over the list."""
        total = len(self.queries)
        if count >= total:
            return self
        sample = tuple(self.queries[number * total // count] for number in range(count))
        return EvalSet(self.name, self.catalog, sample)


def read_eval_sets(folders: Sequence[str | PathLike[str]]) -> list[EvalSet]:
    """Return the eval sets of several folders, with parent folders in names that are not unique."""
    paths = [Path(folder).resolve().parts for folder in folders]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InvalidEvalSet(f"{Path(folders[number])}: this folder is given twice; remove one")
    return [
        replace(read_eval_set(folder), name=_shortest_unique_suffix(path, paths))
        for folder, path in zip(folders, paths, strict=True)
    ]


def read_eval_set(folder: str | PathLike[str]) -> EvalSet:
    """Return the eval set of a folder.

    Any problem raises `InvalidEvalSet`, which names the file, the line, the field and the remedy.
    """
    path = Path(folder)
    if not path.is_dir():
        problem = "this is a file" if path.exists() else "there is no such folder"
        raise InvalidEvalSet(f"{path}: {problem}; choose a folder with {TOOLS_FILE} and {QUERIES_FILE}")
    for file in (TOOLS_FILE, QUERIES_FILE):
        if not (path / file).exists():
            raise InvalidEvalSet(
                f"{path}: there is no {file} in this folder; an eval set has {TOOLS_FILE} and {QUERIES_FILE}"
            )
    try:
        catalog = read_catalog_file(path / TOOLS_FILE)
    except InvalidCatalogFile as error:
        raise InvalidEvalSet(str(error)) from error
    source = read_json_file(path / QUERIES_FILE, InvalidEvalSet, "one JSON query per line")
    return EvalSet(path.resolve().name, catalog, _parse_queries(source, catalog))


def _parse_queries(source: JsonFile, catalog: Catalog) -> tuple[EvalQuery, ...]:
    queries: dict[str, EvalQuery] = {}
    starts: dict[str, int] = {}
    for start, value in source.iter_values():
        row = _QueryRow(source, start, value, catalog)
        query = row.parse()
        if query.id in queries:
            line = source.line_number(starts[query.id])
            raise row.error("id", f"is already used by the query on line {line}; change one")
        queries[query.id] = query
        starts[query.id] = start
    return tuple(queries.values())


class _QueryRow:
    """Parses one line of the queries file."""

    def __init__(self, source: JsonFile, start: int, value: object, catalog: Catalog) -> None:
        self._source = source
        self._start = start
        self._catalog = catalog
        if not isinstance(value, Mapping):
            raise source.error_at("a query must be a JSON object on its own line", start)
        self._entry: Mapping[str, Any] = value

    def parse(self) -> EvalQuery:
        """Return the query of this line."""
        for field in self._entry:
            if nearest := _find_nearest_field(field):
                raise self.error(field, f"is unknown; did you mean {nearest!r}?")
        relevant = self._parse_ids("relevant", self._get_required("relevant"))
        groups = self._parse_groups()
        if groups and {id for group in groups for id in group} != set(relevant):
            raise self.error("groups", "must contain exactly the tools of relevant")
        any_of = self._entry.get("any_of") or False
        if not isinstance(any_of, bool):
            raise self.error("any_of", "must be true or false")
        if any_of and groups:
            raise self.error("any_of", "and groups contradict each other; remove one of them")
        return EvalQuery(
            id=self._parse_text("id", self._get_required("id")),
            text=self._parse_text("query", self._get_required("query")),
            targets=build_targets(relevant, groups, any_of=any_of),
            has_steps=bool(groups),
            **{facet: self._parse_facet(facet) for facet in FACETS},
        )

    def error(self, field: str, problem: str) -> ToolcribError:
        """Return an error about a field of this line."""
        return self._source.error_at(f"{_truncate(field)} {problem}", self._start)

    def _get_required(self, field: str) -> object:
        value = self._entry.get(field)
        if value is None:
            note = " (an empty list means that no tool fits)" if field == "relevant" else ""
            raise self.error(field, f"is missing; add it{note}")
        return value

    def _parse_text(self, field: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "must be a string that is not empty")
        return value

    def _parse_facet(self, field: str) -> str:
        value = self._entry.get(field)
        if value is None or value == "":
            return ""
        text = self._parse_text(field, value)
        if len(text) > MAX_FACET_CHARS:
            raise self.error(field, f"has {len(text):,} characters; shorten it to {MAX_FACET_CHARS}")
        return text

    def _parse_groups(self) -> list[list[str]]:
        value = self._entry.get("groups") or []
        if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
            raise self.error("groups", "must be a list of lists of tool ids, one for each step")
        groups = [self._parse_ids("groups", group) for group in value]
        if not all(groups):
            raise self.error("groups", "contains an empty list; add the tools for that step")
        return groups

    def _parse_ids(self, field: str, value: object) -> list[str]:
        if not isinstance(value, list):
            raise self.error(field, "must be a list of tool ids")
        for id in value:
            if not isinstance(id, str):
                raise self.error(field, "must be a list of tool ids, which are strings")
            if self._catalog.slot(id) is None:
                nearest = _find_nearest_id(id, (tool.id for tool in self._catalog))
                remedy = f"did you mean {nearest!r}?" if nearest else f"add it to {TOOLS_FILE}"
                raise self.error(field, f"contains the unknown id {_truncate(id)!r}; {remedy}")
        return value


def _shortest_unique_suffix(path: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> str:
    count = 1
    while sum(other[-count:] == path[-count:] for other in paths) > 1:
        count += 1
    return "/".join(path[-count:])


def _find_nearest_id(id: str, ids: Iterable[str]) -> str:
    folded = id.casefold()
    ids_by_folded = {other.casefold(): other for other in ids}
    if folded in ids_by_folded:
        return ids_by_folded[folded]
    with_suffix = (other for other in ids_by_folded if other.endswith(f"_{folded}"))
    close = iter(difflib.get_close_matches(folded, ids_by_folded, n=1))
    return ids_by_folded.get(next(with_suffix, "") or next(close, ""), "")


@lru_cache(maxsize=256)
def _find_nearest_field(field: str) -> str:
    if field in FIELDS:
        return ""
    return next(iter(difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.8)), "")


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_CHARS_SHOWN else f"{text[: _MAX_CHARS_SHOWN - 1]}…"


@dataclass(frozen=True, slots=True)
class ToolPool:
    """The tools of an eval set, followed by the tools that were added to them."""

    tools: tuple[Tool, ...]
    added_count: int
    duplicate_count: int


def build_pool(own: Iterable[Tool], foreign: Iterable[Tool]) -> ToolPool:
    """Return the own tools and the foreign tools, without duplicates among the latter.

    A duplicate has the same name and a similar description. It would be a correct answer that the
    eval set does not list. A foreign tool whose id is taken gets a new id.
    """
    tools = list(own)
    own_count = len(tools)
    ids = {tool.id for tool in tools}
    seen = _DuplicateFilter()
    for tool in tools:
        seen.add(tool)
    duplicate_count = 0
    for number, tool in enumerate(foreign, 1):
        if seen.has_duplicate(tool):
            duplicate_count += 1
            continue
        seen.add(tool)
        if tool.id in ids:
            free_id = f"pool-{number}"
            while free_id in ids:
                free_id += "'"
            tool = tool.replace(id=free_id)
        ids.add(tool.id)
        tools.append(tool)
    return ToolPool(tuple(tools), len(tools) - own_count, duplicate_count)


class _DuplicateFilter:
    """The words of each description, by tool name."""

    def __init__(self) -> None:
        self._words_by_name: dict[str, list[frozenset[str]]] = {}

    def add(self, tool: Tool) -> None:
        namesakes = self._words_by_name.setdefault(tool.name.casefold(), [])
        if len(namesakes) < MAX_NAMESAKES:
            namesakes.append(_description_words(tool))

    def has_duplicate(self, tool: Tool) -> bool:
        namesakes = self._words_by_name.get(tool.name.casefold(), ())
        words = _description_words(tool) if namesakes else frozenset()
        # A tool without a description is similar only to another one without.
        return words in namesakes or any(
            words and other and len(words & other) >= MIN_WORD_OVERLAP * min(len(words), len(other))
            for other in namesakes
        )


def _description_words(tool: Tool) -> frozenset[str]:
    return frozenset(_WORD.findall(tool.description.casefold()))
