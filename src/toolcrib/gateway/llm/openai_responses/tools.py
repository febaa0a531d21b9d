"""The `tools` of a response: functions, namespaces, MCP servers, and how they are searched.

A model behind any other upstream knows no namespaces. It is sent each member as a function whose
name tells both, and its calls are given back with the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from toolcrib.adapters.field_reader import FieldReader, describe_json_type
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.core import prompts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool, RequestFailed
from toolcrib.gateway.llm.tool_index import Entry, IndexedTool, ToolIndex, wire_name
from toolcrib.session.disclosure import Disclosure

NO_SEARCH: Final = "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
MISSING: Final = "Missing required parameter: '{param}'."
UNKNOWN: Final = "Unknown parameter: '{param}'."
NOT_BOOLEAN: Final = "Invalid type for '{param}': expected a boolean, but got {kind} instead."
TWICE: Final = "Invalid Value: '{param}'. There are two tools with the name {name!r}."

MAX_SOURCES_CHARS: Final = 6_000
MAX_SOURCE_CHARS: Final = 160

_DEFER_FIELD: Final = "defer_loading"
_CALLABLE: Final = ("function", "custom")
# What an MCP server is reached with is for the upstream alone.
_SECRETS: Final = ("authorization", "headers")


@dataclass(frozen=True)
class ResponsesToolIndex:
    """A shelf, and what belongs to this API: who searches, and which tools stand together.

    `client` is the entry by which the client offers to search; `asked` says that the request knows
    of tool search, so that the client is told of the searches.
    """

    tools: ToolIndex
    client_search: Entry | None = None
    uses_tool_search: bool = False
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def search_name(self) -> str:
        """What the model calls the search. Clients' descriptions speak of it as OpenAI calls it."""
        if self.client_search is None:
            return self.tools.search_tool.name
        name = "tool_search"
        while self.tools.find(name):
            name = f"_{name}"
        return name

    @cached_property
    def search_entry(self) -> Entry:
        """The function by which the model searches: ours, or the client's."""
        if self.client_search is None:
            search = self.tools.search_tool
            about = "\n".join([search.description, *_render_sources(self)])
            parameters: object = search.input_schema
        else:
            about = str_or_empty(self.client_search["description"])
            parameters = self.client_search.get("parameters") or {
                "type": "object",
                "properties": {},
            }
        return {
            "type": "function",
            "name": self.search_name,
            "description": about,
            "parameters": parameters,
            # Strict would refuse parameters that are not all required.
            "strict": False,
        }


@dataclass(frozen=True)
class _EntryLocation:
    """An entry, where it stands in the request, and in which namespace."""

    entry: Entry
    path: str
    namespace: Entry | None = None

    @property
    def is_deferred(self) -> bool:
        value = self.entry.get(_DEFER_FIELD)
        if value is not None and not isinstance(value, bool):
            raise _request_error(
                NOT_BOOLEAN,
                f"{self.path}.{_DEFER_FIELD}",
                "invalid_type",
                kind=describe_json_type(value),
            )
        return value is True


def uses_tool_search(tools: Sequence[Entry]) -> bool:
    """Whether a request uses tool search, or namespaces, which belong to it."""
    return any(
        _is_search(one) or one.get("type") == "namespace" or _DEFER_FIELD in one for one in tools
    )


def build_responses_index(
    tools: Sequence[Entry], disclosure: Disclosure | None = None
) -> ResponsesToolIndex:
    """The rack of a request. Where it asks for no search, `disclosure` says what is held back."""
    places = list(_iter_entries(tools))
    search = next((place for place in places if _is_search(place.entry)), None)
    asked = search is not None or any(place.is_deferred for place in places)
    if asked and search is None:
        raise _request_error(NO_SEARCH, f"tools.{_DEFER_FIELD}", "invalid_value")
    client = _parse_client_search(search) if search else None
    read = list(_parse_entries(places, asked))
    held = _choose_deferred(read, None if asked else disclosure)
    front, wares = _split_entries(read, held)
    groups = _group_by_namespace(wares)
    return ResponsesToolIndex(
        ToolIndex(front, wares, searched=client is None), client, asked, groups
    )


def render_found_entries(wares: Iterable[IndexedTool]) -> list[Entry]:
    """Tools as a search gives them back: in full, those of a namespace together."""
    found: dict[str, Entry] = {}
    for ware in wares:
        given = without_secrets(ware.client_entry)
        tool = ware.tool
        if not tool.server:
            found[f"tool {tool.id}"] = given
            continue
        group = found.setdefault(
            f"namespace {tool.server}",
            {
                "type": "namespace",
                "name": tool.server,
                "description": tool.server_description,
                "tools": [],
            },
        )
        group["tools"].append(given)
    return list(found.values())


def without_secrets(entry: Entry) -> Entry:
    """An entry as it is told to anybody."""
    return {name: value for name, value in entry.items() if name not in _SECRETS}


def parse_client_definitions(entries: Iterable[Entry]) -> Iterator[IndexedTool]:
    """The tools that a client defines in its history; what cannot be read is left out."""
    for place in _iter_entries(dicts_or_empty(list(entries)), strict=False):
        with suppress(InvalidTool, RequestFailed):
            if ware := _parse_entry(place, True):
                yield ware


def tool_path(ware: IndexedTool) -> str:
    """What a search calls a tool that it has found."""
    return f"{ware.tool.server}.{ware.tool.name}" if ware.tool.server else ware.tool.name


def _is_search(entry: Entry) -> bool:
    return entry.get("type") == "tool_search"


def _iter_entries(tools: Sequence[Entry], strict: bool = True) -> Iterator[_EntryLocation]:
    """The entries, and in place of a namespace its members."""
    for number, entry in enumerate(tools):
        path = f"tools[{number}]"
        if entry.get("type") != "namespace":
            yield _EntryLocation(entry, path)
            continue
        if strict and _DEFER_FIELD in entry:
            raise _request_error(UNKNOWN, f"{path}.{_DEFER_FIELD}", "unknown_parameter")
        for needed in ("name", "description") if strict else ():
            if not isinstance(entry.get(needed), str):
                raise _request_error(MISSING, f"{path}.{needed}", "missing_required_parameter")
        for inner, member in enumerate(dicts_or_empty(entry.get("tools"))):
            yield _EntryLocation(member, f"{path}.tools[{inner}]", entry)


def _parse_client_search(search: _EntryLocation) -> Entry | None:
    if search.entry.get("execution") != "client":
        return None
    if not isinstance(search.entry.get("description"), str):
        raise _request_error(MISSING, f"{search.path}.description", "missing_required_parameter")
    return search.entry


def _parse_entries(
    places: Iterable[_EntryLocation], asked: bool
) -> Iterator[tuple[_EntryLocation, IndexedTool | None]]:
    """Each entry with what can be read of it. A search leaves nothing behind."""
    seen: set[str] = set()
    for place in places:
        if _is_search(place.entry):
            continue
        needed = place.is_deferred or place.namespace is not None
        try:
            ware = _parse_entry(place, asked)
        except InvalidTool as fault:
            if needed:
                raise RequestFailed(str(fault), param=place.path, code="invalid_value") from fault
            ware = None
        if ware is not None and ware.tool.id in seen:
            if needed:
                raise _request_error(TWICE, place.path, "invalid_value", name=ware.tool.id)
            ware = None
        if ware is not None:
            seen.add(ware.tool.id)
        yield place, ware


def _parse_entry(place: _EntryLocation, asked: bool) -> IndexedTool | None:
    """What can be read of an entry; None if it is no tool that could be held back."""
    entry = place.entry
    fields = FieldReader(entry)
    if entry.get("type") == "mcp":
        label = fields.read_text("server_label")
        if not label or not place.is_deferred:
            return None
        tool = Tool(label, fields.read_text("server_description"), policy=fields.read_policy())
        return IndexedTool(tool, _without_field(entry, _DEFER_FIELD), entry)
    if entry.get("type") not in _CALLABLE:
        return None
    space = FieldReader(place.namespace) if place.namespace else None
    tool = Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("parameters"),
        server=space.read_text("name") if space else "",
        server_description=space.read_text("description") if space else "",
        policy=fields.read_policy(),
    )
    sent = _without_field(entry, _DEFER_FIELD)
    name = wire_name(tool.id)
    if name != entry["name"]:
        if not tool.server and not place.is_deferred:
            # OpenAI takes no such name; whether this upstream does is its own to say.
            return None
        sent = {**sent, "name": name}
    alone = tool.name if asked and place.is_deferred else None
    return IndexedTool(tool, sent, entry, tool.server or alone)


def _choose_deferred(
    read: Sequence[tuple[_EntryLocation, IndexedTool | None]], disclosure: Disclosure | None
) -> set[str]:
    wares = [(place, ware) for place, ware in read if ware is not None]
    if disclosure is None:
        return {ware.tool.id for place, ware in wares if place.is_deferred}
    # A custom tool has no parameters to save.
    can_wait = [ware.tool for place, ware in wares if place.entry.get("type") == "function"]
    return {tool.id for tool in disclosure.plan(can_wait).deferred_tools}


def _split_entries(
    read: Iterable[tuple[_EntryLocation, IndexedTool | None]], held: set[str]
) -> tuple[list[Entry], list[IndexedTool]]:
    front: list[Entry] = []
    wares: list[IndexedTool] = []
    for place, ware in read:
        if ware is None:
            front.append(_without_field(place.entry, _DEFER_FIELD))
            continue
        waits = ware.tool.id in held
        wares.append(
            IndexedTool(ware.tool, ware.wire_entry, ware.client_entry, ware.namespace, waits)
        )
        if not waits:
            front.append(ware.wire_entry)
    return front, wares


def _group_by_namespace(wares: Iterable[IndexedTool]) -> dict[str, tuple[str, ...]]:
    """The held members of each namespace."""
    groups: dict[str, list[str]] = {}
    for ware in wares:
        if ware.is_deferred and ware.tool.server:
            groups.setdefault(ware.tool.server, []).append(ware.tool.id)
    return {name: tuple(members) for name, members in groups.items()}


def _render_sources(rack: ResponsesToolIndex) -> Iterator[str]:
    """What there is to search, as far as there is room: namespaces and servers first."""
    if not rack.uses_tool_search:
        return
    held = rack.tools.deferred.values()
    spaces = {ware.tool.server: ware.tool.server_description for ware in held if ware.tool.server}
    alone = [ware for ware in held if not ware.tool.server]
    servers = [ware for ware in alone if ware.wire_entry.get("type") == "mcp"]
    others = [ware for ware in alone if ware.wire_entry.get("type") != "mcp"]
    named = [(ware.tool.name, ware.tool.description) for ware in (*servers, *others)]
    lines = [_render_source(name, about) for name, about in (*spaces.items(), *named)]
    room = MAX_SOURCES_CHARS
    for number, line in enumerate([prompts.SOURCES, *lines]):
        room -= len(line)
        if room < 0:
            yield prompts.MORE_SOURCES.format(count=len(lines) - number + 1)
            return
        yield line


def _render_source(name: str, about: str) -> str:
    words = " ".join(about.split())
    short = words if len(words) <= MAX_SOURCE_CHARS else f"{words[: MAX_SOURCE_CHARS - 1]}…"
    return f"- {name}: {short}" if short else f"- {name}"


def _without_field(entry: Entry, field: str) -> Entry:
    return {name: value for name, value in entry.items() if name != field}


def _request_error(message: str, param: str, code: str, **parts: Any) -> RequestFailed:
    return RequestFailed(message.format(param=param, **parts), code=code, param=param)
