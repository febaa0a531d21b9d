"""Agent: asks a model, answers its calls, and asks again, until its task is done.

The loop is one generator, `_story`, that does nothing itself: it says what it needs done and is sent
what came of it. `stream` does it for a sync client, `stream_async` for an async one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from toolcrib.adapters.plain_json import to_plain_dict
from toolcrib.adapters.wire_formats import get_wire_format
from toolcrib.agent.events import AgentEvent, AgentFinished, TextDelta, ToolAnswered, ToolCalled
from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, Message, Provider, ReplyBuilder
from toolcrib.errors import AgentUnfinished, InvalidConfig
from toolcrib.session.turn import ToolTask

MAX_STEPS: Final = 25

# What the providers say where a reply did not fit.
_LENGTH_STOPS: Final = (
    "max_tokens",
    "model_context_window_exceeded",
    "length",
    "max_output_tokens",
    "MAX_TOKENS",
)


class AgentSession(Protocol):
    """Who says which tools there are and answers calls: a session of a `Toolcrib`."""

    @property
    def pending(self) -> Sequence[ToolTask]:
        """Calls that are not ours to answer."""

    def tools(self, wire: str) -> list[dict[str, Any]]:
        """The tools to send with the next request."""

    def handle(self, wire: str, reply: object) -> list[dict[str, Any]]:
        """What to add to the messages after a reply."""


@runtime_checkable
class AsyncAgentSession(Protocol):
    """A dialogue that answers calls in the event loop of whoever asks."""

    async def handle_async(self, wire: str, reply: object) -> list[dict[str, Any]]:
        """What to add to the messages after a reply."""


@dataclass(frozen=True, slots=True)
class _HandleReply:
    """Have the calls of a reply answered, which may take a while."""

    reply: dict[str, Any]


_AgentSteps = Generator[AgentRequest | _HandleReply | AgentEvent, Any, None]


class Agent:
    """A model at work with the tools of a dialogue.

    `max_steps` is how often the model is asked, `max_tokens` how many tokens all of it may cost, in
    and out; beyond either, `Unfinished` is raised.
    """

    def __init__(
        self,
        provider: Provider,
        session: AgentSession,
        *,
        system: str = "",
        max_steps: int = MAX_STEPS,
        max_tokens: int | None = None,
    ) -> None:
        for name, most in (("max_steps", max_steps), ("max_tokens", max_tokens)):
            if most is not None and (not isinstance(most, int) or most is True or most < 1):
                raise InvalidConfig(f"{name} is a whole number from 1, not {most!r}")
        self._provider = provider
        self._session = session
        self._system = system
        self._max_steps = max_steps
        self._max_tokens = max_tokens

    def run(self, task: str = "", messages: Sequence[Message] = ()) -> AgentFinished:
        """Work on a task; `messages` are what was said before. Gives the end of it.

        Without a task, the messages are gone on with as they are: after results of `pending` calls,
        or after `Unfinished`.
        """
        return _last_event(self.stream(task, messages))

    async def run_async(self, task: str = "", messages: Sequence[Message] = ()) -> AgentFinished:
        """The same with an async client."""
        return _last_event([event async for event in self.stream_async(task, messages)])

    def stream(self, task: str = "", messages: Sequence[Message] = ()) -> Iterator[AgentEvent]:
        """Work on a task, and tell everything as it happens; `Finished` comes last."""
        story = self._run_steps(self._initial_messages(task, messages))
        came: Any = None
        while (step := _next_step(story, came)) is not None:
            came = None
            if isinstance(step, AgentRequest):
                came = self._provider.new_reply()
                given = self._provider.send(step)
                if inspect.isawaitable(given):
                    _close_unawaited(given)
                    raise InvalidConfig("this client is async; use run_async or stream_async")
                if not self._provider.streams:
                    yield from _text_events(came.set_reply, given)
                    continue
                try:
                    for chunk in given:
                        yield from _text_events(came.add_chunk, chunk)
                finally:
                    given.close()
            elif isinstance(step, _HandleReply):
                came = self._session.handle(self._provider.wire, step.reply)
            else:
                yield step

    async def stream_async(
        self, task: str = "", messages: Sequence[Message] = ()
    ) -> AsyncIterator[AgentEvent]:
        """The same with an async client. Async functions run on its loop, others beside it."""
        story = self._run_steps(self._initial_messages(task, messages))
        came: Any = None
        while (step := _next_step(story, came)) is not None:
            came = None
            if isinstance(step, AgentRequest):
                came = self._provider.new_reply()
                given = self._provider.send(step)
                if not inspect.isawaitable(given):
                    raise InvalidConfig("this client is not async; use run or stream")
                given = await given
                if not self._provider.streams:
                    for event in _text_events(came.set_reply, given):
                        yield event
                    continue
                try:
                    async for chunk in given:
                        for event in _text_events(came.add_chunk, chunk):
                            yield event
                finally:
                    await (getattr(given, "aclose", None) or given.close)()
            elif isinstance(step, _HandleReply):
                came = await self._handle_reply_async(step.reply)
            else:
                yield step

    async def _handle_reply_async(self, reply: dict[str, Any]) -> list[Message]:
        wire, dialogue = self._provider.wire, self._session
        if isinstance(dialogue, AsyncAgentSession):
            return await dialogue.handle_async(wire, reply)
        return await asyncio.to_thread(dialogue.handle, wire, reply)

    def _initial_messages(self, task: str, messages: Sequence[Message]) -> list[Message]:
        if task:
            return [*messages, self._provider.user_message(task)]
        if not messages:
            raise InvalidConfig(
                "there is nothing to work on; give a task, or messages to go on with"
            )
        return list(messages)

    def _run_steps(self, messages: list[Message]) -> _AgentSteps:
        wire = get_wire_format(self._provider.wire)
        spent = AgentTokenUsage()
        assembly: ReplyBuilder
        for step in range(1, self._max_steps + 1):
            assembly = yield AgentRequest(messages, self._session.tools(wire.name), self._system)
            spent += assembly.usage
            if assembly.stop_reason not in ("done", "calls", "again"):
                raise AgentUnfinished(_describe_stop(assembly.stop_reason), assembly.text, messages)
            for call in wire.calls_from_wire(assembly.reply):
                yield ToolCalled(call)
            added: list[Message] = yield _HandleReply(assembly.reply)
            messages = [*messages, *added]
            pending = tuple(self._session.pending)
            if pending or assembly.stop_reason == "done":
                yield AgentFinished(assembly.text, messages, step, spent, pending)
                return
            for exchange in _exchanges(wire.turns_from_wire(added)):
                if not exchange.is_hosted_search:
                    yield ToolAnswered(exchange.call, exchange.text)
            if self._max_tokens is not None and spent.total_tokens >= self._max_tokens:
                raise AgentUnfinished(
                    f"{spent.total_tokens:,} tokens are spent, of {self._max_tokens:,}, and the model is "
                    "not done; allow more, or give a smaller task",
                    assembly.text,
                    messages,
                )
        raise AgentUnfinished(
            f"the model was asked {self._max_steps} times and is not done; "
            "allow more steps, or give a smaller task",
            assembly.text,
            messages,
        )


def _describe_stop(stop: str) -> str:
    """Why a reply is no end, and what to do about it."""
    if stop in _LENGTH_STOPS:
        return f"the model stopped because of {stop}; give it more room, or a smaller task"
    reason = f"because of {stop}" if stop else "without saying why"
    return f"the model stopped {reason}; ask in other words, or try again later"


def _next_step(story: _AgentSteps, came: Any) -> AgentRequest | _HandleReply | AgentEvent | None:
    """The next step of a story, None at its end."""
    try:
        return story.send(came)
    except StopIteration:
        return None


def _text_events(take: Callable[[dict[str, Any]], str], given: object) -> Iterator[TextDelta]:
    if words := take(to_plain_dict(given, "what the client returned")):
        yield TextDelta(words)


def _exchanges(turns: Iterable[Iterable[Any]]) -> Iterator[Any]:
    return (exchange for turn in turns for exchange in turn)


def _last_event(events: Iterable[AgentEvent]) -> AgentFinished:
    *_, last = events
    assert isinstance(last, AgentFinished), "a story ends with it, or raises"
    return last


def _close_unawaited(awaitable: Any) -> None:
    """Let go of a coroutine that will not be awaited, without a warning."""
    close = getattr(awaitable, "close", None)
    if callable(close):
        close()
