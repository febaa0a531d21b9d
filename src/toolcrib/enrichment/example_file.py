"""Files of example requests, by the fingerprint of a tool's definition, for programs without a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import MAX_EXAMPLES
from toolcrib.errors import InvalidCatalogFile
from toolcrib.files.json_file import read_json_file, write_json_lines


def read_example_requests(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Return the example requests of a file by fingerprint. Raises `InvalidCatalogFile` for another file."""
    source = read_json_file(path, InvalidCatalogFile, "example requests as JSON Lines")
    found: dict[str, tuple[str, ...]] = {}
    for start, value in source.iter_values():
        requests = value.get("requests") if isinstance(value, dict) else None
        fingerprint = value.get("fingerprint") if isinstance(value, dict) else None
        are_texts = isinstance(requests, list) and all(isinstance(text, str) for text in requests)
        if not isinstance(fingerprint, str) or not are_texts:
            raise source.error_at("a line needs a `fingerprint` and a list of `requests`; write the file again", start)
        found[fingerprint] = tuple(requests or ())[:MAX_EXAMPLES]
    return found


def write_example_requests(
    path: str | PathLike[str], requests: Mapping[str, Sequence[str]], tools: Mapping[str, str]
) -> None:
    """Write example requests to a file. `tools` has the id of the tool of each fingerprint, for people."""
    rows = [
        {"fingerprint": fingerprint, "tool": tools.get(fingerprint, ""), "requests": list(texts)}
        for fingerprint, texts in requests.items()
    ]
    write_json_lines(Path(path), rows)


def add_example_requests(catalog: Catalog, requests: Mapping[str, Sequence[str]]) -> Catalog:
    """Return the catalog with the example requests of its tools. Those of changed definitions are not used."""
    if not requests:
        return catalog
    changed = [
        tool.with_example_requests(texts) for tool in catalog if (texts := requests.get(tool.definition_fingerprint))
    ]
    return catalog.with_tools(changed) if changed else catalog
