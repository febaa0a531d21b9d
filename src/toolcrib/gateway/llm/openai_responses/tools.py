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

from toolcrib.adapters.fields import Fields, kind
from toolcrib.adapters.plain_json import objects, text
from toolcrib.core import prompts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool, RequestFailed
from toolcrib.gateway.llm.tool_index import Entry, Shelf, Ware, sent_name
from toolcrib.session.disclosure import Disclosure

NO_SEARCH: Final = "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
MISSING: Final = "Missing required parameter: '{param}'."
UNKNOWN: Final = "Unknown parameter: '{param}'."
NOT_BOOLEAN: Final = "Invalid type for '{param}': expected a boolean, but got {kind} instead."
TWICE: Final = "Invalid Value: '{param}'. There are two tools with the name {name!r}."

MAX_SOURCES_CHARS: Final = 6_000
MAX_ABOUT_CHARS: Final = 160

_FIELD: Final = "defer_loading"
_CALLABLE: Final = ("function", "custom")
# What an MCP server is reached with is for the upstream alone.
_SECRETS: Final = ("authorization", "headers")


@dataclass(frozen=True)
class Rack:
    """A shelf, and what belongs to this API: who searches, and which tools stand together.

    `client` is the entry by which the client offers to search; `asked` says that the request knows
    of tool search, so that the client is told of the searches.
    """

    shelf: Shelf
    client: Entry | None = None
    asked: bool = False
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def search_name(self) -> str:
        """What the model calls the search. Clients' descriptions speak of it as OpenAI calls it."""
        if self.client is None:
            return self.shelf.search.name
        name = "tool_search"
        while self.shelf.ware(name):
            name = f"_{name}"
        return name

    @cached_property
    def search_entry(self) -> Entry:
        """The function by which the model searches: ours, or the client's."""
        if self.client is None:
            search = self.shelf.search
            about = "\n".join([search.description, *_sources(self)])
            parameters: object = search.input_schema
        else:
            about = text(self.client["description"])
            parameters = self.client.get("parameters") or {"type": "object", "properties": {}}
        return {
            "type": "function",
            "name": self.search_name,
            "description": about,
            "parameters": parameters,
            # Strict would refuse parameters that are not all required.
            "strict": False,
        }


@dataclass(frozen=True)
class _Place:
    """An entry, where it stands in the request, and in which namespace."""

    entry: Entry
    path: str
    namespace: Entry | None = None

    @property
    def defers(self) -> bool:
        value = self.entry.get(_FIELD)
        if value is not None and not isinstance(value, bool):
            raise _fault(NOT_BOOLEAN, f"{self.path}.{_FIELD}", "invalid_type", kind=kind(value))
        return value is True


def knows_search(tools: Sequence[Entry]) -> bool:
    """Whether a request uses tool search, or namespaces, which belong to it."""
    return any(_is_search(one) or one.get("type") == "namespace" or _FIELD in one for one in tools)


def rack_of(tools: Sequence[Entry], disclosure: Disclosure | None = None) -> Rack:
    """The rack of a request. Where it asks for no search, `disclosure` says what is held back."""
    places = list(_places(tools))
    search = next((place for place in places if _is_search(place.entry)), None)
    asked = search is not None or any(place.defers for place in places)
    if asked and search is None:
        raise _fault(NO_SEARCH, f"tools.{_FIELD}", "invalid_value")
    client = _client_search(search) if search else None
    read = list(_read(places, asked))
    held = _held(read, None if asked else disclosure)
    front, wares = _split(read, held)
    groups = _groups(wares)
    return Rack(Shelf(front, wares, searched=client is None), client, asked, groups)


def found_entries(wares: Iterable[Ware]) -> list[Entry]:
    """Tools as a search gives them back: in full, those of a namespace together."""
    found: dict[str, Entry] = {}
    for ware in wares:
        given = without_secrets(ware.given)
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


def brought_wares(entries: Iterable[Entry]) -> Iterator[Ware]:
    """The tools that a client defines in its history; what cannot be read is left out."""
    for place in _places(objects(list(entries)), strict=False):
        with suppress(InvalidTool, RequestFailed):
            if ware := _ware(place, True):
                yield ware


def path_of(ware: Ware) -> str:
    """What a search calls a tool that it has found."""
    return f"{ware.tool.server}.{ware.tool.name}" if ware.tool.server else ware.tool.name


def _is_search(entry: Entry) -> bool:
    return entry.get("type") == "tool_search"


def _places(tools: Sequence[Entry], strict: bool = True) -> Iterator[_Place]:
    """The entries, and in place of a namespace its members."""
    for number, entry in enumerate(tools):
        path = f"tools[{number}]"
        if entry.get("type") != "namespace":
            yield _Place(entry, path)
            continue
        if strict and _FIELD in entry:
            raise _fault(UNKNOWN, f"{path}.{_FIELD}", "unknown_parameter")
        for needed in ("name", "description") if strict else ():
            if not isinstance(entry.get(needed), str):
                raise _fault(MISSING, f"{path}.{needed}", "missing_required_parameter")
        for inner, member in enumerate(objects(entry.get("tools"))):
            yield _Place(member, f"{path}.tools[{inner}]", entry)


def _client_search(search: _Place) -> Entry | None:
    if search.entry.get("execution") != "client":
        return None
    if not isinstance(search.entry.get("description"), str):
        raise _fault(MISSING, f"{search.path}.description", "missing_required_parameter")
    return search.entry


def _read(places: Iterable[_Place], asked: bool) -> Iterator[tuple[_Place, Ware | None]]:
    """Each entry with what can be read of it. A search leaves nothing behind."""
    seen: set[str] = set()
    for place in places:
        if _is_search(place.entry):
            continue
        needed = place.defers or place.namespace is not None
        try:
            ware = _ware(place, asked)
        except InvalidTool as fault:
            if needed:
                raise RequestFailed(str(fault), param=place.path, code="invalid_value") from fault
            ware = None
        if ware is not None and ware.tool.id in seen:
            if needed:
                raise _fault(TWICE, place.path, "invalid_value", name=ware.tool.id)
            ware = None
        if ware is not None:
            seen.add(ware.tool.id)
        yield place, ware


def _ware(place: _Place, asked: bool) -> Ware | None:
    """What can be read of an entry; None if it is no tool that could be held back."""
    entry = place.entry
    fields = Fields(entry)
    if entry.get("type") == "mcp":
        label = fields.text("server_label")
        if not label or not place.defers:
            return None
        tool = Tool(label, fields.text("server_description"), policy=fields.policy())
        return Ware(tool, _without(entry, _FIELD), entry)
    if entry.get("type") not in _CALLABLE:
        return None
    space = Fields(place.namespace) if place.namespace else None
    tool = Tool(
        fields.name(),
        fields.text("description"),
        fields.object("parameters"),
        server=space.text("name") if space else "",
        server_description=space.text("description") if space else "",
        policy=fields.policy(),
    )
    sent = _without(entry, _FIELD)
    name = sent_name(tool.id)
    if name != entry["name"]:
        if not tool.server and not place.defers:
            # OpenAI takes no such name; whether this upstream does is its own to say.
            return None
        sent = {**sent, "name": name}
    alone = tool.name if asked and place.defers else None
    return Ware(tool, sent, entry, tool.server or alone)


def _held(read: Sequence[tuple[_Place, Ware | None]], disclosure: Disclosure | None) -> set[str]:
    wares = [(place, ware) for place, ware in read if ware is not None]
    if disclosure is None:
        return {ware.tool.id for place, ware in wares if place.defers}
    # A custom tool has no parameters to save.
    can_wait = [ware.tool for place, ware in wares if place.entry.get("type") == "function"]
    return {tool.id for tool in disclosure.plan(can_wait).held}


def _split(
    read: Iterable[tuple[_Place, Ware | None]], held: set[str]
) -> tuple[list[Entry], list[Ware]]:
    front: list[Entry] = []
    wares: list[Ware] = []
    for place, ware in read:
        if ware is None:
            front.append(_without(place.entry, _FIELD))
            continue
        waits = ware.tool.id in held
        wares.append(Ware(ware.tool, ware.sent, ware.given, ware.namespace, waits))
        if not waits:
            front.append(ware.sent)
    return front, wares


def _groups(wares: Iterable[Ware]) -> dict[str, tuple[str, ...]]:
    """The held members of each namespace."""
    groups: dict[str, list[str]] = {}
    for ware in wares:
        if ware.held and ware.tool.server:
            groups.setdefault(ware.tool.server, []).append(ware.tool.id)
    return {name: tuple(members) for name, members in groups.items()}


def _sources(rack: Rack) -> Iterator[str]:
    """What there is to search, as far as there is room: namespaces and servers first."""
    if not rack.asked:
        return
    held = rack.shelf.held.values()
    spaces = {ware.tool.server: ware.tool.server_description for ware in held if ware.tool.server}
    alone = [ware for ware in held if not ware.tool.server]
    servers = [ware for ware in alone if ware.sent.get("type") == "mcp"]
    others = [ware for ware in alone if ware.sent.get("type") != "mcp"]
    named = [(ware.tool.name, ware.tool.description) for ware in (*servers, *others)]
    lines = [_source(name, about) for name, about in (*spaces.items(), *named)]
    room = MAX_SOURCES_CHARS
    for number, line in enumerate([prompts.SOURCES, *lines]):
        room -= len(line)
        if room < 0:
            yield prompts.MORE_SOURCES.format(count=len(lines) - number + 1)
            return
        yield line


def _source(name: str, about: str) -> str:
    words = " ".join(about.split())
    short = words if len(words) <= MAX_ABOUT_CHARS else f"{words[: MAX_ABOUT_CHARS - 1]}…"
    return f"- {name}: {short}" if short else f"- {name}"


def _without(entry: Entry, field: str) -> Entry:
    return {name: value for name, value in entry.items() if name != field}


def _fault(message: str, param: str, code: str, **parts: Any) -> RequestFailed:
    return RequestFailed(message.format(param=param, **parts), code=code, param=param)
