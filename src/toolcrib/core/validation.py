"""Whether the arguments of a call fit a tool's JSON Schema, and if not, which field and why.

The schema and the arguments are both somebody else's. So nothing is fetched, patterns have a budget,
and the steps of a check are counted before it is made: a few lines of references that fan out could
otherwise keep a validator busy for years.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind

from toolcrib.core.schema import Parameter, list_parameters
from toolcrib.core.schema_references import SchemaDocument, enter_part
from toolcrib.errors import InvalidSchema

MAX_PROBLEMS: Final = 10
# What a check may take: so many steps, for each value in the arguments some more, and in all so many.
MAX_STEPS: Final = 10_000
STEPS_PER_VALUE: Final = 10
MAX_TOTAL_STEPS: Final = 1_000_000
MAX_MESSAGE_CHARS: Final = 300
MAX_VALIDATORS: Final = 1_024

_PATTERNS = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=100_000, size_limit=1_000_000, dfa_size_limit=1_000_000
)
# What a schema means that does not say its version: the newest, or the first that it is valid in.
_VERSIONS = (
    jsonschema_rs.Draft202012Validator,
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft4Validator,
)

_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_EVERY_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EVERY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")


def find_problems(schema: Mapping[str, Any], arguments: object) -> tuple[str, ...]:
    """What is wrong with the arguments, one sentence a field; nothing if they fit.

    Raises `InvalidSchema` if the schema cannot be used to tell.
    """
    validator, document = _load_schema(_render_schema(schema))
    _check_steps(document, arguments)
    try:
        faults = list(islice(validator.iter_errors(arguments), MAX_PROBLEMS))
    except ValueError as fault:
        return (f"the arguments are not JSON: {_shorten(str(fault))}",)
    known = {parameter.path: parameter for parameter in list_parameters(schema)} if faults else {}
    return tuple(dict.fromkeys(one for fault in faults for one in _describe_error(fault, known)))


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `InvalidSchema` if arguments could not be checked against this schema."""
    _load_schema(_render_schema(schema))


def _render_schema(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidSchema(f"the schema is not JSON: {_shorten(str(fault))}; mend it") from fault


@lru_cache(maxsize=MAX_VALIDATORS)
def _load_schema(text: str) -> tuple[jsonschema_rs.Validator, SchemaDocument]:
    return _build_validator(text), SchemaDocument(json.loads(text))


def _build_validator(text: str) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(text, offline=True, pattern_options=_PATTERNS)
    except ValueError as fault:
        plain = json.loads(text)
        plain.pop("$schema", None)
        for version in _VERSIONS:
            try:
                return version(json.dumps(plain), offline=True, pattern_options=_PATTERNS)
            except ValueError:
                continue
        message = fault.message if isinstance(fault, jsonschema_rs.ValidationError) else str(fault)
        raise InvalidSchema(f"not a JSON Schema that can be used: {_shorten(message)}") from fault


def _count_values(value: object) -> int:
    """How many values there are in a value, itself included, as far as it matters."""
    size = 0
    waiting = [value]
    while waiting and size < MAX_TOTAL_STEPS:
        size += 1
        inside = waiting.pop()
        if isinstance(inside, Mapping):
            waiting.extend(inside.values())
        elif isinstance(inside, list | tuple):
            waiting.extend(inside)
    return size


def _check_steps(document: SchemaDocument, value: object) -> None:
    """Raise `InvalidSchema` if a validator would look too often at parts of the value."""
    most = min(MAX_STEPS + STEPS_PER_VALUE * _count_values(value), MAX_TOTAL_STEPS)
    steps = 0
    schema, homes = document.root
    waiting = [(schema, value, homes)]
    while waiting:
        steps += 1
        part, inside, homes = waiting.pop()
        if isinstance(part, Mapping):
            homes = enter_part(part, homes)
            for places in document.resolve_references(part, homes):
                if not places:
                    raise InvalidSchema(
                        "the schema has a reference that cannot be followed, so nobody knows what a "
                        "check would take; refer to a part by its path, such as #/$defs/part"
                    )
                waiting.extend((target, inside, around) for target, around in places)
            waiting.extend(
                (one, held, homes) for one, held in islice(_next_schemas(part, inside), most)
            )
        # Each that is waiting will be a step at least.
        if steps + len(waiting) >= most:
            raise InvalidSchema(
                f"checking these arguments would take over {most:,} steps; "
                "give the tool a schema with fewer alternatives, or send less at once"
            )


def _next_schemas(part: Mapping[str, Any], value: object) -> Iterator[tuple[object, object]]:
    """The schemas inside that a validator goes on to, each with what it holds against them."""
    for keyword in _SAME_VALUE:
        if keyword in part:
            yield part[keyword], value
    for keyword in _SAME_VALUE_LISTS:
        yield from ((choice, value) for choice in _get_list(part, keyword))
    if isinstance(value, Mapping):
        for keyword in ("dependentSchemas", "dependencies"):
            schemas = _get_mapping(part, keyword)
            yield from ((schemas[name], value) for name in value if name in schemas)
        properties = _get_mapping(part, "properties")
        others = [*_get_mapping(part, "patternProperties").values()]
        others += [part[keyword] for keyword in _EVERY_MEMBER if keyword in part]
        for name, member in value.items():
            if name in properties:
                yield properties[name], member
            yield from ((other, member) for other in others)
    elif isinstance(value, list | tuple):
        for keyword in ("prefixItems", "items"):
            yield from zip(_get_list(part, keyword), value, strict=False)
        for keyword in _EVERY_ITEM:
            if keyword in part:
                yield from ((part[keyword], item) for item in value)


def _get_list(part: Mapping[str, Any], keyword: str) -> list[Any]:
    schemas = part.get(keyword)
    return schemas if isinstance(schemas, list) else []


def _get_mapping(part: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    schemas = part.get(keyword)
    return schemas if isinstance(schemas, Mapping) else {}


def _describe_error(
    fault: jsonschema_rs.ValidationError, known: Mapping[str, Parameter]
) -> Iterator[str]:
    """One fault in a sentence or two: which field, and what was expected."""
    where = _render_location(fault.instance_path)
    match fault.kind:
        case ValidationErrorKind.Required(property=name):
            wanted = _describe_expected(known.get(_parameter_path([*fault.instance_path, name])))
            yield f"`{_join_path(where, name)}` is missing{wanted}"
        case ValidationErrorKind.AdditionalProperties(unexpected=names):
            inside = _parameter_path(fault.instance_path)
            fields = [path for path in known if path.rpartition(".")[0] == inside]
            for name in names[:MAX_PROBLEMS]:
                yield f"`{_shorten(_join_path(where, name))}` is not a known field{_suggest_field(name, fields)}"
        case ValidationErrorKind.FalseSchema():
            yield f"nothing is allowed {f'in `{where}`' if where else 'here'}; leave it out"
        case _:
            subject = f"`{where}`" if where else "the arguments"
            # Of an item, its list's type says nothing.
            is_item = isinstance((fault.instance_path or [0])[-1], int)
            wanted = (
                ""
                if is_item
                else _describe_expected(known.get(_parameter_path(fault.instance_path)))
            )
            yield f"{subject}: {_shorten(fault.message)}{wanted}"


def _describe_expected(parameter: Parameter | None) -> str:
    if parameter is None:
        return ""
    choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
    about = f": {parameter.description}" if parameter.description else ""
    return _shorten(f"; expected {parameter.type}{choices}{about}")


def _suggest_field(name: str, fields: list[str]) -> str:
    names = [field.rpartition(".")[2] for field in fields]
    near = get_close_matches(name[:MAX_MESSAGE_CHARS], names, n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return _shorten(f"; the fields are {', '.join(names)}") if names else "; leave it out"


def _render_location(steps: list[str | int]) -> str:
    """Where something stands, as a person writes it: `to[0].name`."""
    place = ""
    for step in steps:
        place = f"{place}[{step}]" if isinstance(step, int) else _join_path(place, step)
    return _shorten(place)


def _join_path(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _parameter_path(steps: list[str | int]) -> str:
    """The path of a parameter, in which items of a list have no number."""
    return ".".join(step for step in steps if isinstance(step, str))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 1]}…"
