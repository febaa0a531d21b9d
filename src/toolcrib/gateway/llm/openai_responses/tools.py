"""The `tools` of a response, and their search index: functions, namespaces and MCP servers.

Most upstreams do not know namespaces. They are sent each tool of a namespace as a function whose
name has both names; its calls are returned to the client with the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from toolcrib.adapters.openai_responses import tools_to_wire
from toolcrib.adapters.plain_json import FieldReader, describe_json_type, dicts_or_empty, str_or_empty
from toolcrib.core import prompts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool, RequestFailed
from toolcrib.gateway.llm.tools.exposure import Exposure, ExposurePlan
from toolcrib.gateway.llm.tools.tool_index import (
    CLIENT_PLAN,
    Entry,
    IndexedTool,
    ToolIndex,
    plan_exposure,
    split_entries,
    to_wire_name,
)

NO_SEARCH: Final = "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
MISSING: Final = "Missing required parameter: '{param}'."
UNKNOWN: Final = "Unknown parameter: '{param}'."
NOT_BOOLEAN: Final = "Invalid type for '{param}': expected a boolean, but got {type} instead."
DUPLICATE: Final = "Invalid Value: '{param}'. There are two tools with the name {name!r}."

MAX_SOURCES_CHARS: Final = 6_000
MAX_SOURCE_CHARS: Final = 160

_DEFER_FIELD: Final = "defer_loading"
_CALLABLE_TYPES: Final = ("function", "custom")
# The credentials of an MCP server are only sent to the upstream.
_SECRET_FIELDS: Final = ("authorization", "headers")


class ResponsesToolIndex(ToolIndex):
    """The index of a request of the Responses API.

    `client_search` is the entry of a client that searches itself. `uses_tool_search` is true if the
    client knows tool search, and so gets items for the searches.
    """

    def __init__(
        self,
        always_sent: Iterable[Entry],
        tools: Iterable[IndexedTool],
        plan: ExposurePlan,
        *,
        client_search: Entry | None = None,
        uses_tool_search: bool = False,
    ) -> None:
        super().__init__(always_sent, tools, plan, offers_search=client_search is None)
        self.client_search = client_search
        self.uses_tool_search = uses_tool_search

    @cached_property
    def namespaces(self) -> Mapping[str, Sequence[str]]:
        """The ids of the deferred tools of each namespace."""
        namespaces: dict[str, list[str]] = {}
        for id, indexed in self.deferred.items():
            if indexed.tool.server:
                namespaces.setdefault(indexed.tool.server, []).append(id)
        return namespaces

    @cached_property
    def search_name(self) -> str:
        """The name of the search tool. Clients call their own one `tool_search`, as OpenAI does."""
        if self.client_search is None:
            return self.search_tool.name
        name = "tool_search"
        while self.find(name):
            name = f"_{name}"
        return name

    @cached_property
    def own_entries(self) -> Sequence[Entry]:
        """The search tool and, in dispatch style, `call_tool`, as functions."""
        return [self.search_entry, *tools_to_wire(self.own_tools[1:])]

    @cached_property
    def search_entry(self) -> Entry:
        """The search tool as a function: that of the gateway, or that of the client."""
        if self.client_search is None:
            search = self.search_tool
            description = "\n".join([search.description, *self._render_sources()])
            parameters: object = search.input_schema
        else:
            description = str_or_empty(self.client_search["description"])
            parameters = self.client_search.get("parameters")
        return {
            "type": "function",
            "name": self.search_name,
            "description": description,
            "parameters": parameters or {"type": "object", "properties": {}},
            # Strict mode refuses optional parameters.
            "strict": False,
        }

    def _render_sources(self) -> Iterator[str]:
        """Yield a line for each namespace, server and tool, as far as there is room."""
        if not self.uses_tool_search:
            return
        deferred = self.deferred.values()
        namespaces = {each.tool.server: each.tool.server_description for each in deferred if each.tool.server}
        single = [each for each in deferred if not each.tool.server]
        # The sort is stable: MCP servers come first.
        single.sort(key=lambda each: each.wire_entry.get("type") != "mcp")
        sources = [*namespaces.items(), *((each.tool.name, each.tool.description) for each in single)]
        room = MAX_SOURCES_CHARS
        lines = [prompts.SOURCES, *(_render_source(name, text) for name, text in sources)]
        for number, line in enumerate(lines):
            room -= len(line)
            if room < 0:
                yield prompts.MORE_SOURCES.format(count=len(lines) - number)
                return
            yield line


@dataclass(frozen=True, slots=True)
class _EntryLocation:
    """An entry, its path in the request, and its namespace."""

    entry: Entry
    path: str
    namespace: Entry | None = None

    @property
    def is_deferred(self) -> bool:
        value = self.entry.get(_DEFER_FIELD)
        if value is not None and not isinstance(value, bool):
            path = f"{self.path}.{_DEFER_FIELD}"
            raise _request_error(NOT_BOOLEAN, path, "invalid_type", type=describe_json_type(value))
        return value is True


# An entry with its tool, or None if it is not a tool that can be deferred.
_Parsed = tuple[_EntryLocation, IndexedTool | None]


def uses_tool_search(entries: Sequence[Entry]) -> bool:
    """Return whether a request uses tool search, or namespaces, which are part of it."""
    return any(_is_search(entry) or entry.get("type") == "namespace" or _DEFER_FIELD in entry for entry in entries)


def build_responses_index(entries: Sequence[Entry], exposure: Exposure | None = None) -> ResponsesToolIndex:
    """Build the index of a request. `exposure` chooses the deferred tools if the request does not use tool search."""
    locations = list(_iter_entries(entries))
    search = next((location for location in locations if _is_search(location.entry)), None)
    uses_search = search is not None or any(location.is_deferred for location in locations)
    if uses_search and search is None:
        raise _request_error(NO_SEARCH, f"tools.{_DEFER_FIELD}", "invalid_value")
    client_search = _parse_client_search(search) if search else None
    parsed = list(_parse_entries(locations, uses_search))
    plan = _plan_deferral(parsed, None if uses_search else exposure)
    entries_with_tools = ((_without_field(location.entry, _DEFER_FIELD), indexed) for location, indexed in parsed)
    return ResponsesToolIndex(
        *split_entries(entries_with_tools, plan.deferred_ids),
        plan,
        client_search=client_search,
        uses_tool_search=uses_search,
    )


def render_found_entries(tools: Iterable[IndexedTool]) -> list[dict[str, Any]]:
    """Return tools as a search returns them: with full definitions, grouped by namespace."""
    entries: dict[str, dict[str, Any]] = {}
    for indexed in tools:
        entry = without_secrets(indexed.client_entry)
        tool = indexed.tool
        if not tool.server:
            entries[f"tool {tool.id}"] = entry
            continue
        namespace = entries.setdefault(
            f"namespace {tool.server}",
            {"type": "namespace", "name": tool.server, "description": tool.server_description, "tools": []},
        )
        namespace["tools"].append(entry)
    return list(entries.values())


def without_secrets(entry: Entry) -> dict[str, Any]:
    """Return an entry without the credentials of an MCP server."""
    return {name: value for name, value in entry.items() if name not in _SECRET_FIELDS}


def parse_client_definitions(entries: Iterable[Entry]) -> Iterator[IndexedTool]:
    """Yield the tools that a client defines in its history, without those that are invalid."""
    for location in _iter_entries(dicts_or_empty(list(entries)), is_strict=False):
        with suppress(InvalidTool, RequestFailed):
            if indexed := _parse_entry(location, True):
                yield indexed


def tool_path(indexed: IndexedTool) -> str:
    """Return the path of a tool in the result of a search."""
    tool = indexed.tool
    return f"{tool.server}.{tool.name}" if tool.server else tool.name


def _is_search(entry: Entry) -> bool:
    return entry.get("type") == "tool_search"


def _iter_entries(entries: Sequence[Entry], is_strict: bool = True) -> Iterator[_EntryLocation]:
    """Yield the entries, and for a namespace its members."""
    for number, entry in enumerate(entries):
        path = f"tools[{number}]"
        if entry.get("type") != "namespace":
            yield _EntryLocation(entry, path)
            continue
        if is_strict and _DEFER_FIELD in entry:
            raise _request_error(UNKNOWN, f"{path}.{_DEFER_FIELD}", "unknown_parameter")
        for field in ("name", "description") if is_strict else ():
            if not isinstance(entry.get(field), str):
                raise _request_error(MISSING, f"{path}.{field}", "missing_required_parameter")
        for inner, member in enumerate(dicts_or_empty(entry.get("tools"))):
            yield _EntryLocation(member, f"{path}.tools[{inner}]", entry)


def _parse_client_search(search: _EntryLocation) -> Entry | None:
    if search.entry.get("execution") != "client":
        return None
    if not isinstance(search.entry.get("description"), str):
        raise _request_error(MISSING, f"{search.path}.description", "missing_required_parameter")
    return search.entry


def _parse_entries(locations: Iterable[_EntryLocation], uses_search: bool) -> Iterator[_Parsed]:
    """Yield the entries with their tools, without search tools.

    A problem of an entry is an error only if the entry is deferred or in a namespace.
    """
    seen: set[str] = set()
    for location in locations:
        if _is_search(location.entry):
            continue
        is_required = location.is_deferred or location.namespace is not None
        try:
            indexed = _parse_entry(location, uses_search)
        except InvalidTool as error:
            if is_required:
                message = str(error)
                raise RequestFailed(message, param=location.path, code="invalid_value") from error
            indexed = None
        if indexed is not None and indexed.tool.id in seen:
            if is_required:
                name = indexed.tool.id
                raise _request_error(DUPLICATE, location.path, "invalid_value", name=name)
            indexed = None
        if indexed is not None:
            seen.add(indexed.tool.id)
        yield location, indexed


def is_called_by_programs(entry: Entry) -> bool:
    """Return whether programs of the model call a tool, so that it has to be in the list of tools."""
    callers = entry.get("allowed_callers")
    return isinstance(callers, list) and any(caller != "direct" for caller in callers)


def _parse_entry(location: _EntryLocation, uses_search: bool) -> IndexedTool | None:
    """Return the tool of an entry, or None if it is not a tool that can be deferred."""
    entry = location.entry
    fields = FieldReader(entry)
    sent = _without_field(entry, _DEFER_FIELD)
    if entry.get("type") == "mcp":
        label = fields.read_text("server_label")
        if not label or not location.is_deferred:
            return None
        description = fields.read_text("server_description")
        tool = Tool(label, description, policy=fields.read_policy())
        return IndexedTool(tool, to_wire_name(tool.id), sent, entry)
    if entry.get("type") not in _CALLABLE_TYPES:
        return None
    if is_called_by_programs(entry) and not location.is_deferred:
        return None
    namespace = FieldReader(location.namespace) if location.namespace else None
    tool = Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("parameters"),
        server=namespace.read_text("name") if namespace else "",
        server_description=namespace.read_text("description") if namespace else "",
        policy=fields.read_policy(),
    )
    wire_name = to_wire_name(tool.id)
    if wire_name != entry["name"]:
        if not tool.server and not location.is_deferred:
            # OpenAI refuses such a name; the upstream decides.
            return None
        sent = {**sent, "name": wire_name}
    own_namespace = tool.name if uses_search and location.is_deferred else None
    return IndexedTool(tool, wire_name, sent, entry, tool.server or own_namespace)


def _plan_deferral(parsed: Sequence[_Parsed], exposure: Exposure | None) -> ExposurePlan:
    tools = [(location, indexed) for location, indexed in parsed if indexed is not None]
    if exposure is None:
        ids = frozenset(indexed.tool.id for location, indexed in tools if location.is_deferred)
        return CLIENT_PLAN._replace(deferred_ids=ids)
    # Custom tools have no parameters, so deferring them saves little.
    return plan_exposure(exposure, [each for location, each in tools if location.entry.get("type") == "function"])


def _render_source(name: str, description: str) -> str:
    text = " ".join(description.split())
    if len(text) > MAX_SOURCE_CHARS:
        text = f"{text[: MAX_SOURCE_CHARS - 1]}…"
    return f"- {name}: {text}" if text else f"- {name}"


def _without_field(entry: Entry, field: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != field}


def _request_error(message: str, param: str, code: str, **parts: Any) -> RequestFailed:
    return RequestFailed(message.format(param=param, **parts), code=code, param=param)
