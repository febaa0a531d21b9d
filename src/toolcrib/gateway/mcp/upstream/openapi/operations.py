"""The operations of an OpenAPI document as tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.gateway.mcp.upstream.openapi.document import (
    OpenApiDocument,
    SchemaConverter,
    UnresolvedReference,
    expand_server_url,
    get_mapping,
    get_text,
    is_remote,
    is_same_host,
)

MAX_OPERATIONS: Final = 5_000
MAX_PARAMETERS: Final = 500
MAX_DESCRIPTION_CHARS: Final = 4_000
BODY_ARGUMENT: Final = "body"
# Holds a response that is not an object, because the structured content of a result is one.
RESULT_MEMBER: Final = "result"
JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
MULTIPART_TYPE: Final = "multipart/form-data"

_ANNOTATIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    "get": {"readOnlyHint": True},
    "head": {"readOnlyHint": True},
    "post": {"readOnlyHint": False, "destructiveHint": False},
    "put": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "patch": {"readOnlyHint": False, "destructiveHint": False},
    "delete": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
}
_LOCATIONS: Final = ("path", "query", "header", "cookie")
# OpenAPI reserves these for the content types and the credentials of a request.
_RESERVED_HEADERS: Final = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection", "cookie"}
)
_DEFAULT_STYLES: Final = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_INVALID_NAME_CHARS: Final = re.compile(r"[^A-Za-z0-9_-]+")


class UnsupportedOperation(Exception):
    """An operation that can't be a tool; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ApiParameter:
    """A parameter of an operation, and the argument of the tool that sets it."""

    argument: str
    name: str
    location: str
    style: str
    explode: bool
    is_required: bool
    # The media type of a parameter that is sent as JSON; empty for the usual styles.
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class ApiBody:
    """The body of an operation: one argument, or with `members` one argument for each of its properties."""

    media_type: str
    is_required: bool
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """An operation of an API and its tool definition."""

    method: str
    path: str
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    definition: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the tool."""
        return str(self.definition["name"])


@dataclass(frozen=True, slots=True)
class ApiOperations:
    """The operations of a document, and for each that can't be used the reason."""

    operations: tuple[ApiOperation, ...]
    problems: tuple[str, ...]


def read_operations(
    document: OpenApiDocument, base_url: str, configured: Mapping[str, frozenset[str]] | None = None
) -> ApiOperations:
    """Return the operations of a document.

    `configured` has the names of headers (in lower case) and query parameters that the configuration
    sets; these are not arguments.
    """
    operations: dict[str, ApiOperation] = {}
    problems: list[str] = []
    for method, path, item, operation in _iter_operations(document):
        label = f"{method.upper()} {path[:100]}"
        if len(operations) >= MAX_OPERATIONS:
            problems.append(f"{label}: the document has more than {MAX_OPERATIONS:,} operations")
            break
        try:
            _check_host(document, base_url, item, operation)
            reader = _OperationReader(document, configured or {})
            read = reader.read(method, path, item, operation, _choose_name(method, path, operation, operations))
            operations[read.name] = read
        except (UnresolvedReference, UnsupportedOperation) as error:
            problems.append(f"{label}: {error}")
    return ApiOperations(tuple(operations.values()), tuple(problems))


def _iter_operations(document: OpenApiDocument) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    for path, found in get_mapping(document.root, "paths").items():
        try:
            item = document.resolve(found)
        except UnresolvedReference:
            # An operation that can't be read is reported when it is resolved.
            item = {}
        for method in _ANNOTATIONS:
            if isinstance(item.get(method), Mapping):
                yield method, str(path), item, item[method]


def _check_host(
    document: OpenApiDocument, base_url: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> None:
    """Refuse an operation with its own server on another host."""
    servers = operation.get("servers") or item.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = expand_server_url(first) if isinstance(first, Mapping) else ""
    if is_remote(url) and not is_same_host(url, base_url):
        raise UnsupportedOperation("it is on another host than the API")


def _choose_name(method: str, path: str, operation: Mapping[str, Any], taken: Mapping[str, ApiOperation]) -> str:
    name = _INVALID_NAME_CHARS.sub("_", get_text(operation, "operationId")).strip("_")
    if not name:
        words = re.sub(r"\{([^{}]*)\}", r"by_\1", path)
        name = _INVALID_NAME_CHARS.sub("_", f"{method}_{words.strip('/')}").strip("_")
    name = name[:100]
    return next(free for number in range(1, 10**6) if (free := f"{name}_{number}" if number > 1 else name) not in taken)


class _OperationReader:
    """Reads one operation."""

    def __init__(self, document: OpenApiDocument, configured: Mapping[str, frozenset[str]]) -> None:
        self._document = document
        self._configured = configured
        self._schemas = SchemaConverter(document)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def read(
        self, method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any], name: str
    ) -> ApiOperation:
        """Return the operation; raise `UnresolvedReference` or `UnsupportedOperation`."""
        parameters = tuple(self._read_parameters(item, operation))
        in_path = {parameter.name for parameter in parameters if parameter.location == "path"}
        if missing := set(re.findall(r"\{([^{}]*)\}", path)) - in_path:
            raise UnsupportedOperation(f"its path has {sorted(missing)[0]!r:.60}, which is not a parameter")
        body = self._read_body(operation) if method not in ("get", "head") else None
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        if self._schemas.definitions:
            schema["$defs"] = self._schemas.definitions
        definition = {
            "name": name,
            "description": _describe(method, path, operation),
            "inputSchema": schema,
            "annotations": {**_ANNOTATIONS[method], "openWorldHint": True},
        }
        if title := get_text(operation, "summary"):
            definition["title"] = title[:200]
        if output := _read_output(self._document, operation):
            definition["outputSchema"] = output
        return ApiOperation(method.upper(), path, parameters, body, definition)

    def _read_parameters(self, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[ApiParameter]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for holder in (item, operation):
            entries = holder.get("parameters")
            for entry in entries if isinstance(entries, list) else []:
                parameter = self._document.resolve(entry)
                found[get_text(parameter, "name"), get_text(parameter, "in")] = parameter
        if len(found) > MAX_PARAMETERS:
            raise UnsupportedOperation(f"it has more than {MAX_PARAMETERS:,} parameters")
        for (name, location), parameter in found.items():
            is_known = bool(name) and location in _LOCATIONS
            if is_known and not self._is_configured(name, location):
                yield self._read_parameter(name, location, parameter)

    def _is_configured(self, name: str, location: str) -> bool:
        """Return whether a parameter is set by the configuration or by the HTTP client."""
        if location == "header":
            return name.lower() in _RESERVED_HEADERS | self._configured.get("header", frozenset())
        return name in self._configured.get(location, frozenset())

    def _read_parameter(self, name: str, location: str, parameter: Mapping[str, Any]) -> ApiParameter:
        argument = name if name not in self._properties else f"{name}_{location}"
        style = get_text(parameter, "style") or _DEFAULT_STYLES[location]
        explode = parameter.get("explode")
        is_required = location == "path" or parameter.get("required") is True
        content = get_mapping(parameter, "content")
        schema: Any = parameter.get("schema", {})
        if content:
            first = next(iter(content.values()))
            schema = first.get("schema", {}) if isinstance(first, Mapping) else {}
        converted = self._schemas.convert(schema)
        self._add_argument(argument, converted, get_text(parameter, "description"), is_required=is_required)
        return ApiParameter(
            argument=argument,
            name=name,
            location=location,
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            is_required=is_required,
            is_json=bool(content),
        )

    def _read_body(self, operation: Mapping[str, Any]) -> ApiBody | None:
        if "requestBody" not in operation:
            return None
        body = self._document.resolve(operation["requestBody"])
        content = get_mapping(body, "content")
        is_required = body.get("required") is True
        media_type = _choose_media_type(content)
        if not media_type:
            if not is_required:
                return None
            raise UnsupportedOperation(f"its body has the type {', '.join(map(str, content))[:80] or 'unknown'}")
        schema: object = get_mapping(content, media_type).get("schema", {})
        members = self._flatten_body(schema, is_required=is_required)
        if not members:
            note = get_text(body, "description")
            self._add_argument(BODY_ARGUMENT, self._schemas.convert(schema), note, is_required=is_required)
        return ApiBody(media_type, is_required, members)

    def _flatten_body(self, schema: object, *, is_required: bool) -> tuple[str, ...]:
        """Make each property of a body an argument; return their names, or nothing if that is ambiguous."""
        resolved = self._document.resolve(schema) if isinstance(schema, Mapping) else {}
        members = get_mapping(resolved, "properties")
        is_plain = not {"allOf", "anyOf", "oneOf", "not", "if"} & resolved.keys()
        is_open = isinstance(resolved.get("additionalProperties"), Mapping) or resolved.get("nullable") is True
        if not members or not is_plain or is_open or not self._properties.keys().isdisjoint(members):
            return ()
        converted = self._schemas.convert(resolved)
        required = converted.get("required", []) if is_required else []
        for name, member in converted.get("properties", {}).items():
            self._add_argument(name, member, "", is_required=name in required)
        return tuple(converted.get("properties", {}))

    def _add_argument(self, name: str, schema: Any, description: str, *, is_required: bool) -> None:
        if isinstance(schema, dict) and description and not schema.get("description"):
            schema = {**schema, "description": description[:MAX_DESCRIPTION_CHARS]}
        self._properties[name] = schema
        if is_required and name not in self._required:
            self._required.append(name)


def _read_output(document: OpenApiDocument, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the result, or an empty one if the document does not describe a JSON response.

    APIs often differ from their documents, and clients reject results that do not match. So the schema
    describes the members of a response, and accepts others.
    """
    converter = SchemaConverter(document, is_response=True)
    try:
        schema = _find_response_schema(document, operation)
        resolved = document.resolve(schema) if schema else {}
        is_object = resolved.get("type") == "object" and bool(get_mapping(resolved, "properties"))
        converted = converter.convert(resolved if is_object else schema)
    except UnresolvedReference:
        return {}
    if not schema:
        return {}
    members = converted["properties"] if is_object else {RESULT_MEMBER: converted}
    output = {"type": "object", "properties": {name: {"anyOf": [member, {}]} for name, member in members.items()}}
    return {**output, "$defs": converter.definitions} if converter.definitions else output


def _find_response_schema(document: OpenApiDocument, operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the first successful response with JSON, or an empty one."""
    responses = get_mapping(operation, "responses")
    for status in sorted(responses, key=str):
        if str(status).startswith("2"):
            content = get_mapping(document.resolve(responses[status]), "content")
            media_type = _find_json_type(content)
            if media_type and (schema := get_mapping(get_mapping(content, media_type), "schema")):
                return schema
    return {}


def _find_json_type(content: Mapping[str, Any]) -> str:
    for media_type in content:
        base = str(media_type).partition(";")[0].strip().lower()
        if base == JSON_TYPE or base.endswith("+json") or base == "*/*":
            return str(media_type)
    return ""


def _choose_media_type(content: Mapping[str, Any]) -> str:
    """Return the media type in which a body is sent, or an empty string if none is supported."""
    return _find_json_type(content) or next(
        (str(media_type) for media_type in content if str(media_type).startswith((FORM_TYPE, MULTIPART_TYPE, "text/"))),
        "",
    )


def _describe(method: str, path: str, operation: Mapping[str, Any]) -> str:
    summary, details = get_text(operation, "summary").strip(), get_text(operation, "description").strip()
    texts = [summary] if summary and not details.startswith(summary) else []
    texts += [details[:MAX_DESCRIPTION_CHARS]] if details else []
    if operation.get("deprecated") is True:
        texts.insert(0, "Deprecated.")
    return "\n\n".join([*texts, f"{method.upper()} {path}"])
