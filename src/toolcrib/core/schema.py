"""Read the parameters of a tool from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Schemas are untrusted: they may be huge, deep, recursive, or expand exponentially.
MAX_PARAMETERS: Final = 1_000
MAX_DEPTH: Final = 12
MAX_CHOICES: Final = 50
MAX_STEPS: Final = 10_000

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_BRANCHES = ("then", "else")
_INNER_KEYWORDS = ("items", "additionalProperties", *_BRANCHES)
# A schema without any of these keywords has no nested parameters.
_NESTING_KEYWORDS = frozenset(
    {"$ref", "properties", "prefixItems", *_ALTERNATIVES, *_INNER_KEYWORDS}
)
_CHOICE_KEYWORDS = frozenset({"enum", "const", "items"})

_Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument, or one field of an argument, with a `path` such as `address.city`."""

    name: str
    path: str
    type: str
    description: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False


def list_parameters(schema: _Schema, limit: int = MAX_PARAMETERS) -> tuple[Parameter, ...]:
    """Return the first parameters of a schema in order, including nested ones."""
    found: dict[str, Parameter] = {}
    for parameter in _SchemaReader(schema).walk(schema, "", frozenset(), 0):
        # Alternatives may declare a parameter twice; the first with a description is used.
        known = found.get(parameter.path)
        if known is None or (not known.description and parameter.description):
            found[parameter.path] = parameter
        if len(found) >= limit:
            break
    return tuple(found.values())


def render_signature(name: str, schema: _Schema) -> str:
    """Return the signature of a tool in one line: `send(to: string, cc?: string[])`."""
    top = [parameter for parameter in list_parameters(schema) if parameter.path == parameter.name]
    shown = (f"{p.name}{'' if p.is_required else '?'}: {p.type}" for p in top)
    return f"{name}({', '.join(shown)})"


def render_type(schema: object, root: _Schema | None = None) -> str:
    """Return a short name of a schema's type, such as `string`, `integer[]` or `a | b`."""
    if not isinstance(schema, dict):
        return "any"
    return _SchemaReader(schema if root is None else root).type_name(schema, 0)


class _SchemaReader:
    """Reads one schema, within a limited number of steps."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self._steps = 0

    def walk(
        self, schema: _Schema, path: str, seen: frozenset[str], depth: int
    ) -> Iterator[Parameter]:
        """Yield the parameters of a schema. `seen` are the references followed so far, to stop cycles."""
        if depth > MAX_DEPTH or self._is_exhausted():
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in seen:
                return
            seen |= {reference}
            schema = self._resolve(schema)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            required = schema.get("required")
            required_names = set(map(str, required)) if isinstance(required, list) else set()
            for name, inner in properties.items():
                inner_path = f"{path}.{name}" if path else str(name)
                # `true` is a schema that allows any value.
                inner = inner if isinstance(inner, dict) else {}
                yield self._build_parameter(str(name), inner_path, inner, name in required_names)
                if not _NESTING_KEYWORDS.isdisjoint(inner):
                    yield from self.walk(inner, inner_path, seen, depth + 1)
        for inner in _inner_schemas(schema):
            yield from self.walk(inner, path, seen, depth + 1)

    def type_name(self, schema: _Schema, depth: int) -> str:
        """Return a short name of the type."""
        schema = self._resolve(schema)
        type_value = schema.get("type")
        if isinstance(type_value, str) and type_value != "array":
            return type_value
        is_last_level = depth >= MAX_DEPTH or self._is_exhausted()
        if isinstance(type_value, list):
            return " | ".join(str(one) for one in type_value) or "any"
        if type_value == "array":
            items = schema.get("items")
            inner = "any"
            if isinstance(items, dict) and not is_last_level:
                inner = self.type_name(items, depth + 1)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        for key in _ALTERNATIVES:
            if isinstance(schema.get(key), list) and not is_last_level:
                some = [one for one in schema[key] if isinstance(one, dict)]
                names = [self.type_name(one, depth + 1) for one in some]
                return " | ".join(dict.fromkeys(names)) or "any"
        if "properties" in schema:
            return "object"
        return "string" if _choices(schema) else "any"

    def _build_parameter(self, name: str, path: str, schema: _Schema, required: bool) -> Parameter:
        target = self._resolve(schema)
        texts = (schema.get("description"), target.get("description"), target.get("title"))
        description = next((text for text in texts if isinstance(text, str) and text), "")
        choices = () if _CHOICE_KEYWORDS.isdisjoint(target) else _choices(target)
        type_value = self.type_name(target, 0)
        return Parameter(name, path, type_value, description, choices, required)

    def _resolve(self, schema: _Schema) -> _Schema:
        """Return the target of a local `$ref`; the schema itself if it has none that can be resolved."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
                return schema
            target: Any = self._root
            for part in reference.split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                target = target.get(key) if isinstance(target, dict) else None
            if not isinstance(target, dict):
                return schema
            schema = target
        return schema

    def _is_exhausted(self) -> bool:
        self._steps += 1
        return self._steps > MAX_STEPS


def _inner_schemas(schema: _Schema) -> Iterator[_Schema]:
    """Yield the schemas inside this one whose properties belong to the same path."""
    for key in _ALTERNATIVES:
        alternatives = schema.get(key)
        if isinstance(alternatives, list):
            yield from (one for one in alternatives if isinstance(one, dict))
    for key in _INNER_KEYWORDS:
        one = schema.get(key)
        if isinstance(one, dict):
            yield one
    prefix = schema.get("prefixItems")
    if isinstance(prefix, list):
        yield from (one for one in prefix if isinstance(one, dict))


def _choices(schema: _Schema) -> tuple[str, ...]:
    """Return the allowed values of a parameter or of its items."""
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
