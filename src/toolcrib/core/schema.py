"""Reading JSON Schema: what a tool's parameters are called and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# A schema is somebody else's data: it may be huge, deep or refer to itself.
MAX_PARAMETERS = 1_000
MAX_DEPTH = 12
MAX_CHOICES = 50

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_BRANCHES = ("then", "else")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument, or one field inside an argument (`path` is then `address.city`)."""

    path: str
    type: str
    description: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


def parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Every parameter of a schema, nested ones included, in the order of the schema."""
    found: dict[str, Parameter] = {}
    for parameter in _walk(schema, schema, "", frozenset(), 0):
        # Alternatives may declare one parameter twice: the first that says something is kept.
        known = found.get(parameter.path)
        if known is None or (not known.description and parameter.description):
            found[parameter.path] = parameter
        if len(found) >= MAX_PARAMETERS:
            break
    return tuple(found.values())


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """One line that says how to call a tool: `send(to: string, cc?: string[])`."""
    top = [parameter for parameter in parameters(schema) if "." not in parameter.path]
    shown = (f"{p.path}{'' if p.required else '?'}: {p.type}" for p in top)
    return f"{name}({', '.join(shown)})"


def type_name(schema: object, root: Mapping[str, Any] | None = None) -> str:
    """A short name of the type a schema describes, such as `string`, `integer[]` or `a | b`."""
    if not isinstance(schema, dict):
        return "any"
    return _type_name(schema, root if root is not None else schema, 0)


def _type_name(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    schema = _resolved(schema, root)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(str(one) for one in kind) or "any"
    if kind == "array":
        items = schema.get("items")
        inner = "any"
        if isinstance(items, dict) and depth < MAX_DEPTH:
            inner = _type_name(items, root, depth + 1)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if isinstance(kind, str):
        return kind
    for key in _ALTERNATIVES:
        if isinstance(schema.get(key), list) and depth < MAX_DEPTH:
            names = [
                _type_name(one, root, depth + 1) for one in schema[key] if isinstance(one, dict)
            ]
            return " | ".join(dict.fromkeys(names)) or "any"
    if "properties" in schema:
        return "object"
    choices = _choices(schema)
    return "string" if choices else "any"


def _walk(
    schema: Mapping[str, Any], root: Mapping[str, Any], path: str, seen: frozenset[str], depth: int
) -> Iterator[Parameter]:
    """The parameters below one schema. `seen` are the references on the way here: cycles end."""
    if depth > MAX_DEPTH:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return
        seen |= {reference}
        schema = _resolved(schema, root)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        required = schema.get("required")
        needed = set(map(str, required)) if isinstance(required, list) else set()
        for name, inner in properties.items():
            if isinstance(inner, dict):
                below = f"{path}.{name}" if path else str(name)
                yield _parameter(below, inner, root, name in needed)
                yield from _walk(inner, root, below, seen, depth + 1)
    for inner in _inner_schemas(schema):
        yield from _walk(inner, root, path, seen, depth + 1)


def _inner_schemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Schemas inside this one whose properties belong to the same path."""
    for key in _ALTERNATIVES:
        many = schema.get(key)
        if isinstance(many, list):
            yield from (one for one in many if isinstance(one, dict))
    for key in ("items", "additionalProperties", *_BRANCHES):
        one = schema.get(key)
        if isinstance(one, dict):
            yield one
    prefix = schema.get("prefixItems")
    if isinstance(prefix, list):
        yield from (one for one in prefix if isinstance(one, dict))


def _parameter(
    path: str, schema: Mapping[str, Any], root: Mapping[str, Any], required: bool
) -> Parameter:
    target = _resolved(schema, root)
    texts = (schema.get("description"), target.get("description"), target.get("title"))
    description = next((text for text in texts if isinstance(text, str) and text), "")
    return Parameter(path, type_name(target, root), description, _choices(target), required)


def _choices(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The values a parameter may take, of itself or of its items."""
    items = schema.get("items")
    for one in (schema, items if isinstance(items, dict) else {}):
        values = one.get("enum")
        if isinstance(values, list):
            return tuple(str(value) for value in values[:MAX_CHOICES] if _is_plain(value))
        if _is_plain(one.get("const")):
            return (str(one["const"]),)
    return ()


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema a local `$ref` leads to. A reference that leads nowhere, or out, is left alone."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        target: Any = root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            return schema
        schema = target
    return schema
