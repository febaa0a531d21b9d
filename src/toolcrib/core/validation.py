"""Validate the arguments of a call against a tool's JSON Schema.

Both the schema and the arguments are untrusted. So nothing is fetched, patterns have a budget, and the
steps of a validation are counted before it runs: a small schema with references that expand
exponentially could otherwise keep a validator busy for years.
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

from toolcrib.core.schema import Parameter, SchemaDocument, enter_part, list_parameters
from toolcrib.errors import InvalidSchema

MAX_PROBLEMS: Final = 10
# Limits of a validation: a base, an addition for each value in the arguments, and a total.
MAX_STEPS: Final = 10_000
STEPS_PER_VALUE: Final = 10
MAX_TOTAL_STEPS: Final = 1_000_000
MAX_MESSAGE_CHARS: Final = 300
MAX_VALIDATORS: Final = 1_024

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000, dfa_size_limit=1_000_000)
# The versions tried for a schema that does not declare one, newest first.
_VERSIONS = (jsonschema_rs.Draft202012Validator, jsonschema_rs.Draft7Validator, jsonschema_rs.Draft4Validator)

_DEFINITIONS = ("$defs", "definitions")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_EVERY_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EVERY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")


def find_problems(schema: Mapping[str, Any], arguments: object) -> tuple[str, ...]:
    """Return what is wrong with the arguments, one sentence per problem; empty if they are valid.

    Of a schema that is broken, the parts that can be used are checked. Raises `InvalidSchema` if the
    validation would take too many steps.
    """
    validator, document = _load_schema(_render_schema(schema))
    _check_steps(document, arguments)
    try:
        errors = list(islice(validator.iter_errors(arguments), MAX_PROBLEMS))
    except ValueError as error:
        return (f"the arguments are not JSON: {_shorten(str(error))}",)
    known = {parameter.path: parameter for parameter in list_parameters(schema)} if errors else {}
    return tuple(dict.fromkeys(problem for error in errors for problem in _describe_error(error, known)))


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `InvalidSchema` if a part of this schema is broken."""
    _build_validator(_render_schema(schema))


def find_schema_problem(schema: Mapping[str, Any]) -> str:
    """Return what is wrong with a schema; empty if nothing is."""
    try:
        check_schema(schema)
    except InvalidSchema as error:
        return str(error)
    return ""


def _render_schema(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"the schema is not JSON: {_shorten(str(error))}; correct it") from error


@lru_cache(maxsize=MAX_VALIDATORS)
def _load_schema(text: str) -> tuple[jsonschema_rs.Validator, SchemaDocument]:
    try:
        return _build_validator(text), SchemaDocument(json.loads(text))
    except InvalidSchema:
        usable = _drop_broken_parts(json.loads(text))
        return _build_validator(json.dumps(usable)), SchemaDocument(usable)


def _drop_broken_parts(schema: object) -> dict[str, Any]:
    """Return the keywords and properties of a schema that can be used separately."""
    parts = schema if isinstance(schema, dict) else {}
    usable = {name: parts[name] for name in _DEFINITIONS if name in parts and _is_usable({name: parts[name]})}
    for keyword, value in parts.items():
        if keyword == "properties" and isinstance(value, dict):
            value = {
                name: one if _is_usable({**usable, "properties": {name: one}}) else True for name, one in value.items()
            }
        if keyword not in _DEFINITIONS and _is_usable({**usable, keyword: value}):
            usable[keyword] = value
    return usable


def _is_usable(schema: dict[str, Any]) -> bool:
    try:
        _build_validator(json.dumps(schema))
    except InvalidSchema:
        return False
    return True


def _build_validator(text: str) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(text, offline=True, pattern_options=_PATTERNS)
    except ValueError as error:
        plain = json.loads(text)
        plain.pop("$schema", None)
        for version in _VERSIONS:
            try:
                return version(json.dumps(plain), offline=True, pattern_options=_PATTERNS)
            except ValueError:
                continue
        message = getattr(error, "message", str(error))
        location = _render_location(getattr(error, "instance_path", []))
        message = f"{message} (at {location})" if location else message
        raise InvalidSchema(f"not a JSON Schema that can be used: {_shorten(message)}") from error


def _count_values(value: object) -> int:
    """Return the number of values in a value, including itself, up to a limit."""
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
    """Raise `InvalidSchema` if a validation would take too many steps."""
    limit = min(MAX_STEPS + STEPS_PER_VALUE * _count_values(value), MAX_TOTAL_STEPS)
    steps = 0
    schema, bases = document.root
    waiting = [(schema, value, bases)]
    while waiting:
        steps += 1
        part, inside, bases = waiting.pop()
        if isinstance(part, Mapping):
            bases = enter_part(part, bases)
            for targets in document.resolve_references(part, bases):
                if not targets:
                    raise InvalidSchema(
                        "the schema has a reference that cannot be resolved, so the cost of a "
                        "validation is unknown; use a path such as #/$defs/part"
                    )
                waiting.extend((target, inside, around) for target, around in targets)
            waiting.extend((one, inner_value, bases) for one, inner_value in islice(_next_schemas(part, inside), limit))
        # Each waiting part takes at least one step.
        if steps + len(waiting) >= limit:
            raise InvalidSchema(
                f"validating these arguments would take over {limit:,} steps; "
                "give the tool a schema with fewer alternatives, or send less at once"
            )


def _next_schemas(part: Mapping[str, Any], value: object) -> Iterator[tuple[object, object]]:
    """Yield the inner schemas that a validator visits next, each with the value it checks."""
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


def _describe_error(error: jsonschema_rs.ValidationError, known: Mapping[str, Parameter]) -> Iterator[str]:
    """Yield sentences about one error: the field, and what was expected."""
    where = _render_location(error.instance_path)
    match error.kind:
        case ValidationErrorKind.Required(property=name):
            expected = _describe_expected(known.get(_parameter_path([*error.instance_path, name])))
            yield f"`{_join_path(where, name)}` is missing{expected}"
        case ValidationErrorKind.AdditionalProperties(unexpected=names):
            inside = _parameter_path(error.instance_path)
            fields = [path for path in known if path.rpartition(".")[0] == inside]
            for name in names[:MAX_PROBLEMS]:
                yield f"`{_shorten(_join_path(where, name))}` is not a known field{_suggest_field(name, fields)}"
        case ValidationErrorKind.FalseSchema():
            yield f"nothing is allowed {f'in `{where}`' if where else 'here'}; leave it out"
        case _:
            subject = f"`{where}`" if where else "the arguments"
            # The type of a list does not describe its items.
            is_item = isinstance((error.instance_path or [0])[-1], int)
            expected = "" if is_item else _describe_expected(known.get(_parameter_path(error.instance_path)))
            yield f"{subject}: {_shorten(error.message)}{expected}"


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
    """Return the location of a value, such as `to[0].name`."""
    location = ""
    for step in steps:
        location = f"{location}[{step}]" if isinstance(step, int) else _join_path(location, step)
    return _shorten(location)


def _join_path(location: str, name: str) -> str:
    return f"{location}.{name}" if location else name


def _parameter_path(steps: list[str | int]) -> str:
    """Return the path of a parameter, without the numbers of list items."""
    return ".".join(step for step in steps if isinstance(step, str))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 1]}…"
