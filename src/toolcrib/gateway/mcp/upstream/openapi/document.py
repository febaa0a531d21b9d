"""Read an OpenAPI document: its references, its schemas and the address of its API."""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from toolcrib.adapters.plain_json import repair_surrogates
from toolcrib.errors import InvalidConfig
from toolcrib.files.yaml_text import parse_yaml

MAX_DOCUMENT_BYTES: Final = 20 * 1024 * 1024
MAX_REFERENCE_STEPS: Final = 20
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_VERSION: Final = re.compile(r"3\.\d")
# A document may be hostile: its schemas may be huge, deep, recursive or expand exponentially.
MAX_SCHEMA_PARTS: Final = 5_000
MAX_SCHEMA_DEPTH: Final = 40
# A model does not need every detail of a response to use it.
MAX_OUTPUT_PARTS: Final = 500
_MAX_EXAMPLE_CHARS: Final = 200
_PLAIN_KEYWORDS: Final = frozenset(
    {
        *("type", "format", "enum", "const", "default", "title", "description", "required", "pattern", "deprecated"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains", "dependentRequired", "contentEncoding", "contentMediaType"),
    }
)
_SCHEMA_KEYWORDS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_LIST_KEYWORDS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP_KEYWORDS: Final = ("properties", "patternProperties")
_INVALID_NAME_CHARS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def fetch_remote_file(url: str, max_bytes: int, timeout_seconds: float, *, uses_proxy: bool = True) -> bytes:
    """Return the content at a URL; raise `InvalidConfig` if it can't be read, is too large or redirects."""
    request = urllib.request.Request(url, headers={"Accept": "application/json, application/yaml;q=0.9, */*;q=0.1"})
    opener = urllib.request.build_opener(_NoRedirects, *[urllib.request.ProxyHandler({})] * (not uses_proxy))
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            content: bytes = response.read(max_bytes + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise InvalidConfig(f"{url} returned HTTP {error.code}; check the address") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InvalidConfig(f"{url}: cannot be read: {getattr(error, 'reason', error)}") from None
    if len(content) > max_bytes:
        raise InvalidConfig(f"{url}: is larger than {max_bytes // 1024**2} MiB")
    return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the user has chosen this address and no other."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> NoReturn:
        fp.close()
        raise InvalidConfig(f"{req.full_url} redirects to {newurl}; pass that address if you trust it")


class UnresolvedReference(Exception):
    """A `$ref` that is not used; the message has the reason."""


@dataclass(frozen=True, slots=True)
class OpenApiDocument:
    """A parsed document and the file or URL it was read from."""

    source: str
    root: Mapping[str, Any]

    @property
    def has_old_schemas(self) -> bool:
        """Whether schemas have the keywords of version 3.0, such as `nullable`."""
        return str(self.root.get("openapi")).startswith("3.0")

    @property
    def title(self) -> str:
        """The title of the API."""
        return get_text(get_mapping(self.root, "info"), "title")

    def resolve(self, value: object) -> Mapping[str, Any]:
        """Return an object of the document, following its references; raise `UnresolvedReference`."""
        for _ in range(MAX_REFERENCE_STEPS):
            if not isinstance(value, Mapping):
                raise UnresolvedReference("it has a part that is not an object")
            if not isinstance(value.get("$ref"), str):
                return value
            value = self.find_target(value["$ref"])
        raise UnresolvedReference("it has a reference that refers to itself")

    def find_target(self, reference: str) -> object:
        """Return what a reference points to. References to other files or addresses are refused."""
        if not reference.startswith("#/"):
            raise UnresolvedReference(
                f"it refers to {reference[:80]!r}, which is not read; bundle the document into one file"
            )
        target: object = self.root
        for step in reference[2:].split("/"):
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise UnresolvedReference(f"it refers to {reference[:80]!r}, which the document does not have")
        return target


def load_document(source: str, timeout_seconds: float = 30.0, *, uses_proxy: bool = True) -> OpenApiDocument:
    """Return the document in a file or at a URL; raise `InvalidConfig` if it can't be used."""
    if is_remote(source):
        content = fetch_remote_file(source, MAX_DOCUMENT_BYTES, timeout_seconds, uses_proxy=uses_proxy)
    else:
        content = _read_file(source)
    return parse_document(source, content)


def parse_document(source: str, content: bytes) -> OpenApiDocument:
    """Return the document in a JSON or YAML text."""
    try:
        text = repair_surrogates(content.decode("utf-8-sig"))
        root = json.loads(text) if text.lstrip().startswith("{") else parse_yaml(source, text, InvalidConfig)
    except (ValueError, RecursionError):
        raise InvalidConfig(f"{source}: is neither JSON nor YAML that can be read") from None
    if not isinstance(root, dict) or not is_openapi(root):
        raise InvalidConfig(f"{source}: is not an OpenAPI document; it has no `openapi` and `paths`")
    if "swagger" in root or not _VERSION.match(str(root.get("openapi"))):
        version = root.get("swagger") or root.get("openapi")
        raise InvalidConfig(f"{source}: has version {version!s:.20}; convert it to OpenAPI 3.0 or 3.1")
    return OpenApiDocument(source, root)


def is_openapi(document: object) -> bool:
    """Return whether a JSON value looks like an OpenAPI or Swagger document."""
    return isinstance(document, Mapping) and ("openapi" in document or "swagger" in document)


def is_remote(source: str) -> bool:
    """Return whether a source is a URL and not a file."""
    return source.startswith(("http://", "https://"))


def find_base_url(document: OpenApiDocument, configured: str = "") -> str:
    """Return the address of the API; raise `InvalidConfig` if the document's own is not trusted.

    A document from another machine must not choose where requests and tokens are sent, so its address
    is used only if it is on the same host.
    """
    url = configured or read_server_url(document)
    if not configured and is_remote(document.source) and not is_same_host(url, document.source):
        raise InvalidConfig(f"{document.source}: the API is on another host ({url}); set `baseUrl` if you trust it")
    return url.rstrip("/")


def read_server_url(document: OpenApiDocument) -> str:
    """Return the first address that a document names, as an absolute URL."""
    servers = document.root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = expand_server_url(first if isinstance(first, Mapping) else {})
    if is_remote(document.source):
        url = urljoin(document.source, url or "/")
    try:
        is_valid = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidConfig(f"{document.source}: does not name the address of the API; set `baseUrl`")
    return url


def expand_server_url(server: Mapping[str, Any]) -> str:
    """Return the URL of a server with its variables replaced by their defaults."""
    variables = get_mapping(server, "variables")
    return _PLACEHOLDER.sub(
        lambda match: get_text(get_mapping(variables, match[1]), "default") or match[0], get_text(server, "url")
    )


def is_same_host(url: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return _split_origin(url) == _split_origin(other)


def is_private_host(url: str) -> bool:
    """Return whether a URL names this machine or an address of a private network."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
    return not address.is_global


def get_mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a member that is an object, or an empty one."""
    value = holder.get(key)
    return value if isinstance(value, Mapping) else {}


def get_text(holder: Mapping[str, Any], key: str) -> str:
    """Return a member that is a text, or an empty one."""
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _read_file(source: str) -> bytes:
    try:
        with Path(source).expanduser().open("rb") as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_DOCUMENT_BYTES:
        raise InvalidConfig(f"{source}: is larger than {MAX_DOCUMENT_BYTES // 1024**2} MiB")
    return content


def _split_origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or default


class SchemaConverter:
    """Converts the schemas of one tool; what they refer to is collected in `definitions`.

    Parts over a limit accept any value, so a tool of a huge document can still be called. Requests do not
    have properties that are read-only, and responses do not have those that are write-only.
    """

    def __init__(self, document: OpenApiDocument, *, is_response: bool = False) -> None:
        self._document = document
        self._left_out = "writeOnly" if is_response else "readOnly"
        self._parts_left = MAX_OUTPUT_PARTS if is_response else MAX_SCHEMA_PARTS
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Any] = {}

    def convert(self, schema: object, depth: int = 0) -> Any:
        """Return a schema for the arguments or the result of a call; raise `UnresolvedReference`."""
        self._parts_left -= 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping) or self._parts_left < 0 or depth > MAX_SCHEMA_DEPTH:
            return {}
        if isinstance(schema.get("$ref"), str):
            # Of the other keywords next to `$ref`, only the description is kept.
            note = schema.get("description")
            return {"$ref": self._define(schema["$ref"]), **({"description": note} if isinstance(note, str) else {})}
        converted = {key: value for key, value in schema.items() if key in _PLAIN_KEYWORDS}
        for key in _SCHEMA_KEYWORDS:
            if key in schema:
                converted[key] = self.convert(schema[key], depth + 1)
        for key in _LIST_KEYWORDS:
            if isinstance(schema.get(key), list):
                converted[key] = [self.convert(item, depth + 1) for item in schema[key]]
        for key in _MAP_KEYWORDS:
            if isinstance(schema.get(key), Mapping):
                members = schema[key].items()
                converted[key] = {
                    str(name): self.convert(member, depth + 1) for name, member in members if self._is_used(member)
                }
        self._update_required(schema, converted)
        _convert_examples(schema, converted)
        if self._document.has_old_schemas:
            _convert_old_keywords(schema, converted)
        return converted

    def _is_used(self, member: object) -> bool:
        return not (isinstance(member, Mapping) and member.get(self._left_out) is True)

    def _update_required(self, schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
        """Do not require properties that are left out."""
        members, required = schema.get("properties"), converted.get("required")
        if not isinstance(required, list):
            # In version 3, `required` is a list; the boolean of older versions is ignored.
            converted.pop("required", None)
        elif isinstance(members, Mapping):
            converted["required"] = [name for name in required if self._is_used(members.get(name))]

    def _define(self, reference: str) -> str:
        """Return the reference to a definition, which is converted on first use."""
        name = self._names.get(reference)
        if name is None:
            base = _INVALID_NAME_CHARS.sub("_", reference.rpartition("/")[2])[:60] or "schema"
            taken = self._names.values()
            numbered = (f"{base}_{number}" for number in range(2, 10**6))
            name = base if base not in taken else next(free for free in numbered if free not in taken)
            self._names[reference] = name
            self.definitions[name] = {}
            self.definitions[name] = self.convert(self._document.find_target(reference), 1)
        return f"#/$defs/{name}"


def _convert_examples(schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
    """Keep short examples, which help a model to write a value."""
    examples = schema.get("examples")
    found = examples if isinstance(examples, list) else [schema["example"]] if "example" in schema else []
    short = [item for item in found if isinstance(item, str | int | float) and len(str(item)) <= _MAX_EXAMPLE_CHARS]
    if short:
        converted["examples"] = short[:3]


def _convert_old_keywords(schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
    """Replace the keywords of version 3.0 that JSON Schema does not have."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(converted.get(exclusive), bool):
            is_exclusive = converted.pop(exclusive)
            if is_exclusive and limit in converted:
                converted[exclusive] = converted.pop(limit)
    if schema.get("nullable") is True:
        if isinstance(converted.get("type"), str):
            converted["type"] = [converted["type"], "null"]
        if isinstance(converted.get("enum"), list) and None not in converted["enum"]:
            converted["enum"] = [*converted["enum"], None]
