"""Agent: call a model, answer its tool calls, and repeat until the task is done.

The loop is one generator, `_run_steps`, without I/O: it yields what has to be done and receives the
result. `stream` does the work with a sync client, `stream_async` with an async one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, runtime_checkable

from toolcrib.adapters.plain_json import to_plain_dict
from toolcrib.adapters.wire_formats import get_wire_format
from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.gemini import Gemini
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, Message, Provider, ReplyBuilder
from toolcrib.core.calls import ToolCall
from toolcrib.errors import AgentUnfinished, InvalidConfig
from toolcrib.session.turn import ToolTask

MAX_STEPS: Final = 25

# The providers' stop reasons for a reply that exceeded a limit of tokens.
_LENGTH_STOPS: Final = ("max_tokens", "model_context_window_exceeded", "length", "max_output_tokens", "MAX_TOKENS")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the model's text; more may follow."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model called a tool, or searched for tools."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A call was answered with this text."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """The model is done, or waits for the `pending` calls, which the program has to answer.

    `messages` is the whole conversation in the provider's format, to continue from.
    """

    text: str
    messages: list[dict[str, Any]] = field(repr=False)
    steps: int
    usage: AgentTokenUsage
    pending: tuple[ToolTask, ...] = ()


AgentEvent = TextDelta | ToolCalled | ToolAnswered | AgentFinished


class AgentSession(Protocol):
    """The tools of a conversation and the answers to their calls, such as a session of `Toolcrib`."""

    @property
    def pending(self) -> Sequence[ToolTask]:
        """Calls of the last reply that the program has to answer."""

    def tools(self, wire: str) -> list[dict[str, Any]]:
        """Return the tools to send with the next request."""

    def handle(self, wire: str, reply: object) -> list[dict[str, Any]]:
        """Return the messages to append after a reply: the reply itself and the answers."""


@runtime_checkable
class AsyncAgentSession(Protocol):
    """A session that answers calls in the caller's event loop."""

    async def handle_async(self, wire: str, reply: object) -> list[dict[str, Any]]:
        """Return the messages to append after a reply: the reply itself and the answers."""


@dataclass(frozen=True, slots=True)
class _HandleReply:
    """A step of the loop: have the session answer the calls of a reply."""

    reply: dict[str, Any]


_AgentStep = AgentRequest | _HandleReply | AgentEvent
_AgentSteps = Generator[_AgentStep, Any, None]


class Agent:
    """A model that works on tasks with the tools of a session.

    The model is a client of `anthropic`, `openai` or `google-genai` and the name of a `model`, or a
    provider such as `OpenAIChat(client, model)`, which takes further options.

    `max_steps` limits the number of requests to the model, `max_tokens` the sum of their input and
    output tokens; beyond either, `AgentUnfinished` is raised.
    """

    def __init__(
        self,
        client: Any,
        session: AgentSession,
        *,
        model: str = "",
        system: str = "",
        max_steps: int = MAX_STEPS,
        max_tokens: int | None = None,
    ) -> None:
        for name, limit in (("max_steps", max_steps), ("max_tokens", max_tokens)):
            if limit is not None and (not isinstance(limit, int) or limit is True or limit < 1):
                raise InvalidConfig(f"{name} must be a whole number from 1, not {limit!r}")
        self._provider = _provider_from_client(client, model, for_async=False)
        self._async_provider = _provider_from_client(client, model, for_async=True)
        self._session = session
        self._system = system
        self._max_steps = max_steps
        self._max_tokens = max_tokens

    def run(self, task: str = "", messages: Sequence[Message] = ()) -> AgentFinished:
        """Work on a task and return the final event; `messages` are the conversation so far.

        Without a task, continue from the messages: after adding results of `pending` calls, or
        after `AgentUnfinished`.
        """
        return _last_event(self.stream(task, messages))

    async def run_async(self, task: str = "", messages: Sequence[Message] = ()) -> AgentFinished:
        """Do the same as `run` with an async client."""
        return _last_event([event async for event in self.stream_async(task, messages)])

    def stream(self, task: str = "", messages: Sequence[Message] = ()) -> Iterator[AgentEvent]:
        """Work on a task and yield the events as they happen; `AgentFinished` is the last."""
        steps = self._run_steps(self._initial_messages(task, messages))
        result: Any = None
        while (step := _next_step(steps, result)) is not None:
            result = None
            if isinstance(step, AgentRequest):
                result = self._provider.new_reply()
                tools = self._session.tools(self._provider.wire)
                response = self._provider.send(replace(step, tools=tools))
                if inspect.isawaitable(response):
                    _close_unawaited(response)
                    raise InvalidConfig("this client is async; use run_async or stream_async")
                if not self._provider.streams:
                    yield from _text_events(result.set_reply, response)
                    continue
                try:
                    for chunk in response:
                        yield from _text_events(result.add_chunk, chunk)
                finally:
                    response.close()
            elif isinstance(step, _HandleReply):
                result = self._session.handle(self._provider.wire, step.reply)
            else:
                yield step

    async def stream_async(self, task: str = "", messages: Sequence[Message] = ()) -> AsyncIterator[AgentEvent]:
        """Do the same as `stream` with an async client.

        Async functions run in the caller's event loop, other functions in threads.
        """
        steps = self._run_steps(self._initial_messages(task, messages))
        result: Any = None
        while (step := _next_step(steps, result)) is not None:
            result = None
            if isinstance(step, AgentRequest):
                result = self._async_provider.new_reply()
                tools = await self._list_tools_async()
                response = self._async_provider.send(replace(step, tools=tools))
                if not inspect.isawaitable(response):
                    raise InvalidConfig("this client is not async; use run or stream")
                response = await response
                if not self._provider.streams:
                    for event in _text_events(result.set_reply, response):
                        yield event
                    continue
                try:
                    async for chunk in response:
                        for event in _text_events(result.add_chunk, chunk):
                            yield event
                finally:
                    await (getattr(response, "aclose", None) or response.close)()
            elif isinstance(step, _HandleReply):
                result = await self._handle_reply_async(step.reply)
            else:
                yield step

    async def _handle_reply_async(self, reply: dict[str, Any]) -> list[Message]:
        wire, session = self._provider.wire, self._session
        if isinstance(session, AsyncAgentSession):
            return await session.handle_async(wire, reply)
        return await asyncio.to_thread(session.handle, wire, reply)

    async def _list_tools_async(self) -> list[Message]:
        wire, session = self._provider.wire, self._session
        # A session may have this method, to await an async check of access rights.
        tools_async = getattr(session, "tools_async", None)
        tools: list[Message] = await tools_async(wire) if tools_async else session.tools(wire)
        return tools

    def _initial_messages(self, task: str, messages: Sequence[Message]) -> list[Message]:
        if task:
            return [*messages, self._provider.user_message(task)]
        if not messages:
            raise InvalidConfig("nothing to work on; pass a task, or messages to continue from")
        return list(messages)

    def _run_steps(self, messages: list[Message]) -> _AgentSteps:
        wire_name = self._provider.wire
        wire = get_wire_format(wire_name)
        usage = AgentTokenUsage()
        reply: ReplyBuilder
        for step in range(1, self._max_steps + 1):
            reply = yield AgentRequest(messages, [], self._system)
            usage += reply.usage
            if reply.stop_reason not in ("done", "calls", "again"):
                raise AgentUnfinished(_describe_stop(reply.stop_reason), reply.text, messages)
            for call in wire.calls_from_wire(reply.reply):
                yield ToolCalled(call)
            added: list[Message] = yield _HandleReply(reply.reply)
            messages = [*messages, *added]
            pending = tuple(self._session.pending)
            if pending or reply.stop_reason == "done":
                yield AgentFinished(reply.text, messages, step, usage, pending)
                return
            for turn in wire.turns_from_wire(added):
                for past_call in turn:
                    if not past_call.is_hosted_search:
                        yield ToolAnswered(past_call.call, past_call.text)
            if self._max_tokens is not None and usage.total_tokens >= self._max_tokens:
                raise AgentUnfinished(
                    f"{usage.total_tokens:,} tokens of {self._max_tokens:,} are used and the model "
                    "is not done; raise max_tokens, or give a smaller task",
                    reply.text,
                    messages,
                )
        raise AgentUnfinished(
            f"the model is not done after {self._max_steps} steps; raise max_steps, or give a smaller task",
            reply.text,
            messages,
        )


def _describe_stop(reason: str) -> str:
    """Return the error text for a reply that ended early, with advice."""
    if reason in _LENGTH_STOPS:
        return f"the model stopped because of {reason}; raise its token limit, or shorten the task"
    cause = f"because of {reason}" if reason else "without a reason"
    return f"the model stopped {cause}; rephrase the task, or try again later"


def _next_step(steps: _AgentSteps, result: Any) -> _AgentStep | None:
    """Send the result of the last step and return the next step; None at the end."""
    try:
        return steps.send(result)
    except StopIteration:
        return None


def _text_events(add_to_reply: Callable[[dict[str, Any]], str], response: object) -> Iterator[TextDelta]:
    if text := add_to_reply(to_plain_dict(response, "a response of the client")):
        yield TextDelta(text)


def _last_event(events: Iterable[AgentEvent]) -> AgentFinished:
    *_, last = events
    assert isinstance(last, AgentFinished), "a stream ends with AgentFinished, or raises"
    return last


def _close_unawaited(awaitable: Any) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    close = getattr(awaitable, "close", None)
    if callable(close):
        close()


def _provider_from_client(client: Any, model: str, for_async: bool) -> Provider:
    """Return the provider of a client of `anthropic`, `openai` or `google-genai`.

    A client of `openai` gets the Chat Completions API, which compatible servers have too.
    """
    package = type(client).__module__.partition(".")[0]
    is_provider = hasattr(client, "new_reply")
    if not is_provider and package not in ("anthropic", "openai", "google"):
        raise InvalidConfig(
            f"an agent needs a client of anthropic, openai or google-genai, or a provider such as "
            f"OpenAIChat(client, model), not {type(client).__name__}"
        )
    if is_provider and model:
        raise InvalidConfig("the provider has a model already; leave out `model`")
    if is_provider:
        provider: Provider = client
        return provider
    if not model or not isinstance(model, str):
        raise InvalidConfig('a client needs a model; write Agent(client, session, model="…")')
    if package == "anthropic":
        return Anthropic(client, model)
    if package == "openai":
        return OpenAIChat(client, model)
    return Gemini(getattr(client, "aio", client) if for_async else client, model)
