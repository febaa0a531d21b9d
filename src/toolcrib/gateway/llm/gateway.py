"""What the LLM APIs share: upstreams, indexes of tools, remembered conversations, and threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar, cast, get_args

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.config.settings import (
    AccessProfile,
    ApiKey,
    LlmApi,
    LlmGatewayConfig,
    LlmKeyExposure,
    LlmSearchSwitch,
    LlmUpstreamConfig,
)
from toolcrib.errors import QuotaExceeded, RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.endpoint import (
    TOOL_SEARCH_HEADER,
    UPSTREAM_HEADER,
    HttpExchange,
    ResponseHeaders,
    Treatment,
    TryNextModel,
    sanitize_header_value,
)
from toolcrib.gateway.llm.json_body import LARGE_BODY_BYTES, parse_request_body, parse_upstream_body, serialize_json
from toolcrib.gateway.llm.request import LlmRequest
from toolcrib.gateway.llm.sse import EventBuffer
from toolcrib.gateway.llm.tools.exposure import Exposure, ExposurePlan, find_cached_price
from toolcrib.gateway.llm.tools.tool_index import Entries, ToolIndex, ToolIndexCache
from toolcrib.gateway.llm.tracing import RequestMeasurement, build_turn_row, describe_response, trace_request
from toolcrib.gateway.llm.translation.replay import replay_unless_stream
from toolcrib.gateway.llm.translation.response import (
    CHAT_TARGET,
    TranslatedResponse,
    choose_translator,
    translate_headers,
)
from toolcrib.gateway.llm.upstream.http_messages import UpstreamRequest, UpstreamResponse
from toolcrib.gateway.llm.upstream.upstreams import CREDENTIAL_HEADERS, TRANSIENT_STATUSES, LlmUpstreams
from toolcrib.gateway.llm.usage import BudgetExceeded, UsageMeter, UsageReader
from toolcrib.gateway.quotas import ProfileQuotas
from toolcrib.storage.audit import AuditRow

# An entry of the memory is a turn with searches, not a conversation.
TURNS_PER_CONVERSATION: Final = 16
MAX_RESPONSE_IDS: Final = 50_000
MAX_TOOLS_BYTES: Final = 4 << 20
TOOLS_LIMIT_CODE: Final = "available_tools_limit_exceeded"
SEARCH_THREADS: Final = 4
READ_THREADS: Final = 2
PREPARE_DELAY_SECONDS: Final = 0.03

_log = logging.getLogger(__name__)

# Called with each piece of a response before it is sent to the client.
ResponseObserver = Callable[[bytes], None]
Result = TypeVar("Result")
Index = TypeVar("Index", bound=ToolIndex)
# Called once per request with what the gateway does for it.
OnRequest = Callable[[ResponseHeaders], None]


class LlmGateway:
    """The LLM gateway. It can be used between `open` and `close`."""

    def __init__(
        self,
        settings: LlmGatewayConfig | Callable[[], LlmGatewayConfig],
        *,
        get_keys: Callable[[], Sequence[ApiKey]] = tuple,
        on_request: OnRequest | None = None,
        meter: UsageMeter | None = None,
    ) -> None:
        """Create a gateway. A function in place of the settings is called for every request."""
        self._get_settings: Callable[[], LlmGatewayConfig] = (
            (lambda: settings) if isinstance(settings, LlmGatewayConfig) else settings
        )
        self.upstreams = LlmUpstreams(self._get_settings)
        self.memory = ConversationMemory(self.settings.max_conversations * TURNS_PER_CONVERSATION)
        # Where the responses are stored that clients have received.
        self.response_ids = ConversationMemory(MAX_RESPONSE_IDS)
        self._indexes: ToolIndexCache[ToolIndex] = ToolIndexCache(self.settings.engine_cache)
        self._get_keys = get_keys
        self._on_request = on_request
        self._meter = meter or UsageMeter()
        # Called at the end of each request.
        self.on_turn: Callable[[AuditRow], None] | None = None
        # The quotas of access profiles, and a function that returns the profiles by name.
        self.quotas: tuple[ProfileQuotas, Callable[[], Mapping[str, AccessProfile]]] | None = None
        self._search_threads = ThreadPoolExecutor(SEARCH_THREADS, "toolcrib-search")
        self._read_threads = ThreadPoolExecutor(READ_THREADS, "toolcrib-read")
        self._prepare_thread = ThreadPoolExecutor(1, "toolcrib-prepare")

    @property
    def settings(self) -> LlmGatewayConfig:
        """The current settings."""
        return self._get_settings()

    async def open(self) -> None:
        """Open the connection pool."""
        await self.upstreams.open()

    async def close(self) -> None:
        """Close all connections and wait for the threads."""
        await self.upstreams.close()
        for threads in (self._search_threads, self._read_threads, self._prepare_thread):
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)

    async def read_request(self, exchange: HttpExchange, api: LlmApi) -> LlmRequest:
        """Parse a request and choose its upstream."""
        return await self.run_for_request(exchange, partial(self._read_request, exchange, api))

    def _read_request(self, exchange: HttpExchange, api: LlmApi) -> LlmRequest:
        self.check_budget(exchange)
        body = parse_request_body(exchange.body)
        given = str_or_empty(body.get("model"))
        exchange.model = exchange.model or given
        upstream, sent_model, has_fallback = self.upstreams.find_route(api, exchange.model, exchange.failed_models)
        path_model = sent_model if api == "gemini" else ""
        if not path_model and sent_model != given:
            body["model"] = sent_model
            exchange.body = serialize_json(body)
        switch = self._resolve_switch(exchange, upstream)
        return LlmRequest(exchange, upstream, switch, body, has_fallback, path_model)

    async def run_for_request(self, exchange: HttpExchange, work: Callable[[], Result]) -> Result:
        """Run work that takes longer for a larger request; in a thread if the request is large."""
        return await self._run_for_size(len(exchange.body), work)

    async def parse_upstream_body(self, data: bytes) -> dict[str, Any]:
        """Parse the body of an upstream's response; in a thread if it is large."""
        return await self._run_for_size(len(data), partial(parse_upstream_body, data))

    async def _run_for_size(self, size_bytes: int, work: Callable[[], Result]) -> Result:
        if size_bytes <= LARGE_BODY_BYTES:
            return work()
        # These are not the search threads: large requests only delay other large requests.
        return await asyncio.get_running_loop().run_in_executor(self._read_threads, work)

    async def build_rewriter(self, request: LlmRequest, index: ToolIndex, build: Callable[..., Result]) -> Result:
        """Build the rewriter of a request with hidden searches; in a search thread if that searches."""
        work = partial(build, request.body, index, self.memory_for(request), self.settings.max_rounds)
        if index.plan.prefetches:
            return await self.run_search(work)
        return await self.run_for_request(request.exchange, work)

    async def run_search(self, work: Callable[[], Result]) -> Result:
        """Run work that may take long in a search thread."""
        return await asyncio.get_running_loop().run_in_executor(self._search_threads, work)

    async def get_tool_index(self, entries: Entries, build: Callable[[], Index], *settings: Hashable) -> Index:
        """Return the index of a list of tools, from the cache or built in a thread.

        `settings` are everything else that `build` depends on.
        """
        cached = self._indexes.get(entries, *settings)
        if cached is not None:
            return cast(Index, cached)
        index, size = await self.run_search(lambda: (_load(build()), len(serialize_json(entries))))
        self._indexes.put(index, entries, *settings, size_bytes=size)
        return index

    def prepare_index(self, index: ToolIndex) -> None:
        """Prepare an index for its first search in the background, once."""
        if index.claim_preparation():
            # The delay lets the request go out first, as the threads share one interpreter.
            loop = asyncio.get_running_loop()
            loop.call_later(PREPARE_DELAY_SECONDS, self._submit_preparation, index)

    def _submit_preparation(self, index: ToolIndex) -> None:
        # The gateway may have been closed in the meantime.
        with suppress(RuntimeError):
            self._prepare_thread.submit(index.prepare)

    def memory_for(self, request: LlmRequest) -> ScopedMemory:
        """Return the part of the memory that belongs to the client of a request."""
        return ScopedMemory(self.memory, request.owner, request.upstream.name)

    def exposure_for(self, request: LlmRequest) -> Exposure:
        """Return which tools to defer if the client does not say which.

        The settings of the client's key override those of the upstream.
        """
        upstream, key = request.upstream, LlmKeyExposure()
        if api_key := self._find_key(request.exchange):
            key = api_key.exposure
        price = upstream.cached_price
        return Exposure(
            always_expose=(*upstream.always_expose, *key.always_expose),
            style=key.style or upstream.style,
            tier=key.tier or upstream.tier,
            model=request.model,
            cached_price=find_cached_price(request.model) if price is None else price,
            prefetch=upstream.prefetch,
            **self._thresholds_for(request, key),
        )

    def _thresholds_for(self, request: LlmRequest, key: LlmKeyExposure) -> dict[str, int]:
        if request.switch == "on":
            return {"threshold_tools": 1}
        levels = (key, request.upstream, self.settings)
        return {
            name: next(value for level in levels if (value := getattr(level, name)) is not None)
            for name in ("threshold_tools", "threshold_tokens")
        }

    def _find_key(self, exchange: HttpExchange) -> ApiKey | None:
        hash = exchange.principal.key_hash
        return next((key for key in self._get_keys() if key.hash == hash), None) if hash else None

    def check_budget(self, exchange: HttpExchange) -> None:
        """Refuse a request if its key has used the requests or tokens of today."""
        if key := self._find_key(exchange):
            self._meter.check_budget(exchange.principal.name, key)

    def check_searches(self, exchange: HttpExchange) -> None:
        """Refuse a request with searches if its access profile has used those of this minute."""
        quotas, profile = self._find_quotas(exchange)
        if quotas and profile:
            try:
                quotas.check_searches(profile)
            except QuotaExceeded as error:
                raise BudgetExceeded(str(error), error.retry_after_seconds, should_retry=True) from None

    def _find_quotas(self, exchange: HttpExchange) -> tuple[ProfileQuotas | None, AccessProfile | None]:
        if self.quotas is None:
            return None, None
        quotas, get_profiles = self.quotas
        return quotas, get_profiles().get(exchange.principal.profile or "")

    @contextmanager
    def measure_request(
        self, request: LlmRequest, headers: ResponseHeaders, fill: Callable[[RequestMeasurement], None]
    ) -> Iterator[None]:
        """Trace a request, and record it before its response ends. `fill` sets the tokens that are known by then."""
        exchange, measurement = request.exchange, RequestMeasurement()
        with trace_request(request.upstream, request.model, exchange.headers) as span:

            def record() -> None:
                fill(measurement)
                quotas, profile = self._find_quotas(exchange)
                if quotas and profile and measurement.searches:
                    quotas.add_searches(profile, measurement.searches)
                if self.on_turn and (exchange.has_started or measurement.error):
                    self.on_turn(build_turn_row(exchange, request.body, headers, measurement))
                # A request without a response is sent again, or its error is counted by the client.
                if exchange.has_started:
                    describe_response(span, exchange.status, measurement.counts, headers.saved_tokens)
                    self._meter.record(exchange.principal.name, request.model, measurement.counts, headers.saved_tokens)

            exchange.on_end = record
            try:
                yield
            except TryNextModel:
                raise
            except RequestFailed as error:
                measurement.error = str(error)
                raise
            finally:
                exchange.record_end()

    def check_tool_count(self, request: LlmRequest, count: int | None = None) -> None:
        """Refuse a request with more tools than the limit; `count` is needed if `tools` has lists of them."""
        count, limit = len(request.tool_entries) if count is None else count, self.settings.max_tools
        if count > limit:
            raise RequestFailed(f"the request has {count:,} tools; the limit is {limit:,}", param="tools")

    def check_tools_size(self, request: LlmRequest, build_body: Callable[[], Mapping[str, Any]]) -> None:
        """Refuse a request if the tools in the body for the upstream are too large."""
        # The tools are part of the client's body, so only a large body can have too large tools.
        if len(request.exchange.body) <= MAX_TOOLS_BYTES:
            return
        size = len(serialize_json(build_body().get("tools")))
        if size > MAX_TOOLS_BYTES:
            message = f"the tools in the prompt take {size:,} bytes; the limit is {MAX_TOOLS_BYTES:,}"
            raise RequestFailed(message, code=TOOLS_LIMIT_CODE, param="tools")

    def report_request(self, headers: ResponseHeaders) -> None:
        """Report what is done for a request to the callback."""
        if self._on_request is not None:
            self._on_request(headers)

    def find_named_upstream(
        self, exchange: HttpExchange, upstreams: Sequence[LlmUpstreamConfig]
    ) -> LlmUpstreamConfig | None:
        """Return the upstream that a request names in its header, or None if it names none."""
        name = exchange.get_header(UPSTREAM_HEADER).strip()
        if not name:
            return None
        for upstream in upstreams:
            if name in (upstream.name, sanitize_header_value(upstream.name)):
                return upstream
        raise RequestFailed(
            f"{UPSTREAM_HEADER}: there is no upstream {name[:100]!r}; the upstreams are {_join_names(upstreams)}", 404
        )

    def choose_upstream(self, exchange: HttpExchange, upstreams: Sequence[LlmUpstreamConfig]) -> LlmUpstreamConfig:
        """Return the upstream of a request without a model: the one that its header names, or the only one."""
        upstream = self.find_named_upstream(exchange, upstreams)
        if upstream is None and len(upstreams) > 1:
            message = "this request names no model, and there are several upstreams; name one in the header"
            raise RequestFailed(f"{message} {UPSTREAM_HEADER}: {_join_names(upstreams)}", 404)
        return upstream or upstreams[0]

    async def send_request(
        self, request: LlmRequest, body: bytes, *, retry_transient: bool = False
    ) -> UpstreamResponse:
        """Send a request of a client with this body to its upstream.

        Raise `TryNextModel` if the upstream fails and another model can answer.
        """
        exchange = request.exchange
        can_fall_back = request.has_fallback and not exchange.has_started
        try:
            response = await self._send(exchange, request.upstream, body, retry_transient=retry_transient)
        except RequestFailed as error:
            if can_fall_back and error.status in TRANSIENT_STATUSES:
                raise TryNextModel(str(error), error.status) from error
            raise
        if can_fall_back and response.status in TRANSIENT_STATUSES:
            await response.close()
            raise TryNextModel(f"upstream {request.upstream.name!r} answered with status {response.status}")
        return await replay_unless_stream(response, exchange.path) if request.is_streaming else response

    async def _send(
        self,
        exchange: HttpExchange,
        upstream: LlmUpstreamConfig,
        body: bytes,
        *,
        target: str = "",
        retry_transient: bool = False,
    ) -> UpstreamResponse:
        headers = exchange.headers
        if exchange.failed_models:
            # The client's key is for the first model of the alias.
            headers = [(name, value) for name, value in headers if name not in CREDENTIAL_HEADERS]
        translator = choose_translator(exchange, upstream)
        if translator is None:
            sent = UpstreamRequest(upstream, exchange.method, target or exchange.target, headers, body)
            return await self.upstreams.send_for_client(sent, retry_transient=retry_transient)
        chat_body = translator.translate_request(await self._run_for_size(len(body), partial(parse_request_body, body)))
        chat_headers = translate_headers(headers)
        sent = UpstreamRequest(upstream, exchange.method, CHAT_TARGET, chat_headers, serialize_json(chat_body))
        response = await self.upstreams.send_for_client(sent, retry_transient=retry_transient)
        return TranslatedResponse(response, translator, is_streaming=chat_body.get("stream") is True)

    async def forward_request(
        self,
        request: LlmRequest,
        treatment: Treatment,
        observer: ResponseObserver | None = None,
        plan: ExposurePlan | None = None,
    ) -> None:
        """Forward a request that needs no tool search. If the gateway has decided so, `plan` has the reason."""
        headers = ResponseHeaders(request.upstream.name, treatment, plan=plan)
        if plan is not None:
            _log.info("%s: all tools sent, %s", request.upstream.name, plan.reason)
        self.report_request(headers)
        request.exchange.sent_tools = request.body.get("tools")
        usage = UsageReader()

        def fill(measurement: RequestMeasurement) -> None:
            measurement.counts = usage.count_tokens(len(request.exchange.body))

        with self.measure_request(request, headers, fill):
            response = await self.send_request(request, request.exchange.body)
            await _forward_response(request.exchange, response, headers, usage, observer)

    async def forward(self, exchange: HttpExchange, upstream: LlmUpstreamConfig, *, target: str = "") -> None:
        """Forward a request to another path than those of the models, and its response, byte for byte.

        `target` replaces the path.
        """
        self.check_budget(exchange)
        headers = ResponseHeaders(upstream.name, "off")
        self.report_request(headers)
        usage = UsageReader()
        response = await self._send(exchange, upstream, exchange.body, target=target)

        def record() -> None:
            if exchange.method == "POST":
                counts = usage.count_tokens(len(exchange.body))
                self._meter.record(exchange.principal.name, exchange.model or exchange.path, counts)

        exchange.on_end = record
        try:
            await _forward_response(exchange, response, headers, usage, None)
        finally:
            exchange.record_end()

    def _resolve_switch(self, exchange: HttpExchange, upstream: LlmUpstreamConfig) -> LlmSearchSwitch:
        """Return the tool search setting: of the header, else of the key, else of the upstream."""
        switch = exchange.get_header(TOOL_SEARCH_HEADER).strip().lower()
        if not switch:
            key = self._find_key(exchange)
            return (key.tool_search if key else None) or upstream.tool_search
        if switch not in get_args(LlmSearchSwitch):
            known = ", ".join(get_args(LlmSearchSwitch))
            raise RequestFailed(f"{TOOL_SEARCH_HEADER}: {switch[:40]!r} is not one of {known}")
        return cast(LlmSearchSwitch, switch)


async def _forward_response(
    exchange: HttpExchange,
    response: UpstreamResponse,
    added_headers: ResponseHeaders,
    usage: UsageReader,
    observer: ResponseObserver | None,
) -> None:
    """Forward a response byte for byte. The gateway has asked the upstream not to compress it."""
    try:
        # Events are decoded if possible, because their ends are only visible in decoded bytes.
        keep_encoding = not (response.is_event_stream and response.is_decodable)
        headers = [*response.forwarded_headers(keep_encoding=keep_encoding), *added_headers.render()]
        if not response.is_event_stream:
            pieces = []
            while piece := await response.read_raw_chunk():
                pieces.append(piece)
            body = b"".join(pieces)
            if response.is_success:
                usage.read_body(body)
                if observer:
                    observer(body)
            await exchange.send_response(response.status, headers, body)
            return
        await exchange.start_response(response.status, headers)
        if keep_encoding:
            while piece := await response.read_raw_chunk():
                await exchange.write(piece)
        else:
            buffer = EventBuffer()
            while chunk := await response.read_chunk():
                if events := buffer.push_chunk(chunk):
                    usage.read_events(events)
                    if observer:
                        observer(events)
                    await exchange.write(events)
            await exchange.write(buffer.take_rest())
        await exchange.end_response()
    finally:
        await response.close()


def _join_names(upstreams: Sequence[LlmUpstreamConfig]) -> str:
    return ", ".join(upstream.name for upstream in upstreams)


def _load(index: Index) -> Index:
    """Compute the tokens and names of an index, which takes long for many tools."""
    if index.deferred:
        index.count_saved_tokens()
        index.find_deferred("")
    return index
