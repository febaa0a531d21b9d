"""Reading an eval set: a folder with tools, and questions to them whose answers are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidCatalogFile, InvalidEvalSet, ToolcribError
from toolcrib.evaluation.eval_query import FACETS, EvalQuery, build_targets
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.files.json_file import JsonFile, read_json_file

TOOLS_FILE: Final = "tools.jsonl"
QUERIES_FILE: Final = "queries.jsonl"
FIELDS: Final = ("id", "query", "relevant", "groups", "any_of", *FACETS)
# A longer value of a facet is no name of a group.
MAX_FACET_CHARS: Final = 100

_MAX_CHARS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class EvalSet:
    """A catalog, and the questions to it."""

    name: str
    catalog: Catalog
    queries: tuple[EvalQuery, ...]

    def sample(self, count: int) -> EvalSet:
        """As many of its questions, evenly spread, so that every kind keeps its share."""
        total = len(self.queries)
        if count >= total:
            return self
        chosen = tuple(self.queries[number * total // count] for number in range(count))
        return EvalSet(self.name, self.catalog, chosen)


def read_eval_sets(folders: Sequence[str | PathLike[str]]) -> list[EvalSet]:
    """The eval sets of several folders, those of one name told apart by the folders above."""
    places = [Path(folder).resolve().parts for folder in folders]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise InvalidEvalSet(f"{Path(folders[number])}: named twice; name it once")
    return [
        replace(read_eval_set(folder), name=_shortest_unique_suffix(place, places))
        for folder, place in zip(folders, places, strict=True)
    ]


def read_eval_set(folder: str | PathLike[str]) -> EvalSet:
    """The eval set of a folder.

    Whatever is wrong raises `InvalidEvalSet`, which names the file, the line, the field and the
    cure.
    """
    path = Path(folder)
    if not path.is_dir():
        fault = "is a file, and no folder" if path.exists() else "there is no such folder"
        raise InvalidEvalSet(
            f"{path}: {fault}; name one with {TOOLS_FILE} and {QUERIES_FILE} in it"
        )
    for file in (TOOLS_FILE, QUERIES_FILE):
        if not (path / file).exists():
            raise InvalidEvalSet(
                f"{path}: there is no {file} in it; an eval set is a folder with {TOOLS_FILE} "
                f"and {QUERIES_FILE}"
            )
    try:
        catalog = read_catalog_file(path / TOOLS_FILE)
    except InvalidCatalogFile as fault:
        raise InvalidEvalSet(str(fault)) from fault
    source = read_json_file(path / QUERIES_FILE, InvalidEvalSet, "one query a line, as JSON")
    return EvalSet(path.resolve().name, catalog, _parse_queries(source, catalog))


def _parse_queries(source: JsonFile, catalog: Catalog) -> tuple[EvalQuery, ...]:
    questions: dict[str, EvalQuery] = {}
    starts: dict[str, int] = {}
    for start, value in source.iter_values():
        row = _QueryRow(source, start, value, catalog)
        question = row.parse()
        if question.id in questions:
            first = source.line_number(starts[question.id])
            raise row.error("id", f"is that of the query on line {first} already; change one")
        questions[question.id] = question
        starts[question.id] = start
    return tuple(questions.values())


class _QueryRow:
    """One line of the queries, read field by field."""

    def __init__(self, source: JsonFile, start: int, value: object, catalog: Catalog) -> None:
        self._source = source
        self._start = start
        self._catalog = catalog
        if not isinstance(value, Mapping):
            raise source.error_at("a query is an object in { }, on a line of its own", start)
        self._entry: Mapping[str, Any] = value

    def parse(self) -> EvalQuery:
        """The question of this line."""
        for field in self._entry:
            if meant := _find_nearest_field(field):
                raise self.error(field, f"is not known; did you mean {meant!r}?")
        relevant = self._parse_ids("relevant", self._get_required("relevant"))
        groups = self._parse_groups()
        if groups and {id for group in groups for id in group} != set(relevant):
            raise self.error("groups", "must name the tools of relevant, all of them and no others")
        any_of = self._entry.get("any_of") or False
        if not isinstance(any_of, bool):
            raise self.error("any_of", "must be true or false")
        if any_of and groups:
            raise self.error("any_of", "and groups say different things; leave one out")
        return EvalQuery(
            id=self._parse_text("id", self._get_required("id")),
            text=self._parse_text("query", self._get_required("query")),
            targets=build_targets(relevant, groups, any_of=any_of),
            has_steps=bool(groups),
            **{facet: self._parse_facet(facet) for facet in FACETS},
        )

    def error(self, field: str, fault: str) -> ToolcribError:
        """The error about a field."""
        return self._source.error_at(f"{_truncate(field)} {fault}", self._start)

    def _get_required(self, field: str) -> object:
        value = self._entry.get(field)
        if value is None:
            cure = " (an empty list means that nothing fits)" if field == "relevant" else ""
            raise self.error(field, f"is missing; add it{cure}")
        return value

    def _parse_text(self, field: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "must be a text that is not empty; put it in quotes")
        return value

    def _parse_facet(self, field: str) -> str:
        value = self._entry.get(field)
        if value is None or value == "":
            return ""
        text = self._parse_text(field, value)
        if len(text) > MAX_FACET_CHARS:
            raise self.error(
                field,
                f"has {len(text):,} characters, and {MAX_FACET_CHARS} at most are taken; shorten it",
            )
        return text

    def _parse_groups(self) -> list[list[str]]:
        value = self._entry.get("groups") or []
        if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
            raise self.error("groups", "must be a list of lists of tool ids, one for each step")
        groups = [self._parse_ids("groups", group) for group in value]
        if not all(groups):
            raise self.error("groups", "has an empty list; name the tools that do the step")
        return groups

    def _parse_ids(self, field: str, value: object) -> list[str]:
        if not isinstance(value, list):
            raise self.error(field, "must be a list of tool ids")
        for id in value:
            if not isinstance(id, str):
                raise self.error(field, "must be a list of tool ids, which are texts")
            if self._catalog.slot(id) is None:
                nearest = _find_nearest_id(id, (tool.id for tool in self._catalog))
                cure = f"did you mean {nearest!r}?" if nearest else f"add it to {TOOLS_FILE}"
                raise self.error(field, f"has {_truncate(id)!r}, which is no tool's id; {cure}")
        return value


def _shortest_unique_suffix(place: tuple[str, ...], places: Sequence[tuple[str, ...]]) -> str:
    """As much of a path's end as no other of the paths has."""
    count = 1
    while sum(other[-count:] == place[-count:] for other in places) > 1:
        count += 1
    return "/".join(place[-count:])


def _find_nearest_id(id: str, ids: Iterable[str]) -> str:
    """The id that was meant, if one is like it."""
    wanted = id.casefold()
    alike = {other.casefold(): other for other in ids}
    if wanted in alike:
        return alike[wanted]
    ending = (other for other in alike if other.endswith(f"_{wanted}"))
    found = next(ending, "") or next(iter(difflib.get_close_matches(wanted, alike, n=1)), "")
    return alike.get(found, "")


@lru_cache(maxsize=256)
def _find_nearest_field(field: str) -> str:
    """The field that was meant by one we do not know; empty when there is none like it."""
    if field in FIELDS:
        return ""
    return next(iter(difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.8)), "")


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_CHARS_SHOWN else f"{text[: _MAX_CHARS_SHOWN - 1]}…"
