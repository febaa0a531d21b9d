"""Tools and searches of a running gateway, in the form of a local catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.cli.gateway.client import GatewayClient
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.errors import ToolcribError
from toolcrib.search.filters import Where
from toolcrib.search.ranker import MatchReason
from toolcrib.search.results import Explanation, Hit, HitGroup, SearchResult

_PAGE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class GatewayCatalog:
    """The tools of a running gateway that the caller may use."""

    client: GatewayClient

    def load_tools(self) -> Catalog:
        """Return all tools."""
        tools: dict[str, Tool] = {}
        total = 1
        while len(tools) < total:
            page = {"limit": _PAGE_SIZE, "offset": len(tools)}
            reply = self.client.get_json("/api/tools", page)
            # Only the summaries have tags and categories.
            summaries = self.client.get_json("/api/tools", {**page, "summary": "true"})
            try:
                labels = {summary["name"]: summary for summary in summaries["tools"]}
                found = [_read_tool(definition, labels.get(definition["name"], {})) for definition in reply["tools"]]
                total = int(reply["total"])
            except (KeyError, TypeError, ValueError, ToolcribError):
                raise self.client.not_a_gateway_error() from None
            tools.update((tool.id, tool) for tool in found)
            if not found:
                break
        return Catalog(list(tools.values()))

    def search(self, query: str, limit: int, mode: str, where: Where) -> tuple[SearchResult, list[HitGroup]]:
        """Return the result of the gateway's search, with reasons, and its hits in groups of duplicates."""
        parameters = {"query": query, "limit": limit, "mode": mode, "reasons": "true", **_to_parameters(where)}
        reply = self.client.get_json("/api/search", parameters)
        try:
            hits = [_read_hit(hit, slot) for slot, hit in enumerate(reply["hits"])]
            result = SearchResult(
                reply["query"],
                reply["mode"],
                tuple(hits),
                bool(reply["more"]),
                tuple(map(str, reply["notes"])),
                float(reply["confidence"]),
                float(reply["threshold"]),
                uncovered=tuple(str(part["text"]) for part in reply["segments"] if not part["covered"]),
            )
            leaders = {hit["tool"]["name"]: hit["duplicateOf"] for hit in reply["hits"]}
        except (KeyError, TypeError, ValueError, ToolcribError):
            raise self.client.not_a_gateway_error() from None
        return result, _group_hits(hits, leaders)

    def explain(self, query: str, tool: str, limit: int, mode: str, where: Where) -> Explanation:
        """Return why the gateway found a tool, or did not."""
        parameters = {"query": query, "tool": tool, "limit": limit, "mode": mode, **_to_parameters(where)}
        reply = self.client.get_json("/api/search/explain", parameters)
        try:
            name, reasons = str(reply["tool"]), _read_reasons(reply["reasons"])
            return Explanation(
                Tool(name, id=name), reply["returned"], reply["rank"], reply["score"], reply["verdict"], reasons
            )
        except (KeyError, TypeError, ToolcribError):
            raise self.client.not_a_gateway_error() from None


def _to_parameters(where: Where) -> dict[str, Any]:
    flags = {"read_only": "true"} if where.read_only else {}
    return {"server": where.server, "category": where.category, "tag": list(where.tags), **flags}


def _read_tool(definition: Mapping[str, Any], labels: Mapping[str, Any]) -> Tool:
    tool = tools_from_wire(definition, server=str(definition.get("server", "")))[0]
    name = tool.name.partition(SERVER_SEPARATOR)[2] or tool.name
    return Tool(
        name,
        tool.description,
        tool.input_schema,
        id=tool.name,
        title=tool.title,
        server=tool.server,
        output_schema=tool.output_schema,
        annotations=tool.annotations,
        tags=tuple(labels.get("tags", ())),
        category=str(labels.get("category", "")),
    )


def _read_hit(hit: Mapping[str, Any], slot: int) -> Hit:
    reasons = _read_reasons(hit.get("reasons", ()))
    return Hit(_read_tool(hit["tool"], {}), float(hit["score"]), slot, float(hit["confidence"]), reasons)


def _read_reasons(reasons: Iterable[Mapping[str, Any]]) -> tuple[MatchReason, ...]:
    return tuple(MatchReason(**reason) for reason in reasons)


def _group_hits(hits: Iterable[Hit], leaders: Mapping[str, str | None]) -> list[HitGroup]:
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        leader = leaders.get(hit.tool.id)
        groups.setdefault(leader if leader in groups else hit.tool.id, []).append(hit)
    return [HitGroup(best, tuple(others)) for best, *others in groups.values()]
