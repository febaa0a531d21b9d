"""Reading a catalog file: tools in any known format, mixed freely, as JSON or as JSON Lines."""

from __future__ import annotations

from os import PathLike

from toolcrib.adapters.format_detection import split_document, tools_from_any
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidCatalogFile, InvalidTool, ToolcribError
from toolcrib.files.json_file import JsonFile, JsonPath, read_json_file

# Where a tool stands: the file, where its value starts there, and the steps from that to it.
_Place = tuple[JsonFile, int, JsonPath]


def read_catalog_file(path: str | PathLike[str], *others: str | PathLike[str]) -> Catalog:
    """The catalog a file holds, or several files together; `-` is standard input.

    Whatever is wrong raises `InvalidCatalogFile`, which names the file, the line and the cure.
    """
    tools: list[Tool] = []
    places: dict[str, _Place] = {}
    for file in (path, *others):
        source = read_json_file(file, InvalidCatalogFile, "tools as JSON or JSON Lines")
        for start, value in source.iter_values():
            for steps, part in split_document(value):
                for tool in _read_tools(source, part, start, steps):
                    place = (source, start, steps)
                    if places.setdefault(tool.id, place) is not place:
                        raise _duplicate_id_error(tool.id, places[tool.id], place)
                    tools.append(tool)
    return Catalog(tools)


def _duplicate_id_error(id: str, first: _Place, second: _Place) -> ToolcribError:
    """The error for an id that two tools have, which names both places."""
    there, start, steps = first
    line = there.line_number(there.find_offset(start, steps))
    here, start, steps = second
    file = "" if there is here else f" of {there.file}"
    return here.error_at(
        f"the id {id!r} is that of the tool on line {line}{file} already; "
        "rename one, or give each its server",
        here.find_offset(start, steps),
    )


def _read_tools(source: JsonFile, part: object, start: int, steps: JsonPath) -> list[Tool]:
    """The tools of a part; what is wrong with it is told with its line."""
    try:
        return tools_from_any(part)
    except InvalidTool as fault:
        raise source.error_at(str(fault), source.find_offset(start, steps)) from fault
