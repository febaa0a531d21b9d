"""`toolcrib search`: search a catalog. Also the options that all catalog commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.resources import as_file, files
from typing import Any, Final

import click

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.cli.gateway.client import GatewayClient, find_running_gateway, gateway_options
from toolcrib.cli.printing import ToolTable, format_reasons, json_option, print_json, print_note, sanitize, wrap
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.embedders.cache import find_cache_folder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import ToolcribError
from toolcrib.files.array_file import ArrayFile
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.engine import MAX_LIMIT, RANKERS, SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.hybrid.ranker import build_fast_ranker, build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import STORED_FORMAT, MatchReason, Ranker
from toolcrib.search.regex import RegexRanker
from toolcrib.search.results import Explanation, Hit, HitGroup, SearchResult

_PAGE_SIZE = 1_000
# Grouping compares every pair of hits, which takes too long for thousands.
MAX_GROUPED_HITS: Final = 200


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


catalog_option = click.option(
    "--catalog",
    "catalog_files",
    multiple=True,
    metavar="FILE",
    help="JSON or JSON Lines file with tools in any supported format, or - for standard input; "
    "may be repeated.  [default: the running gateway, or else the demo catalog]",
)
offset_option = click.option(
    "--offset", default=0, type=click.IntRange(min=0), metavar="N", help="Skip the first N tools."
)


def where_options(callback: Callable[..., None]) -> Callable[..., None]:
    """Add the filter options to a command, which gets them as one `where` argument."""

    @click.option("--server", default="", metavar="NAME", help="Only tools of this server.")
    @click.option("--category", default="", metavar="NAME", help="Only tools of this category.")
    @click.option("--tag", "tags", multiple=True, help="Only tools with this tag; may be repeated.")
    @click.option("--read-only", is_flag=True, help="Only tools that are marked as read-only.")
    @wraps(callback)
    def build_where(server: str, category: str, tags: tuple[str, ...], read_only: bool, **others: Any) -> None:
        where = Where(server=server, category=category, tags=tags, read_only=read_only)
        callback(where=where, **others)

    return build_where


def open_catalog(catalog_files: Sequence[str]) -> Catalog:
    """Return the catalog of the files, or the demo catalog if there are none."""
    if catalog_files:
        catalog = read_catalog_file(*catalog_files)
        if not catalog:
            print_note("This catalog has no tools.")
        return catalog
    print_note("No --catalog given, so this is the demo catalog.")
    return load_demo_catalog()


def find_gateway_catalog(catalog_files: Sequence[str], url: str | None, key: str | None) -> GatewayCatalog | None:
    """Return the catalog of the gateway at a URL, or of the running one if there are no files."""
    if catalog_files and url:
        raise click.UsageError("--catalog and --url cannot be used together.")
    client = None if catalog_files else find_running_gateway(url, key)
    if client is None:
        return None
    print_note(f"These are the tools of the gateway at {client.base_url}.")
    return GatewayCatalog(client)


def load_demo_catalog() -> Catalog:
    """Return the demo catalog, which is part of the package."""
    with as_file(files("toolcrib.demo") / "tools.jsonl") as path:
        return read_catalog_file(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchOptions:
    query: str
    catalog_files: tuple[str, ...]
    limit: int
    offset: int
    mode: str
    where: Where
    ignore_case: bool
    lenient: bool
    explain: bool
    why: str | None
    url: str | None
    key: str | None
    as_json: bool

    def __post_init__(self) -> None:
        if self.ignore_case and self.mode != "regex":
            raise click.UsageError("--ignore-case needs --mode regex; all other modes ignore case anyway.")
        if self.lenient and self.mode != "lexical":
            raise click.UsageError("--lenient needs --mode lexical.")

    @property
    def is_listing(self) -> bool:
        """Whether the query is empty, so that the hits are the catalog and have no scores."""
        return not (self.query if self.mode == "regex" else self.query.strip())

    def build_rankers(self) -> Mapping[str, Ranker]:
        """Return the rankers of the engine with these options. The last keyword index is in the cache folder."""
        folder = find_cache_folder()
        words = ArrayFile(folder / "words.npz", STORED_FORMAT) if folder else None
        return {
            **RANKERS,
            "hybrid": build_hybrid_ranker(DEFAULT_ENCODER, words=words),
            "fast": build_fast_ranker(DEFAULT_ENCODER.static_embedder, words=words),
            "lexical": LexicalRanker(syntax="lenient" if self.lenient else "strict", store=words),
            "regex": RegexRanker(ignore_case=self.ignore_case),
        }


class _SearchCommand(click.Command):
    """A command that explains how to pass a query that starts with a minus."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name.startswith("--"):
                raise
            raise click.UsageError(
                f"No such option: {error.option_name}. Put a query that starts with a minus last, "
                "after --, for example: toolcrib search --limit 3 -- '-email send'",
                ctx,
            ) from error


@click.command("search", cls=_SearchCommand)
@click.argument(
    "query", nargs=-1, required=True, metavar="QUERY...", callback=lambda context, parameter, words: " ".join(words)
)
@catalog_option
@click.option(
    "--limit", default=5, type=click.IntRange(1, MAX_LIMIT), metavar="N", help="Maximum number of tools.  [default: 5]"
)
@offset_option
@click.option("--mode", default="hybrid", type=click.Choice(tuple(RANKERS)), help="Search mode.  [default: hybrid]")
@where_options
@click.option("--ignore-case", is_flag=True, help="Ignore case in regex mode.")
@click.option("--lenient", is_flag=True, help="In lexical mode, search a malformed query as plain words.")
@click.option("--explain", is_flag=True, help="Print which words matched which fields.")
@click.option(
    "--why", metavar="ID", help="Explain why this tool was or was not found; the name is enough if it is unique."
)
@gateway_options
@json_option
def command(**options: Any) -> None:
    """Search for tools.

    Searches the running gateway if there is one, and else the demo catalog; --catalog searches files.

    QUERY describes what you need, in your own words. It may also be the name of a tool, or use
    this syntax: "a phrase", prefix*, field:word, +must, -not, AND, OR, NOT and ( ).
    """
    request = _SearchOptions(**options)
    gateway = find_gateway_catalog(request.catalog_files, request.url, request.key)
    result, groups, explanation = _search_catalog(request) if gateway is None else _search_gateway(request, gateway)
    if request.as_json:
        document = _result_to_json(result, groups, explanation)
        if request.is_listing:
            document["hits"] = [{**hit, "score": None} for hit in document["hits"]]
        print_json(document)
        return
    _print_hits(request, result, groups)
    if result.has_more:
        # The API of a gateway has no offset.
        advice = f"add --offset {request.offset + request.limit}" if gateway is None else "raise --limit or add words"
        click.secho(f"There are more tools: {advice}.", dim=True)
    if explanation is not None:
        _print_explanation(explanation)


def _search_catalog(request: _SearchOptions) -> tuple[SearchResult, Sequence[HitGroup], Explanation | None]:
    engine = SearchEngine(open_catalog(request.catalog_files), request.build_rankers())
    query, mode, where = request.query, request.mode, request.where
    result = engine.search(query, limit=request.limit, offset=request.offset, mode=mode, where=where)
    if request.as_json or request.explain:
        result = engine.with_reasons(result)
    tool, last = request.why, min(request.offset + request.limit, MAX_LIMIT)
    why = None if tool is None else engine.explain(query, tool, limit=last, mode=mode, where=where)
    groups = engine.group_hits(result) if len(result) <= MAX_GROUPED_HITS else tuple(map(HitGroup, result))
    return result, groups, why


def _search_gateway(
    request: _SearchOptions, gateway: GatewayCatalog
) -> tuple[SearchResult, Sequence[HitGroup], Explanation | None]:
    if request.offset or request.lenient or request.ignore_case:
        raise click.UsageError("--offset, --lenient and --ignore-case need --catalog; a gateway is searched here.")
    where, query, limit = request.where, request.query, request.limit
    result, groups = gateway.search(query, limit, request.mode, where)
    why = None if request.why is None else gateway.explain(query, request.why, limit, request.mode, where)
    return result, groups, why


def _result_to_json(
    result: SearchResult, groups: Sequence[HitGroup], explanation: Explanation | None
) -> dict[str, Any]:
    hits = [
        {"score": hit.score, "reasons": _reasons_to_json(hit.reasons), "tool": hit.tool.to_dict()}
        for hit in result.hits
    ]
    document: dict[str, Any] = {
        "query": result.query,
        "mode": result.mode,
        "confident": result.confident,
        "confidence": result.confidence,
        "hits": hits,
        "groups": [[hit.tool.id for hit in (group.best, *group.others)] for group in groups],
        "more": result.has_more,
        "unserved": list(result.uncovered),
        "notes": list(result.notes),
    }
    if explanation is not None:
        document["why"] = {
            "id": explanation.tool.id,
            "returned": explanation.is_returned,
            "rank": explanation.rank,
            "score": explanation.score,
            "verdict": explanation.verdict,
            "reasons": _reasons_to_json(explanation.reasons),
        }
    return document


def _reasons_to_json(reasons: Sequence[MatchReason]) -> list[dict[str, Any]]:
    return [{"term": reason.term, "field": reason.field, "share": round(reason.share, 6)} for reason in reasons]


def _print_hits(request: _SearchOptions, result: SearchResult, groups: Sequence[HitGroup]) -> None:
    if not result.hits:
        click.echo(wrap(_nothing_found_message(request)))
    elif not result.confident:
        click.echo(wrap("No tool fits well. The nearest are:"))
    table = ToolTable.for_ids((group.best.tool.id for group in groups), lead_columns=0 if request.is_listing else 6)
    for group in groups:
        hit = group.best
        score = "" if request.is_listing else f"{hit.score:.2f}"
        click.echo(table.format_row(score, hit.tool.id, hit.tool.description))
        reasons = format_reasons(hit.reasons) if request.explain else ""
        if reasons:
            click.secho(table.format_detail(f"matched {reasons}"), fg="yellow")
        if group.others:
            others = ", ".join(sanitize(other.tool.id) for other in group.others)
            click.echo(table.format_detail(f"also: {others}"))
    for segment in result.uncovered:
        click.echo(wrap(f"No tool fits: {sanitize(segment)}"))
    for text in result.notes:
        click.secho(wrap(f"Note: {sanitize(text)}"), dim=True)


def _nothing_found_message(request: _SearchOptions) -> str:
    if request.offset:
        return "No more tools; try a smaller --offset."
    if request.where != Where():
        hint = "Try again without the filters."
    elif request.mode == "regex" and not request.ignore_case:
        hint = "Patterns are case-sensitive: try --ignore-case."
    elif request.mode == "fuzzy":
        hint = "Try other words; `toolcrib tools` lists all tools."
    else:
        hint = "Try other words or --mode fuzzy; `toolcrib tools` lists all tools."
    return f"No tools found for {sanitize(request.query)!r}. {hint}"


def _print_explanation(explanation: Explanation) -> None:
    click.echo()
    click.secho(f"Why {sanitize(explanation.tool.id)}?", bold=True)
    verdict = sanitize(explanation.verdict)
    click.echo(wrap(f"{verdict[:1].upper()}{verdict[1:]}.", "  "))
    if explanation.reasons:
        reasons = format_reasons(explanation.reasons)
        click.echo(wrap(f"Score {explanation.score:.2f} from {reasons}.", "  "))
