"""Store large tool results, show a preview in their place, and answer `read_result`."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.config.settings import ResultsConfig
from toolcrib.core import prompts
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidQuery, InvalidSchema, InvalidStore, SearchTimeout
from toolcrib.gateway.mcp.results.document import (
    ResultDocument,
    collect_text,
    cut_value,
    encode_json,
    estimate_text_tokens,
    get_content,
    get_part_text,
)
from toolcrib.gateway.mcp.results.preview import describe_size, render_preview
from toolcrib.gateway.mcp.results.reading import DEFAULT_LIMIT, MAX_LIMIT, ReadRequest, read_document
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.meta_tools import ITEM_KINDS, MAX_SIZE_META_KEY, text_result
from toolcrib.hub.directory import DirectoryEntry, exceeds_size
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.session.disclosure import parse_integer, parse_limit
from toolcrib.storage.results import MAX_RESULT_TEXT_BYTES, StoredResult

RESULT_META_KEY: Final = "toolcrib/result"
NOTE_KEY: Final = "_toolcrib"
_SIZE_AWARE_CLIENT: Final = "claude-code"
_CHARS_PER_TOKEN: Final = 4
_HANDLE_BYTES: Final = 9
HANDLE_PREFIX: Final = "res_"
# The longest arrays and strings of a shortened structured content, tried one after the other.
_SHORTENED_SIZES: Final = ((20, 1_000), (10, 300), (5, 120), (3, 60), (1, 40))
_log = logging.getLogger(__name__)


class LargeResults:
    """Keeps results above their budget in the store. The owner of a result is its caller."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @property
    def _settings(self) -> ResultsConfig:
        return self._hub.config.results

    async def limit_result(
        self, client: ConnectedClient, entry: DirectoryEntry, result: dict[str, Any], *, has_schema: bool
    ) -> dict[str, Any]:
        """Return a result, or its preview if it is above the budget of its tool.

        With `has_schema`, the client knows the tool's output schema, so the structured content has
        to match it.
        """
        budget = self._get_budget(client, entry)
        parts = _visible_parts(result)
        # No token is shorter than one character.
        if not budget or not exceeds_size(parts, budget):
            return result
        # A text is estimated from samples, which takes less time than a change of threads.
        if not parts[1] and _count_visible_tokens(result, budget) <= budget:
            return result
        limit = partial(self._replace_large, client.owner, entry, result, budget)
        return await anyio.to_thread.run_sync(partial(limit, has_schema=has_schema))

    async def read(self, client: ConnectedClient, view: AccessView, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `read_result`."""
        handle = arguments.get("handle")
        if not isinstance(handle, str) or not handle:
            return text_result(prompts.HANDLE_MISSING, is_error=True)
        request = ReadRequest(
            path=str_or_empty(arguments.get("path")),
            search=str_or_empty(arguments.get("search")),
            regex=str_or_empty(arguments.get("regex")),
            offset=parse_integer(arguments.get("offset"), 0, 0, 10**9),
            limit=parse_limit(arguments, DEFAULT_LIMIT, MAX_LIMIT),
        )
        return await anyio.to_thread.run_sync(self._read_stored, client.owner, view, handle, request)

    def _get_budget(self, client: ConnectedClient, entry: DirectoryEntry) -> int:
        server = self._hub.config.servers.get(entry.server)
        budget = self._settings.budget_tokens
        if server is not None and server.result_budget_tokens is not None:
            budget = server.result_budget_tokens
        if entry.override is not None and entry.override.result_budget_tokens is not None:
            budget = entry.override.result_budget_tokens
        declared = (entry.definition.get("_meta") or {}).get(MAX_SIZE_META_KEY)
        if budget and isinstance(declared, int) and client.name.startswith(_SIZE_AWARE_CLIENT):
            # The author of the tool has agreed on a size with this host.
            budget = max(budget, declared // _CHARS_PER_TOKEN)
        return budget

    def _replace_large(
        self, owner: str, entry: DirectoryEntry, result: dict[str, Any], budget: int, *, has_schema: bool
    ) -> dict[str, Any]:
        tokens = _count_visible_tokens(result, budget)
        text = collect_text(result)
        if tokens <= budget or len(text) > MAX_RESULT_TEXT_BYTES // 4:
            return result
        now = time.time()
        handle = f"{HANDLE_PREFIX}{secrets.token_hex(_HANDLE_BYTES)}"
        stored = StoredResult(handle, owner, entry.name, text, now, now + self._settings.keep_seconds)
        try:
            self._hub.store.put_result(stored, self._settings.max_stored_bytes)
        except InvalidStore as error:
            _log.warning("a large result of %s is passed on whole, because it cannot be stored: %s", entry.name, error)
            return result
        preview = self._render_preview(stored, tokens)
        shortened = {key: value for key, value in result.items() if key != "structuredContent"}
        shortened["content"] = replace_text_parts(get_content(result), preview)
        structured = result.get("structuredContent")
        if has_schema and isinstance(structured, Mapping) and entry.tool.output_schema:
            shortened["structuredContent"] = self._shorten_structured(structured, entry, handle)
        meta = result.get("_meta")
        about = {"handle": handle, "tokens": tokens, "expires": stored.expires}
        shortened["_meta"] = {**(meta if isinstance(meta, Mapping) else {}), RESULT_META_KEY: about}
        self._hub.add_counts(
            results_stored=1, result_tokens=tokens, result_preview_tokens=estimate_text_tokens(preview)
        )
        return shortened

    def _render_preview(self, stored: StoredResult, tokens: int) -> str:
        document = ResultDocument(stored.text)
        heading = prompts.RESULT_PREVIEW.format(
            name=stored.tool, size=describe_size(document), tokens=tokens, handle=stored.handle
        )
        path = "$[20:40]" if isinstance(document.value, list) else "$.items[20:40]"
        usage = prompts.READ_JSON.format(path=path) if document.is_json else prompts.READ_TEXT
        return f"{heading} {usage}\n\n{render_preview(document, self._settings.preview_tokens)}"

    def _shorten_structured(
        self, structured: Mapping[str, Any], entry: DirectoryEntry, handle: str
    ) -> Mapping[str, Any]:
        """Return a shortened structured content that matches the output schema, with a note that it is shortened.

        If the schema allows neither, return it whole: data that looks complete must be complete.
        """
        schema = entry.tool.output_schema
        note = {"shortened": True, "handle": handle, "note": prompts.SHORTENED_STRUCTURE}
        candidate: Mapping[str, Any] = structured
        for items, chars in _SHORTENED_SIZES:
            candidate = {**cut_value(structured, items, chars, 50, marks=False), NOTE_KEY: note}
            if estimate_text_tokens(encode_json(candidate)) <= 2 * self._settings.preview_tokens:
                break
        try:
            is_valid = not find_problems(schema, candidate)
        except InvalidSchema:
            is_valid = False
        return candidate if is_valid else structured

    def _read_stored(self, owner: str, view: AccessView, handle: str, request: ReadRequest) -> dict[str, Any]:
        try:
            stored = self._hub.store.get_result(handle, owner, time.time())
        except InvalidStore as error:
            return text_result(str(error), is_error=True)
        is_result = stored is not None and handle.startswith(HANDLE_PREFIX)
        tool = stored.tool if stored is not None else ""
        # A caller may read the results of its tools, of scripts, and of skills, prompts and resources.
        may_read = tool in view.entries or tool == prompts.CODE_NAME or tool.partition(":")[0] in ITEM_KINDS
        if stored is None or not (is_result and may_read):
            return text_result(prompts.UNKNOWN_HANDLE.format(handle=handle[:80]), is_error=True)
        self._hub.add_counts(result_reads=1)
        try:
            return text_result(read_document(ResultDocument(stored.text), request, self._settings.read_tokens))
        except (InvalidQuery, SearchTimeout) as error:
            return text_result(str(error), is_error=True)


def _visible_parts(result: Mapping[str, Any]) -> list[Any]:
    """Return what a model may see as text; images and links are not counted."""
    texts = [text for part in get_content(result) if (text := get_part_text(part)) is not None]
    return [texts, result.get("structuredContent")]


def _count_visible_tokens(result: Mapping[str, Any], budget: int) -> int:
    """Return the tokens of the text, or if they are within the budget, of the structured content.

    Hosts show a model one of the two.
    """
    texts, structured = _visible_parts(result)
    tokens = estimate_text_tokens("\n".join(texts))
    if tokens > budget or not structured:
        return tokens
    return max(tokens, estimate_text_tokens(encode_json(structured)))


def replace_text_parts(content: list[Any], preview: str) -> list[Any]:
    """Return the parts with the preview in place of the first text part; other texts are removed."""
    others = [(number, part) for number, part in enumerate(content) if get_part_text(part) is None]
    first = next((number for number, part in enumerate(content) if get_part_text(part) is not None), 0)
    before = [part for number, part in others if number < first]
    return [*before, {"type": "text", "text": preview}, *(part for number, part in others if number > first)]
