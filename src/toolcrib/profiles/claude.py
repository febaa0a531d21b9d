"""Claude's tool search: a regex search tool and a BM25 search tool over deferred tools.

`ClaudeToolSearch.search` returns what the API puts into a `tool_search_tool_result` block.
`find_refusal` and `beta_headers` predict how the API treats a request. `EDITION_2026` is the API of
2026, `EDITION_2025` that of 2025, as documented in each year.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from toolcrib.core.catalog import Catalog
from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool
from toolcrib.errors import (
    InvalidLimit,
    InvalidPattern,
    InvalidQuery,
    QueryTooLong,
    SearchTimeout,
    ToolcribError,
    UnknownTool,
)
from toolcrib.search.lexical.fields import TOOL_FIELDS, FieldConfig
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import Index
from toolcrib.search.regex import RegexRanker

UNKNOWN_SEARCH_TOOL: Final = "no search tool {name!r}; the search tools are {known}"
QUERY_MISSING: Final = "the input needs {key!r}, a text"
QUERY_TOO_LONG: Final = "{key!r} has {length} characters; the limit is {limit}"
INVALID_LIMIT: Final = "limit must be a whole number from 1 to {most}, not {limit!r}"
BAD_PATTERN: Final = "Invalid regular expression pattern: {error}; {advice}"
# The API's own texts, where they are known; some clients check for them.
ALL_DEFERRED: Final = "At least one tool must have defer_loading=false. All tools cannot be deferred."
SEARCH_TOOL_DEFERRED: Final = "the search tool {name!r} must not have defer_loading"
DEFERRED_AND_CACHED: Final = (
    "Tool '{name}' cannot have both defer_loading=true and cache_control set. "
    "Tools with defer_loading cannot use prompt caching."
)
TOO_MANY_DEFERRED: Final = "{count:,} tools have defer_loading; the limit is {most:,}"
EXAMPLES_AND_SEARCH: Final = "tool {name!r} has input_examples, which tool search does not allow"
UNKNOWN_REFERENCE: Final = "Tool reference '{name}' not found in available tools"

REGEX: Final = "tool_search_tool_regex"
BM25: Final = "tool_search_tool_bm25"
VERSION: Final = "20251119"
DEFAULT_LIMIT: Final = 5
MAX_LIMIT: Final = 10_000
MAX_DEFERRED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Edition:
    """The behaviour of the API in one year.

    `codes` maps error types to error codes, `code` is the code of all other errors. `headers` maps
    providers to beta headers, with "" for Anthropic itself; it is empty if no header is needed.
    """

    fields: tuple[str, ...]
    ignore_case: bool
    codes: Mapping[type[ToolcribError], str]
    code: str
    headers: Mapping[str, str]
    allows_examples: bool = True

    def tool_texts(self, tool: Tool) -> Iterator[tuple[str, str]]:
        """Yield the searchable texts of a tool, each with the name of its field."""
        return ((field, text) for field, text in _all_texts(tool) if text and field in self.fields)


EDITION_2025: Final = Edition(
    fields=("name", "description"),
    ignore_case=False,
    codes=MappingProxyType({QueryTooLong: "pattern_too_long", SearchTimeout: "unavailable"}),
    code="invalid_pattern",
    headers=MappingProxyType(
        {
            "": "advanced-tool-use-2025-11-20",
            # These providers reject Anthropic's own header.
            "bedrock": "tool-search-tool-2025-10-19",
            "vertex": "tool-search-tool-2025-10-19",
        }
    ),
    allows_examples=False,
)
EDITION_2026: Final = Edition(
    fields=("name", "description", "parameter", "parameter_text"),
    ignore_case=True,
    codes=MappingProxyType({SearchTimeout: "execution_time_exceeded"}),
    code="invalid_tool_input",
    headers=MappingProxyType({}),
)


@dataclass(frozen=True, slots=True)
class SearchVariant:
    """One of the two search tools. The first of `keys` is current, the others are older."""

    name: str
    keys: tuple[str, ...]
    max_chars: int


_VARIANTS: Final = (SearchVariant(REGEX, ("pattern", "query"), 200), SearchVariant(BM25, ("query",), 500))
VARIANTS: Final[Mapping[str, SearchVariant]] = MappingProxyType(
    {name: variant for variant in _VARIANTS for name in (variant.name, f"{variant.name}_{VERSION}")}
)


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why the API rejects a request; `code` is the API's error code, if it has one."""

    message: str
    code: str = ""


class ClaudeToolSearch:
    """Both search tools over the tools of one request.

    `lexical_search` replaces BM25: it takes a query and a limit and returns tools, best first.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        edition: Edition = EDITION_2026,
        clock: Callable[[], float] = time.thread_time,
        lexical_search: Callable[[str, int], Sequence[Tool]] | None = None,
    ) -> None:
        self._catalog = Catalog(tools)
        self._edition = edition
        self._clock = clock
        self._lexical_search = lexical_search or self.search_bm25

    def search(self, name: str, input: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a call of a search tool, given by name or type; errors included."""
        variant = VARIANTS.get(name)
        if variant is None:
            raise UnknownTool(UNKNOWN_SEARCH_TOOL.format(name=name, known=", ".join(VARIANTS)))
        try:
            query, limit = _read_query(variant, input), _read_limit(input)
            by_pattern = variant.name == REGEX
            found = self._search_regex(query) if by_pattern else self._lexical_search(query, limit)
        except ToolcribError as error:
            code = self._edition.codes.get(type(error), self._edition.code)
            message = _error_message(error)
            return {"type": "tool_search_tool_result_error", "error_code": code, "error_message": message}
        references = [{"type": "tool_reference", "tool_name": tool.name} for tool in found[:limit]]
        return {"type": "tool_search_tool_search_result", "tool_references": references}

    def _search_regex(self, pattern: str) -> list[Tool]:
        """Return the tools with a text that matches, in catalog order."""
        return self._tools_at(self._regex_index.rank(ParsedQuery(pattern)).slots.tolist())

    def search_bm25(self, query: str, limit: int) -> list[Tool]:
        """Return the tools that share a word with the query, best first; ties in catalog order."""
        ranking = self._bm25_index.rank(ParsedQuery(query))
        scored = zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True)
        best = sorted(scored, key=lambda pair: -pair[1])[:limit]
        return self._tools_at([slot for slot, _ in best])

    def _tools_at(self, slots: list[int]) -> list[Tool]:
        return [tool for slot in slots if (tool := self._catalog.tool_at(slot))]

    @cached_property
    def _regex_index(self) -> Index:
        edition = self._edition
        ranker = RegexRanker(ignore_case=edition.ignore_case, texts=edition.tool_texts, clock=self._clock)
        return ranker.fit(self._catalog)

    @cached_property
    def _bm25_index(self) -> Index:
        edition = self._edition
        fields = tuple(field for field in TOOL_FIELDS.fields if field.name in edition.fields)

        def texts(tool: Tool) -> list[str]:
            found = list(edition.tool_texts(tool))
            return [" ".join(text for name, text in found if name == field.name) for field in fields]

        return LexicalRanker("words", FieldConfig(fields, texts)).fit(self._catalog)


def render_blocks(id: str, name: str, input: Mapping[str, Any], content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the two content blocks that report one search in a response."""
    return [
        {"type": "server_tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}},
        {"type": "tool_search_tool_result", "tool_use_id": id, "content": content},
    ]


def find_refusal(body: Mapping[str, Any], edition: Edition = EDITION_2026) -> RequestRefusal | None:
    """Return why the API rejects a request with status 400 because of tool search, or None."""
    return next(_find_refusals(body, edition), None)


def beta_headers(body: Mapping[str, Any], provider: str = "", edition: Edition = EDITION_2026) -> tuple[str, ...]:
    """Return the beta headers that a request needs for tool search."""
    if not edition.headers or not uses_tool_search(body):
        return ()
    return (edition.headers.get(provider, edition.headers[""]),)


def uses_tool_search(body: Mapping[str, Any]) -> bool:
    """Return whether a request uses tool search: a search tool, a deferred tool, or its history."""
    return any(is_deferred(tool) for tool in _request_tools(body)) or _mentions_search(body)


def referenced_tool_names(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that a request's history refers to, in order, once each."""
    references = (reference for block in _content_blocks(body) for reference in _reference_blocks(block))
    return list(dict.fromkeys(str(reference.get("tool_name")) for reference in references))


def _all_texts(tool: Tool) -> Iterator[tuple[str, str]]:
    yield "name", tool.name
    yield "description", tool.description
    for parameter in list_parameters(tool.input_schema):
        yield "parameter", parameter.name
        yield "parameter_text", parameter.description


def _error_message(error: ToolcribError) -> str:
    """Return the text of an error: the API's own text if it is known, with our advice."""
    cause = error.__cause__
    if not isinstance(error, InvalidPattern) or not isinstance(cause, re.error):
        return str(error)
    return BAD_PATTERN.format(error=cause, advice=str(error).partition("; ")[2])


def _read_query(variant: SearchVariant, input: Mapping[str, Any]) -> str:
    key = next((key for key in variant.keys if key in input), variant.keys[0])
    query = input.get(key)
    if not isinstance(query, str):
        raise InvalidQuery(QUERY_MISSING.format(key=variant.keys[0]))
    if len(query) > variant.max_chars:
        text = QUERY_TOO_LONG.format(key=key, length=len(query), limit=variant.max_chars)
        raise QueryTooLong(text)
    return query


def _read_limit(input: Mapping[str, Any]) -> int:
    limit = input.get("limit")
    if limit is None:
        return DEFAULT_LIMIT
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InvalidLimit(INVALID_LIMIT.format(limit=limit, most=f"{MAX_LIMIT:,}"))
    return limit


def _find_refusals(body: Mapping[str, Any], edition: Edition) -> Iterator[RequestRefusal]:
    tools = _request_tools(body)
    deferred = [tool for tool in tools if is_deferred(tool)]
    for tool in deferred:
        if is_search_tool(tool):
            yield RequestRefusal(SEARCH_TOOL_DEFERRED.format(name=tool.get("name")))
        if tool.get("cache_control") is not None:
            yield RequestRefusal(DEFERRED_AND_CACHED.format(name=tool.get("name")))
    if deferred and len(deferred) == len(tools):
        yield RequestRefusal(ALL_DEFERRED)
    if len(deferred) > MAX_DEFERRED:
        text = TOO_MANY_DEFERRED.format(count=len(deferred), most=MAX_DEFERRED)
        yield RequestRefusal(text, "available_tools_limit_exceeded")
    if not edition.allows_examples and _mentions_search(body):
        for tool in tools:
            if tool.get("input_examples"):
                yield RequestRefusal(EXAMPLES_AND_SEARCH.format(name=tool.get("name")))
    defined = {str(tool.get("name")) for tool in tools}
    # Names of tools of an MCP server begin with its name; the request need not list them.
    toolsets = (tool for tool in tools if tool.get("type") == "mcp_toolset")
    servers = tuple(f"{tool.get('mcp_server_name')}_" for tool in toolsets)
    for name in referenced_tool_names(body):
        if name not in defined and not name.startswith(servers):
            yield RequestRefusal(UNKNOWN_REFERENCE.format(name=name))


def _mentions_search(body: Mapping[str, Any]) -> bool:
    """Return whether a request has a search tool, or a search in its history."""
    return any(map(is_search_tool, _request_tools(body))) or any(map(_is_search_block, _content_blocks(body)))


def _is_search_block(block: Mapping[str, Any]) -> bool:
    if block.get("type") == "server_tool_use":
        return str(block.get("name")) in VARIANTS
    return block.get("type") == "tool_search_tool_result" or bool(_reference_blocks(block))


def is_search_tool(tool: Mapping[str, Any]) -> bool:
    """Return whether an entry of a request's `tools` is one of the search tools."""
    return str(tool.get("type")) in VARIANTS


def is_deferred(tool: Mapping[str, Any]) -> bool:
    """Return whether an entry of a request's `tools` is deferred."""
    return tool.get("defer_loading") is True


def _request_tools(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _mappings_or_empty(body.get("tools"))


def _content_blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for message in _mappings_or_empty(body.get("messages")):
        yield from _mappings_or_empty(message.get("content"))


def _reference_blocks(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool references in the result of a search by the API or by the client."""
    content = block.get("content")
    if block.get("type") == "tool_search_tool_result" and isinstance(content, Mapping):
        return _mappings_or_empty(content.get("tool_references"))
    if block.get("type") == "tool_result":
        return [part for part in _mappings_or_empty(content) if part.get("type") == "tool_reference"]
    return []


def _mappings_or_empty(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list; empty if the value is not a list."""
    if not isinstance(value, list):
        return []
    # Python recognises a dictionary several times faster than another mapping.
    return [item for item in value if isinstance(item, dict) or isinstance(item, Mapping)]  # noqa: SIM101
