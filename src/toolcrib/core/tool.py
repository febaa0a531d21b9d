"""The tool: an immutable definition that a model can be shown."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NoReturn, get_args

from toolcrib.errors import InvalidSchema, InvalidTool

Policy = Literal["never", "automatic", "always"]

SERVER_SEPARATOR = "___"
MAX_NAME_CHARS = 512
MAX_TEXT_CHARS = 1_000_000
MAX_SCHEMA_CHARS = 4 * 1024 * 1024
MAX_JSON_DEPTH = 400
# How many example requests of a tool are searched.
MAX_EXAMPLES = 8

# Line breaks and other control characters in a name could forge lines in a prompt or a log; a lone
# surrogate cannot be encoded.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_TEXT_FIELDS = ("id", "name", "description", "title", "server", "server_description", "category", "hint", "version")
_texts = attrgetter(*_TEXT_FIELDS)
_json_texts = attrgetter("policy", "_input_schema", "_output_schema", "_annotations", "_examples")
_POLICIES = get_args(Policy)
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
# Fields that are not stored as JSON.
_NON_JSON_FIELDS = frozenset((*_TEXT_FIELDS, "policy"))


class Tool:
    """One tool. It is immutable.

    Schemas, examples and annotations are stored as JSON text, which takes less memory, cannot be
    changed through a shared dictionary, and keeps the order of keys. The properties parse the text
    on each access, so the caller owns what they return.
    """

    __slots__ = (
        "_annotations", "_examples", "_input_schema", "_output_schema", "category", "description", "hint", "id",
        "name", "policy", "server", "server_description", "tags", "title", "version",
    )  # fmt: skip

    id: str
    name: str
    description: str
    title: str
    server: str
    server_description: str
    category: str
    tags: tuple[str, ...]
    hint: str
    version: str
    policy: Policy
    _input_schema: str
    _output_schema: str
    _annotations: str
    _examples: str

    def __init__(
        self,
        name: str,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        *,
        id: str = "",
        title: str = "",
        server: str = "",
        server_description: str = "",
        category: str = "",
        tags: Iterable[str] = (),
        hint: str = "",
        version: str = "",
        examples: Iterable[Any] = (),
        output_schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        policy: Policy = "automatic",
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "id", id)
        set_field(self, "name", name)
        set_field(self, "description", description)
        set_field(self, "title", title)
        set_field(self, "server", server)
        set_field(self, "server_description", server_description)
        set_field(self, "category", category)
        set_field(self, "hint", hint)
        set_field(self, "version", version)
        set_field(self, "tags", _to_tags(name, tags))
        set_field(self, "policy", policy)
        self._finish()
        set_field(self, "_input_schema", _schema_text(name, "input_schema", input_schema))
        set_field(self, "_output_schema", _schema_text(name, "output_schema", output_schema))
        set_field(self, "_annotations", _schema_text(name, "annotations", annotations))
        set_field(self, "_examples", _json_text(name, "examples", _to_list(name, "examples", examples)))

    def _finish(self) -> None:
        """Set the default id, validate the texts, and deduplicate server and category."""
        set_field = object.__setattr__
        if not self.id and isinstance(self.server, str) and isinstance(self.name, str):
            set_field(self, "id", _default_id(self.server, self.name))
        self._check()
        set_field(self, "server", _deduplicate(self.server))
        set_field(self, "category", _deduplicate(self.category))

    def _check(self) -> None:
        for field, value in zip(_TEXT_FIELDS, _texts(self), strict=True):
            if not isinstance(value, str):
                raise InvalidTool(f"tool {_quote_name(self.name)}: {field} must be text, not {type(value).__name__}")
            if len(value) > MAX_TEXT_CHARS:
                raise InvalidTool(
                    f"tool {_quote_name(self.name)}: {field} has {len(value):,} characters; "
                    f"the limit is {MAX_TEXT_CHARS:,}"
                )
        if not self.name.strip():
            raise InvalidTool("a tool needs a name")
        for field, value in (("name", self.name), ("server", self.server), ("id", self.id)):
            if len(value) > MAX_NAME_CHARS:
                raise InvalidTool(
                    f"tool {_quote_name(self.name)}: {field} has {len(value):,} characters; "
                    f"the limit is {MAX_NAME_CHARS}"
                )
            if _UNPRINTABLE.search(value):
                raise InvalidTool(
                    f"tool {_quote_name(self.name)}: {field} holds a line break or another control character; remove it"
                )
        if self.policy not in _POLICIES:
            raise InvalidTool(
                f"tool {_quote_name(self.name)}: policy {self.policy!r} is not one of {', '.join(_POLICIES)}"
            )

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return _json_object(self._input_schema)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the result; empty if there is none."""
        return _json_object(self._output_schema)

    @property
    def annotations(self) -> dict[str, Any]:
        """The MCP annotations about behaviour, such as `readOnlyHint`."""
        return _json_object(self._annotations)

    @property
    def examples(self) -> list[Any]:
        """Example calls (objects), and requests that the tool serves (texts), which are searched."""
        examples: list[Any] = json.loads(self._examples)
        return examples

    @property
    def example_requests(self) -> tuple[str, ...]:
        """The first examples that are texts: requests in the words of a user."""
        if self._examples == "[]":
            return ()
        requests = [example for example in self.examples if isinstance(example, str) and example.strip()]
        return tuple(requests[:MAX_EXAMPLES])

    @property
    def read_only(self) -> bool:
        """Whether the tool declares itself read-only."""
        return "readOnlyHint" in self._annotations and self.annotations.get("readOnlyHint") is True

    @property
    def fingerprint(self) -> str:
        """A digest of all fields, equal for equal tools on every machine."""
        text = json.dumps(self.to_dict(), separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def digest(self) -> bytes:
        """A digest of all fields, faster to compute than `fingerprint`. Another version may compute another one."""
        texts = (*_texts(self), *_json_texts(self), *self.tags)
        content = f"{[*map(len, texts)]}{''.join(texts)}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16).digest()

    @property
    def definition_fingerprint(self) -> str:
        """A digest of what the tool does. Its id, hint, tags, examples and policy do not change it."""
        fields = [self.server, self.name, self.title, self.description, self._input_schema]
        return hashlib.blake2b(json.dumps(fields).encode(), digest_size=16).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not empty, as JSON values."""
        fields: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "title": self.title,
            "server": self.server,
            "server_description": self.server_description,
            "category": self.category,
            "tags": list(self.tags),
            "hint": self.hint,
            "version": self.version,
            "examples": self.examples,
            "output_schema": self.output_schema,
            "annotations": self.annotations,
            "policy": self.policy,
        }
        return {field: value for field, value in fields.items() if value}

    def replace(self, **changes: Any) -> Tool:
        """Return a tool with some fields changed. A default id follows the name and the server."""
        if self.id == _default_id(self.server, self.name):
            changes = {"id": "", **changes}
        if not changes.keys() <= _NON_JSON_FIELDS:
            return Tool(**{**self.to_dict(), **changes})
        tool = object.__new__(Tool)
        for slot in self.__slots__:
            object.__setattr__(tool, slot, changes[slot] if slot in changes else getattr(self, slot))
        tool._finish()
        return tool

    def with_example_requests(self, requests: Sequence[str]) -> Tool:
        """Return the tool with these example requests in place of its own; example calls stay."""
        return self.replace(examples=[*(one for one in self.examples if not isinstance(one, str)), *requests])

    def _state(self) -> tuple[object, ...]:
        return tuple(getattr(self, slot) for slot in self.__slots__)

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"a Tool is immutable: use tool.replace({attribute}=…)")

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError("a Tool is immutable")

    def __reduce__(self) -> tuple[object, tuple[dict[str, Any]]]:
        return _tool_from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tool) and self._state() == other._state())

    def __hash__(self) -> int:
        return hash((self.id, self.description))

    def __repr__(self) -> str:
        return f"Tool({self.id!r})"


def _tool_from_dict(fields: dict[str, Any]) -> Tool:
    return Tool(**fields)


def _quote_name(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}…"


@lru_cache(maxsize=10_000)
def _deduplicate(text: str) -> str:
    """Return one shared copy of a text that many tools have, such as a server name."""
    return text


def _default_id(server: str, name: str) -> str:
    return f"{server}{SERVER_SEPARATOR}{name}" if server else name


def _to_tags(name: object, tags: Iterable[str]) -> tuple[str, ...]:
    found = _to_list(name, "tags", tags)
    if not all(isinstance(tag, str) for tag in found):
        raise InvalidTool(f"tool {_quote_name(name)}: tags must be a list of texts")
    return tuple(map(_deduplicate, found))


def _to_list(name: object, field: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):
        return [values]
    if isinstance(values, Mapping | bytes) or not isinstance(values, Iterable):
        raise InvalidTool(f"tool {_quote_name(name)}: {field} must be a list, not {type(values).__name__}")
    return list(values)


def _schema_text(name: str, field: str, value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "{}"
    if not isinstance(value, Mapping):
        raise InvalidSchema(f"tool {_quote_name(name)}: {field} must be an object, not {type(value).__name__}")
    return _json_text(name, field, value)


def _json_text(name: str, field: str, value: object) -> str:
    if value == []:
        return "[]"
    try:
        text = _encode_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"tool {_quote_name(name)}: {field} is not valid JSON: {error}") from error
    if len(text) > MAX_SCHEMA_CHARS:
        raise InvalidSchema(
            f"tool {_quote_name(name)}: {field} has {len(text):,} characters; the limit is {MAX_SCHEMA_CHARS:,}"
        )
    if text.count("{") + text.count("[") > MAX_JSON_DEPTH and _is_too_deep(value):
        raise InvalidSchema(
            f"tool {_quote_name(name)}: {field} is nested more than {MAX_JSON_DEPTH} deep; use fewer levels"
        )
    return text


def _is_too_deep(value: Any) -> bool:
    """Return whether a value is nested so deeply that Python may fail to parse its JSON text."""
    level, depth = [value], 0
    while level and depth < MAX_JSON_DEPTH:
        parts = (part for one in level for part in (one.values() if isinstance(one, Mapping) else one))
        level, depth = [part for part in parts if isinstance(part, Mapping | list | tuple)], depth + 1
    return bool(level)


def _json_object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
