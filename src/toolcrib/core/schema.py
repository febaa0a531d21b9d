"""Read JSON Schemas: the parameters of a tool, and the targets of references.

The versions of JSON Schema disagree on what gives a part of a schema its own base URI, and so on how a
path is resolved. To bound the work of a validator, `SchemaDocument` resolves a reference to every part
that any version could mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

# Schemas are untrusted: they may be huge, deep, recursive, or expand exponentially.
MAX_PARAMETERS: Final = 1_000
MAX_DEPTH: Final = 12
MAX_CHOICES: Final = 50
MAX_STEPS: Final = 10_000

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_BRANCHES = ("then", "else")
_INNER_KEYWORDS = ("items", "additionalProperties", *_BRANCHES)
_SCHEMA_KEYWORDS = frozenset({"prefixItems", *_ALTERNATIVES, *_INNER_KEYWORDS})
# A schema without any of these keywords has no nested parameters.
_NESTING_KEYWORDS = _SCHEMA_KEYWORDS | {"$ref", "properties"}
_CHOICE_KEYWORDS = frozenset({"enum", "const", "items"})

_Schema = Mapping[str, Any]

# The parts with a base URI that enclose a location, innermost first; the last is the whole schema.
BaseParts = tuple[Mapping[str, Any], ...]
PartLocation = tuple[object, BaseParts]

# Base URIs nested deeper than this are not resolved.
MAX_BASE_DEPTH: Final = 8

# A validator knows the schemas of this host; their content is not available here.
_META_SCHEMA_HOST: Final = "json-schema.org"
_ENCODED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument, or one field of an argument, with a `path` such as `address.city`."""

    name: str
    path: str
    type: str
    description: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False


class ParameterText(NamedTuple):
    """The texts of a parameter, and its schema."""

    name: str
    description: str
    choices: tuple[str, ...]
    is_required: bool
    schema: _Schema


def list_parameters(schema: _Schema) -> tuple[Parameter, ...]:
    """Return the first parameters of a schema in order, including nested ones."""
    reader = _SchemaReader(schema, MAX_PARAMETERS)
    return tuple(
        Parameter(one.name, path, reader.type_name(one.schema, 0), one.description, one.choices, one.is_required)
        for path, one in reader.read_parameters().items()
    )


def list_parameter_texts(schema: _Schema, limit: int = MAX_PARAMETERS) -> list[ParameterText]:
    """Return the texts of the parameters of `list_parameters`. It is faster, as it needs no types."""
    return list(_SchemaReader(schema, limit).read_parameters().values())


def render_signature(name: str, schema: _Schema) -> str:
    """Return the signature of a tool in one line: `send(to: string, cc?: string[])`."""
    top = [parameter for parameter in list_parameters(schema) if parameter.path == parameter.name]
    shown = (f"{p.name}{'' if p.is_required else '?'}: {p.type}" for p in top)
    return f"{name}({', '.join(shown)})"


class _SchemaReader:
    """Reads one schema, within a limited number of steps."""

    def __init__(self, root: _Schema, limit: int = MAX_PARAMETERS) -> None:
        self._root = root
        self._limit = limit
        self._steps = 0
        self._found: dict[str, ParameterText] = {}

    def read_parameters(self) -> dict[str, ParameterText]:
        """Return the first parameters by path."""
        self._read(self._root, "", frozenset(), 0)
        return self._found

    def _read(self, schema: _Schema, path: str, seen: frozenset[str], depth: int) -> None:
        """Add the parameters of a schema. `seen` are the references followed so far, to stop cycles."""
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
            required_names = set(map(str, required)) if isinstance(required, list) else ()
            for name, inner in properties.items():
                if len(self._found) >= self._limit:
                    return
                inner_path = f"{path}.{name}" if path else str(name)
                # `true` is a schema that allows any value.
                inner = inner if isinstance(inner, dict) else {}
                self._add(str(name), inner_path, inner, name in required_names)
                if not _NESTING_KEYWORDS.isdisjoint(inner):
                    self._read(inner, inner_path, seen, depth + 1)
        if not _SCHEMA_KEYWORDS.isdisjoint(schema):
            for inner in _inner_schemas(schema):
                if not _NESTING_KEYWORDS.isdisjoint(inner):
                    self._read(inner, path, seen, depth + 1)

    def _add(self, name: str, path: str, schema: _Schema, is_required: bool) -> None:
        target = self._resolve(schema) if "$ref" in schema else schema
        description = schema.get("description")
        if not description or not isinstance(description, str):
            texts = (target.get("description"), target.get("title"))
            description = next((text for text in texts if isinstance(text, str) and text), "")
        known = self._found.get(path)
        # Alternatives may declare a parameter twice; the first with a description is used.
        if known is None or (not known.description and description):
            choices = () if _CHOICE_KEYWORDS.isdisjoint(target) else _choices(target)
            self._found[path] = ParameterText(name, description, choices, is_required, target)

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


class SchemaDocument:
    """A schema as plain JSON, with its references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root: PartLocation = (root, (root,))

    def resolve_references(self, part: Mapping[str, Any], bases: BaseParts) -> Iterator[list[PartLocation]]:
        """Yield the possible targets of each reference of a part; an empty list if unknown."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(part.get(keyword), str):
                yield self._resolve(part[keyword], bases)
        if "$recursiveRef" in part:
            yield [self.root, *(location for some in self._parts_by_address.values() for location in some)]

    def _resolve(self, reference: str, bases: BaseParts) -> list[PartLocation]:
        address, _, encoded = reference.partition("#")
        fragment = _decode_percent(encoded)
        if len(bases) > MAX_BASE_DEPTH:
            return []
        if fragment and not fragment.startswith("/"):
            return self._parts_by_anchor.get(fragment, [])
        starts: list[PartLocation] = [(base, bases) for base in bases]
        if address:
            starts = self._parts_by_address.get(_address_ending(address), [])
        found = (_follow_path(start, fragment) for start in starts)
        return [location for location in found if location[0] is not None]

    @cached_property
    def _parts_by_address(self) -> dict[str, list[PartLocation]]:
        """The parts with an id, by the last segment of its path, which relative references end in."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, bases in self._parts:
            for address in (text.partition("#")[0] for text in _ids(part)):
                if _META_SCHEMA_HOST in _normalize_address(address):
                    return {}
                if ending := _address_ending(address):
                    found[ending].append((part, bases))
        return found

    @cached_property
    def _parts_by_anchor(self) -> dict[str, list[PartLocation]]:
        """The parts with an anchor, by its name."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, bases in self._parts:
            names = [part.get("$anchor"), part.get("$dynamicAnchor")]
            names += [text.partition("#")[2] for text in _ids(part)]
            for name in filter(None, names):
                found[str(name)].append((part, bases))
        return found

    @property
    def _parts(self) -> Iterator[tuple[Mapping[str, Any], BaseParts]]:
        """Every object that could be a schema, with its base parts."""
        waiting = [self.root]
        while waiting:
            part, bases = waiting.pop()
            if isinstance(part, Mapping):
                bases = enter_part(part, bases)
                yield part, bases
                waiting.extend((inner, bases) for inner in part.values())
            elif isinstance(part, list):
                waiting.extend((inner, bases) for inner in part)


def enter_part(part: object, bases: BaseParts) -> BaseParts:
    """Return the base parts of what is inside a part."""
    if not isinstance(part, Mapping) or not any(text.partition("#")[0] for text in _ids(part)):
        return bases
    is_new = all(part is not base for base in bases) and len(bases) <= MAX_BASE_DEPTH
    return (part, *bases) if is_new else bases


def _ids(part: Mapping[str, Any]) -> list[str]:
    return [part[keyword] for keyword in ("$id", "id") if isinstance(part.get(keyword), str)]


def _address_ending(address: str) -> str:
    """Return the part of an address that does not depend on its base; empty if there is none."""
    plain = _normalize_address(address)
    ending = plain.rpartition("/")[2]
    return "" if "?" in plain or _META_SCHEMA_HOST in plain or ending in {".", ".."} else ending


def _normalize_address(address: str) -> str:
    return _decode_percent(address).casefold()


def _decode_percent(text: str) -> str:
    """Return the text of an address with percent-encoding decoded."""
    return _ENCODED.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), text)


def _follow_path(location: PartLocation, path: str) -> PartLocation:
    target, bases = location
    for step in path.split("/")[1:]:
        bases = enter_part(target, bases)
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = {str(at): one for at, one in enumerate(target)}.get(name)
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target, bases
