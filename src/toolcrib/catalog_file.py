"""Reading a catalog file: tools in any known format, mixed freely, as JSON or as JSON Lines."""

from __future__ import annotations

from os import PathLike

from toolcrib.adapters import detection
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidCatalogFile, InvalidTool
from toolcrib.json_file import JsonFile, Steps, read_json_file


def read_catalog_file(path: str | PathLike[str]) -> Catalog:
    """The catalog a file holds; `-` is standard input.

    Whatever is wrong raises `InvalidCatalogFile`, which names the file, the line and the cure.
    """
    source = read_json_file(path, InvalidCatalogFile, "tools as JSON or JSON Lines")
    tools: list[Tool] = []
    places: dict[str, tuple[int, Steps]] = {}
    for start, value in source.values():
        for steps, part in detection.parts(value):
            for tool in _tools(source, part, start, steps):
                if tool.id in places:
                    first = source.line(source.offset(*places[tool.id]))
                    raise source.fault(
                        f"the id {tool.id!r} is that of the tool on line {first} already; "
                        "rename one, or give each its server",
                        source.offset(start, steps),
                    )
                places[tool.id] = (start, steps)
                tools.append(tool)
    return Catalog(tools)


def _tools(source: JsonFile, part: object, start: int, steps: Steps) -> list[Tool]:
    """The tools of a part; what is wrong with it is told with its line."""
    try:
        return detection.tools_from_any(part)
    except InvalidTool as fault:
        raise source.fault(str(fault), source.offset(start, steps)) from fault
