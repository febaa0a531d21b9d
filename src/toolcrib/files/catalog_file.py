"""Read catalog files: tools in any supported format, as JSON or JSON Lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from os import PathLike

from toolcrib.adapters.format_detection import split_document, tools_from_any
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.validation import find_schema_problem
from toolcrib.errors import InvalidCatalogFile, InvalidTool, ToolcribError
from toolcrib.files.json_file import JsonFile, JsonPath, read_json_file

# The location of a tool: the file, the offset of a JSON value, and the path within that value.
_Location = tuple[JsonFile, int, JsonPath]


def read_catalog_file(path: str | PathLike[str], *others: str | PathLike[str]) -> Catalog:
    """Return the catalog of one or more files; `-` is standard input.

    Any problem raises `InvalidCatalogFile`, which names the file, the line and the remedy. A broken schema
    is only a warning, because the tool can still be found.
    """
    tools: list[Tool] = []
    locations: dict[str, _Location] = {}
    for file in (path, *others):
        source = read_json_file(file, InvalidCatalogFile, "tools as JSON or JSON Lines")
        for start, value in source.iter_values():
            for json_path, part in split_document(value):
                location = (source, start, json_path)
                for tool in _read_tools(part, location):
                    if tool.id in locations:
                        raise _duplicate_id_error(tool.id, locations[tool.id], location)
                    locations[tool.id] = location
                    tools.append(tool)
    _warn_about_schemas(tools, locations)
    return Catalog(tools)


def _warn_about_schemas(tools: Iterable[Tool], locations: Mapping[str, _Location]) -> None:
    """Warn once, with the first broken schema and the number of all."""
    broken = [(tool.id, problem) for tool in tools if (problem := find_schema_problem(tool.input_schema))]
    if broken:
        id, problem = broken[0]
        source, start, json_path = locations[id]
        total = f" (in total, {len(broken):,} tools have a broken schema)" if len(broken) > 1 else ""
        message = f"the schema of tool {id!r} is broken: {problem}; correct it{total}"
        error = source.error_at(message, source.find_offset(start, json_path))
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)


def _duplicate_id_error(id: str, first: _Location, second: _Location) -> ToolcribError:
    source, start, json_path = first
    line = source.line_number(source.find_offset(start, json_path))
    file = "" if source is second[0] else f" of {source.file}"
    source, start, json_path = second
    return source.error_at(
        f"the id {id!r} is already used by the tool on line {line}{file}; rename one of them, or set `server` for both",
        source.find_offset(start, json_path),
    )


def _read_tools(part: object, location: _Location) -> list[Tool]:
    try:
        return tools_from_any(part)
    except InvalidTool as error:
        source, start, json_path = location
        raise source.error_at(str(error), source.find_offset(start, json_path)) from error
