"""Search for skills, prompts and resources, and open what was found.

A model can only call tools, so a found item has a name such as `prompt:github___review`, which the tool
that calls other tools accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import INVALID_PARAMS

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.core import prompts
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.meta_tools import ITEM_KINDS, SEARCH_KINDS, text_result
from toolcrib.gateway.mcp.server.passthrough import Passthrough
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.safety.scan import scan_definition
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker

MAX_INDEXED_ITEMS: Final = 5_000
# How long a list of items is used if no server announces a change.
ITEMS_TTL_SECONDS: Final = 60.0
_MAX_TEXT_CHARS: Final = 2_000
_SUMMARY_CHARS: Final = 200
_KIND: Final = re.compile(r"(?:^|\s)kind:(\w+)(?=\s|$)")
_WILDCARD: Final = re.compile(r"\{(\w+)\*\}")
_CAPABILITIES: Final = ("prompts", "resources", "skills")


@dataclass(frozen=True, slots=True)
class FoundItem:
    """A skill, prompt or resource, and its score from 0 to 1 in a search."""

    name: str
    kind: str
    title: str
    description: str
    # The names of its arguments; optional ones end in `?`.
    arguments: tuple[str, ...] = ()
    score: float = 0.0

    def render(self) -> tuple[str, dict[str, Any]]:
        """Return the item as a line for the model and as structured content."""
        text = ": ".join(part for part in (self.title, self.description) if part)
        summary = " ".join(text.split())
        summary = f"{summary[: _SUMMARY_CHARS - 1]}…" if len(summary) > _SUMMARY_CHARS else summary
        signature = f"{self.name} ({', '.join(self.arguments)})" if self.arguments else self.name
        structured = {"name": self.name, "kind": self.kind, "score": round(self.score, 2), "description": summary}
        if self.arguments:
            structured["arguments"] = list(self.arguments)
        return f"- {self.score:.2f} {signature}" + (f": {summary}" if summary else ""), structured


class ItemMatches(NamedTuple):
    """The items that a search found, best first, and whether one of them fits."""

    items: tuple[FoundItem, ...]
    is_match: bool


class _ItemIndex(NamedTuple):
    """The items that one access profile may use."""

    view: AccessView
    items: Mapping[str, FoundItem]
    engine: SearchEngine
    expires: float


_NO_MATCHES: Final = ItemMatches((), False)


def split_kind(query: str, requested: object) -> tuple[str, str]:
    """Return a query without `kind:…`, and the kind that it or the argument asks for; `tool` by default."""
    found = _KIND.search(query)
    kind = found[1].lower().removesuffix("s") if found else requested
    if kind not in SEARCH_KINDS:
        return query, "tool"
    return (_KIND.sub(" ", query).strip() if found else query), str(kind)


class ItemSearch:
    """Finds and opens the skills, prompts and resources that a client may use."""

    def __init__(self, hub: Hub, pool: UpstreamPool, passthrough: Passthrough) -> None:
        self._hub = hub
        self._pool = pool
        self._passthrough = passthrough
        self._indexes: dict[str | None, _ItemIndex] = {}
        self._refreshing: set[str | None] = set()

    def forget(self) -> None:
        """List the items again at the next search, because a server has changed."""
        self._indexes.clear()

    async def search(self, client: ConnectedClient, query: str, kind: str, limit: int) -> ItemMatches:
        """Return the best items of a kind."""
        index = self._find_index(client) or await self._build_index(client)
        return await anyio.to_thread.run_sync(_search_index, index, query, (kind,), limit)

    async def answer(
        self, client: ConnectedClient, query: str, kind: str, limit: int, call_name: str
    ) -> dict[str, Any]:
        """Return the items for a query as the result of the search tool; `call_name` is the tool to open them."""
        matches = await self.search(client, query, kind, limit)
        rendered = [item.render() for item in matches.items]
        if matches.is_match:
            count = f"1 {kind}" if len(rendered) == 1 else f"{len(rendered)} {kind}s, best first"
            heading = prompts.ITEM_RESULT.format(count=count, call=call_name)
        else:
            heading = (prompts.NO_GOOD_ITEM if rendered else prompts.NO_ITEM).format(kind=kind, call=call_name)
        structured = {"confident": matches.is_match, "notes": [heading], "items": [item for _, item in rendered]}
        text = "\n".join([heading, *(line for line, _ in rendered)])
        return {**text_result(text), "structuredContent": structured}

    async def render_hint(self, client: ConnectedClient, query: str, best_score: float, call_name: str) -> list[str]:
        """Return a note on a known item that fits better than the tools that were found.

        A search for tools does not wait for other lists: unknown items are listed in the background.
        """
        connections = [each.connection for each in self._pool.servers.values() if each.connection is not None]
        if not any(connection.supports(each) for connection in connections for each in _CAPABILITIES):
            return []
        index = self._find_index(client)
        if index is None:
            if client.profile not in self._refreshing:
                self._refreshing.add(client.profile)
                self._pool.run_in_background(self._refresh, client)
            return []
        matches = await anyio.to_thread.run_sync(_search_index, index, query, ITEM_KINDS, 1)
        return [
            prompts.OTHER_KIND.format(kind=item.kind, name=item.name, call=call_name)
            for item in matches.items
            if matches.is_match and item.score > best_score
        ]

    async def open(self, client: ConnectedClient, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of an item as a tool result."""
        kind, _, target = name.partition(":")
        try:
            if kind == "prompt":
                given = {key: value if isinstance(value, str) else str(value) for key, value in arguments.items()}
                prompt = await self._passthrough.get_prompt(client, {"name": target, "arguments": given})
                return {"content": list(_iter_prompt_parts(prompt)), "isError": False}
            template = _parse_template(target)
            if template is not None:
                required = set(template.variable_names) - template.query_variable_names
                missing = sorted(required - arguments.keys())
                if missing:
                    raise MCPError(INVALID_PARAMS, f"it needs values for {', '.join(missing)}")
                target = template.expand({key: str(value) for key, value in arguments.items()})
            resource = await self._passthrough.read_resource(client, {"uri": target})
            return {"content": list(_iter_resource_parts(resource)), "isError": False}
        except MCPError as error:
            return text_result(prompts.ITEM_FAILED.format(name=name[:200], reason=error.error.message), is_error=True)

    def _find_index(self, client: ConnectedClient) -> _ItemIndex | None:
        """Return the index for a client, if it is recent and its rights have not changed."""
        index = self._indexes.get(client.profile)
        if index is None or index.expires < anyio.current_time():
            return None
        return index if index.view is self._hub.get_view(client.profile) else None

    async def _refresh(self, client: ConnectedClient) -> None:
        try:
            await self._build_index(client)
        finally:
            self._refreshing.discard(client.profile)

    async def _build_index(self, client: ConnectedClient) -> _ItemIndex:
        view = self._hub.get_view(client.profile)
        entries: list[tuple[str, Mapping[str, Any]]] = []
        lists = self._passthrough
        for kind, key, request in (
            ("skill", "skills", lists.list_skills),
            ("prompt", "prompts", lists.list_prompts),
            ("resource", "resources", lists.list_resources),
            ("resource", "resourceTemplates", lists.list_resource_templates),
        ):
            entries += [(kind, entry) for entry in (await request(client, {}))[key]]
        scans = self._hub.config.safety.scan != "off"
        items = await anyio.to_thread.run_sync(_read_items, entries[:MAX_INDEXED_ITEMS], scans)
        engine = await anyio.to_thread.run_sync(_build_engine, list(items.values()))
        index = _ItemIndex(view, items, engine, anyio.current_time() + ITEMS_TTL_SECONDS)
        for removed in self._indexes.keys() - {None, *self._hub.config.profiles}:
            del self._indexes[removed]
        self._indexes[client.profile] = index
        return index


def is_item_name(name: object) -> bool:
    """Return whether a name is one of an item and not of a tool."""
    return isinstance(name, str) and name.partition(":")[0] in ITEM_KINDS and ":" in name


def _search_index(index: _ItemIndex, query: str, kinds: Sequence[str], limit: int) -> ItemMatches:
    allowed = frozenset(name for name, item in index.items.items() if item.kind in kinds)
    if not allowed:
        return _NO_MATCHES
    result = index.engine.search(query, limit=limit, allowed=allowed)
    scored = tuple(replace(index.items[hit.tool.id], score=hit.score) for hit in result)
    return ItemMatches(scored, result.confident)


def _build_engine(items: Sequence[FoundItem]) -> SearchEngine:
    tools = [
        Tool(
            item.name,
            title=item.title[:_MAX_TEXT_CHARS],
            description=item.description[:_MAX_TEXT_CHARS],
            input_schema={"properties": {name.rstrip("?")[:_SUMMARY_CHARS]: {} for name in item.arguments}},
        )
        for item in items
    ]
    return SearchEngine(Catalog(tools), {"lexical": LexicalRanker()})


def _read_items(entries: Sequence[tuple[str, Mapping[str, Any]]], scans: bool) -> dict[str, FoundItem]:
    """Return the items of lists by name. A text that looks hostile is not shown to a model."""
    items: dict[str, FoundItem] = {}
    targets: set[str] = set()
    for kind, entry in entries:
        item = _read_item(kind, entry)
        # A skill is also listed as a resource with the same URI.
        if item is None or (kind == "resource" and item.name.partition(":")[2] in targets):
            continue
        if kind == "skill":
            targets.add(item.name.partition(":")[2])
        findings = scan_definition({"title": item.title, "description": item.description}) if scans else ()
        if findings and findings[0].severity == "high":
            warning = prompts.HOSTILE_ITEM.format(kind=findings[0].category)
            item = FoundItem(item.name, kind, "", warning, item.arguments)
        items.setdefault(item.name, item)
    return items


def _read_item(kind: str, entry: Mapping[str, Any]) -> FoundItem | None:
    """Return an entry of a list as an item; None if it has no name."""
    about = entry
    if kind == "skill" and isinstance(entry.get("frontmatter"), Mapping):
        about = entry["frontmatter"]
    key = "name" if kind == "prompt" else "uriTemplate" if "uriTemplate" in entry else "uri"
    target = entry.get(key)
    if not isinstance(target, str) or not target:
        return None
    arguments = tuple(_iter_prompt_arguments(entry)) if kind == "prompt" else ()
    template = _parse_template(target) if key == "uriTemplate" else None
    if template is not None:
        optional = template.query_variable_names
        arguments = tuple(f"{name}?" if name in optional else name for name in template.variable_names)
    title = str_or_empty(about.get("title")) or (str_or_empty(about.get("name")) if kind != "prompt" else "")
    return FoundItem(f"{kind}:{target}", kind, title, str_or_empty(about.get("description")), arguments)


def _parse_template(target: str) -> UriTemplate | None:
    """Return a URI template; None for a plain address, or for a template that cannot be parsed."""
    try:
        # FastMCP writes `{path*}` for a path with slashes, which the standard writes as `{+path}`.
        return UriTemplate.parse(_WILDCARD.sub(r"{+\1}", target)) if "{" in target else None
    except InvalidUriTemplate:
        return None


def _iter_prompt_arguments(entry: Mapping[str, Any]) -> Iterator[str]:
    arguments = entry.get("arguments")
    for argument in arguments if isinstance(arguments, list) else []:
        if isinstance(argument, Mapping) and isinstance(argument.get("name"), str):
            yield argument["name"] if argument.get("required") is True else f"{argument['name']}?"


def _iter_prompt_parts(prompt: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a prompt as parts of a tool result; texts name their role."""
    messages = prompt.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else [content]:
            if not isinstance(part, Mapping):
                continue
            if isinstance(part.get("text"), str):
                yield {**part, "text": f"{message.get('role', 'user')}: {part['text']}"}
            else:
                yield dict(part)


def _iter_resource_parts(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    contents = resource.get("contents")
    for content in contents if isinstance(contents, list) else []:
        if isinstance(content, Mapping):
            is_text = isinstance(content.get("text"), str)
            yield {"type": "text", "text": content["text"]} if is_text else {"type": "resource", "resource": content}
