"""Typed Python stubs of tools: what a model has to write to call them in a script."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolcrib.core.tool import Tool

MAX_STUB_CHARS: Final = 1_000
MAX_LITERALS: Final = 12
MAX_MEMBERS: Final = 20
_MAX_DEPTH: Final = 3
_INVALID: Final = re.compile(r"\W", re.ASCII)
_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
LOCAL_SERVER: Final = "local"


def to_identifier(name: str) -> str:
    """Return a name as a Python identifier."""
    identifier = _INVALID.sub("_", name) or "_"
    if identifier[0].isdigit():
        identifier = f"_{identifier}"
    return f"{identifier}_" if keyword.iskeyword(identifier) else identifier


def build_paths(tools: Iterable[Tool]) -> dict[tuple[str, str], Tool]:
    """Return the tools by server and name as identifiers; the first tool of a name gets it."""
    paths: dict[tuple[str, str], Tool] = {}
    for tool in tools:
        paths.setdefault((to_identifier(tool.server or LOCAL_SERVER), to_identifier(tool.name)), tool)
    return paths


def render_stub(tool: Tool) -> str:
    """Return how to call a tool in a script: `await tools.mail.send(to: str, cc: list[str] = …) -> dict`."""
    schema = tool.input_schema
    properties, required = _members(schema), schema.get("required")
    required = required if isinstance(required, list) else []
    # Required parameters come first, as Python demands it.
    names = sorted(list(properties)[:MAX_MEMBERS], key=lambda name: name not in required)
    shown = [
        f"{name}: {_render_type(properties[name], schema, 0)}{'' if name in required else ' = …'}" for name in names
    ]
    if len(properties) > MAX_MEMBERS:
        shown.append("…")
    output = tool.output_schema
    returned = _render_type(_unwrap(output), output, 0) if output else "Any"
    path = f"tools.{to_identifier(tool.server or LOCAL_SERVER)}.{to_identifier(tool.name)}"
    stub = f"await {path}({', '.join(shown)}) -> {returned}"
    return stub if len(stub) <= MAX_STUB_CHARS else f"{stub[: MAX_STUB_CHARS - 1]}…"


def unwrap_result(value: Any) -> Any:
    """Return the value of a structured result: servers wrap values that are not objects in `result`."""
    return value["result"] if isinstance(value, Mapping) and set(value) == {"result"} else value


def _unwrap(schema: Mapping[str, Any]) -> object:
    members = _members(schema)
    return members["result"] if set(members) == {"result"} else schema


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _render_type(schema: object, root: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, Mapping):
        return "Any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = _follow(reference, root)
        if schema is None or depth > _MAX_DEPTH:
            return "dict"
    if isinstance(schema.get("enum"), list):
        values = schema["enum"]
        shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in values[:MAX_LITERALS])
        return f"Literal[{shown}{', …' if len(values) > MAX_LITERALS else ''}]"
    if "const" in schema:
        return f"Literal[{json.dumps(schema['const'], ensure_ascii=False)}]"
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            parts = dict.fromkeys(_render_type(part, root, depth + 1) for part in schema[key][:MAX_LITERALS])
            return " | ".join(parts) or "Any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_render_type({**schema, "type": one}, root, depth) for one in kind)) or "Any"
    if kind == "array":
        return f"list[{_render_type(schema.get('items'), root, depth + 1)}]"
    members = _members(schema)
    if members and depth < _MAX_DEPTH:
        shown = ", ".join(
            f"{json.dumps(name)}: {_render_type(member, root, depth + 1)}"
            for name, member in list(members.items())[:MAX_MEMBERS]
        )
        return f"{{{shown}}}"
    return _TYPES.get(str(kind), "dict" if kind == "object" or members else "Any")


def _follow(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    value: Any = root
    for step in reference.removeprefix("#/").split("/"):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else None
