"""Edit one section of a YAML text; comments and the rest of the text stay as they are.

Only block style is edited. The caller must check the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.config.clients.formats import name_list_entries
from toolcrib.errors import InvalidConfig

_INDENT: Final = 2
# The lines that YAML counts; `str.splitlines` has more line breaks.
_LINE: Final = re.compile("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+")


class _Section(NamedTuple):
    """A section of a text: the column of its key, the lines of its content, and its entries."""

    key_column: int
    key_line: int
    # Where an empty value such as `{}` stands, or None.
    empty_value: tuple[int, int] | None
    is_list: bool
    # The first line, the line after the last one, and the column of each entry, by name.
    entries: Mapping[str, tuple[int, int, int]]


def remove_entries(text: str, section: str, names: Collection[str]) -> str:
    """Return the text without these entries of a section."""
    found = _find_section(text, section)
    removed = {
        number
        for name, (start, end, _) in (found.entries if found else {}).items()
        if name in names
        for number in range(start, end)
    }
    return "".join(line for number, line in enumerate(_LINE.findall(text)) if number not in removed)


def add_entry(text: str, section: str, name: str, entry: Mapping[str, Any], *, as_list: bool) -> str:
    """Return the text with an entry at the end of a section, which is created if it is missing."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = _LINE.findall(text)
    found = _find_section(text, section)
    if found is None:
        separator = newline if lines and not lines[-1].endswith(("\n", "\r")) else ""
        block = _render_entry(name, entry, _INDENT, as_list=as_list)
        return text + separator + newline.join([f"{section}:", *block]) + newline
    if found.empty_value is not None:
        start, end = found.empty_value
        line = lines[found.key_line]
        lines[found.key_line] = line[:start].rstrip() + line[end:]
    last = max((end for _, end, _ in found.entries.values()), default=found.key_line + 1)
    column = next((column for _, _, column in found.entries.values()), found.key_column + _INDENT)
    is_list = found.is_list if found.entries else as_list
    if last and not lines[last - 1].endswith(("\n", "\r")):
        lines[last - 1] += newline
    block = [f"{line}{newline}" for line in _render_entry(name, entry, column, as_list=is_list)]
    return "".join([*lines[:last], *block, *lines[last:]])


def _render_entry(name: str, entry: Mapping[str, Any], column: int, *, as_list: bool) -> list[str]:
    """Return the lines of an entry. Its values are JSON, which is valid YAML."""
    members = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    margin = " " * column
    if as_list:
        first, *rest = members
        return [f"{margin}- {first}", *(f"{margin}  {member}" for member in rest)]
    return [f"{margin}{json.dumps(name, ensure_ascii=False)}:", *(f"{margin}  {member}" for member in members)]


def _find_section(text: str, section: str) -> _Section | None:
    """Return a section of the top level; None if there is none."""
    import yaml  # Only users of YAML files need the package; the text was parsed before.

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    members = root.value if isinstance(root, yaml.MappingNode) else []
    for key, value in members:
        if key.value != section:
            continue
        if isinstance(value, yaml.CollectionNode) and value.flow_style and value.value:
            raise InvalidConfig(f"{section} is written on one line")
        is_list = isinstance(value, yaml.SequenceNode)
        named = _name_nodes(value) if isinstance(value, yaml.CollectionNode) else {}
        # A value such as `{}`, `[]` or `null`; a key without a value has none.
        is_written = not named and value.start_mark.index < value.end_mark.index
        empty = (value.start_mark.column, value.end_mark.column) if is_written else None
        return _Section(key.start_mark.column, key.start_mark.line, empty, is_list, named)
    return None


def _name_nodes(section: Any) -> dict[str, tuple[int, int, int]]:
    """Return the lines and the column of each entry of a section, by name."""
    if not section.value:
        return {}
    if isinstance(section.value[0], tuple):
        return {
            str(key.value): (key.start_mark.line, _find_end(value), key.start_mark.column)
            for key, value in section.value
        }
    values = [{key.value: value.value for key, value in node.value if key.value == "name"} for node in section.value]
    column = section.start_mark.column
    return {
        name: (node.start_mark.line, _find_end(node), column)
        for name, node in zip(name_list_entries(values), section.value, strict=True)
    }


def _find_end(node: Any) -> int:
    """Return the line after the last line of a node; the parser counts later comments to the node."""
    if isinstance(node.value, str) or node.flow_style or not node.value:
        # The mark of a block scalar is at the start of a later line.
        return int(node.end_mark.line + (node.end_mark.column > 0))
    last = node.value[-1]
    return _find_end(last[1] if isinstance(last, tuple) else last)
