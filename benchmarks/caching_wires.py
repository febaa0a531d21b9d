"""The formats of the four APIs, as the client and the scripted model of `caching` use them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib import Tool
from toolcrib.core.prompts import PREFETCHED_TOOLS
from toolcrib.core.tool_names import public_name

RESULT = "The tool answered with a line of text about what was asked for. " * 16

Body = dict[str, Any]


@dataclass(frozen=True)
class View:
    """What the model sees: listed tools, results of searches, and the last message."""

    listed: frozenset[str]
    searches: Sequence[Body]
    question: str
    results: Sequence[str]
    prefetched: Sequence[Body]


class Wire(ABC):
    """The format of one API, as the client and as the model use it."""

    name: str
    path: str
    history: str

    def __init__(self) -> None:
        self._tool_pieces: dict[int, tuple[Body, str]] = {}

    def body(self, history: Sequence[Body], tools: Sequence[Any]) -> Body:
        """Return a request."""
        return {"model": "m", "max_tokens": 99, self.history: list(history), "tools": list(tools)}

    def question(self, text: str) -> Body:
        """Return a message of the user."""
        return {"role": "user", "content": text}

    def listed(self, body: Body) -> Sequence[Body]:
        """Return the tools of a request."""
        return body["tools"]  # type: ignore[no-any-return]

    def pieces(self, body: Body) -> Iterator[str]:
        """Yield the parts of a prompt in order: tools, then messages."""
        for tool in self.listed(body):
            yield self._tool_piece(tool)
        for message in body[self.history]:
            yield from self.message_pieces(message)

    def _tool_piece(self, tool: Body) -> str:
        # The definition is kept with its text, so that its identity is not used again.
        if id(tool) not in self._tool_pieces:
            self._tool_pieces[id(tool)] = (tool, json.dumps(tool, ensure_ascii=False))
        return self._tool_pieces[id(tool)][1]

    def message_pieces(self, message: Body) -> Iterator[str]:
        """Yield the parts of one message."""
        yield json.dumps(message, ensure_ascii=False)

    @abstractmethod
    def tool(self, tool: Tool) -> Body:
        """Return the definition of a tool."""

    @abstractmethod
    def view(self, body: Body) -> View:
        """Return what the model sees."""

    @abstractmethod
    def reply(self, text: str, call: tuple[str, Body] | None, id: str) -> Body:
        """Return a response of the model with a text or a call."""

    @abstractmethod
    def accept(self, history: list[Body], response: Body) -> str:
        """Append a response to the client's history, and return the id of its call, if it has one."""

    @abstractmethod
    def result(self, id: str) -> Body:
        """Return the client's answer to a call."""


def _view(names: Sequence[str], results: Sequence[str], texts: Sequence[str], last: Sequence[str]) -> View:
    found = [json.loads(text) for text in results if text.startswith('{"found"')]
    start = PREFETCHED_TOOLS.partition("{")[0]
    parts = [text.partition(start) for text in texts]
    questions = [question.strip() for question, _, _ in parts if question.strip()]
    prefetched = [tool for _, _, rest in parts if rest for tool in json.loads(rest[rest.index("[") :])]
    return View(frozenset(names), found, questions[-1], last, prefetched)


class Messages(Wire):
    """Anthropic's Messages API."""

    name, path, history = "Messages", "/v1/messages", "messages"

    def tool(self, tool: Tool) -> Body:
        return {"name": public_name(tool), "description": tool.description, "input_schema": _schema(tool)}

    def message_pieces(self, message: Body) -> Iterator[str]:
        content = message["content"]
        for block in content if isinstance(content, list) else [content]:
            yield json.dumps([message["role"], block], ensure_ascii=False)

    def view(self, body: Body) -> View:
        blocks = [_blocks(message) for message in body["messages"] if message["role"] == "user"]
        texts = [block["text"] for message in blocks for block in message if block["type"] == "text"]
        results = [[block["content"] for block in message if block["type"] == "tool_result"] for message in blocks]
        names = [tool["name"] for tool in body["tools"]]
        return _view(names, [text for message in results for text in message], texts, results[-1])

    def reply(self, text: str, call: tuple[str, Body] | None, id: str) -> Body:
        block: Body = {"type": "text", "text": text}
        if call:
            block = {"type": "tool_use", "id": f"toolu_{id}", "name": call[0], "input": call[1]}
        stop = "tool_use" if call else "end_turn"
        return {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": stop,
            "usage": {},
        }

    def accept(self, history: list[Body], response: Body) -> str:
        history.append({"role": "assistant", "content": response["content"]})
        return next((block["id"] for block in response["content"] if block["type"] == "tool_use"), "")

    def result(self, id: str) -> Body:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": RESULT}]}


class Chat(Wire):
    """OpenAI's Chat Completions."""

    name, path, history = "Chat Completions", "/v1/chat/completions", "messages"

    def tool(self, tool: Tool) -> Body:
        function = {"name": public_name(tool), "description": tool.description, "parameters": _schema(tool)}
        return {"type": "function", "function": function}

    def view(self, body: Body) -> View:
        messages = body["messages"]
        results = [message["content"] for message in messages if message["role"] == "tool"]
        last = results[-1:] if messages[-1]["role"] == "tool" else []
        texts = [message["content"] for message in messages if message["role"] == "user"]
        return _view([tool["function"]["name"] for tool in body["tools"]], results, texts, last)

    def reply(self, text: str, call: tuple[str, Body] | None, id: str) -> Body:
        message: Body = {"role": "assistant", "content": text or None}
        if call:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            message["tool_calls"] = [{"id": f"call_{id}", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    def accept(self, history: list[Body], response: Body) -> str:
        message = response["choices"][0]["message"]
        history.append(message)
        return next((str(call["id"]) for call in message.get("tool_calls", [])), "")

    def result(self, id: str) -> Body:
        return {"role": "tool", "tool_call_id": id, "content": RESULT}


class Responses(Wire):
    """OpenAI's Responses."""

    name, path, history = "Responses", "/v1/responses", "input"

    def tool(self, tool: Tool) -> Body:
        fields = {"name": public_name(tool), "description": tool.description, "parameters": _schema(tool)}
        return {"type": "function", **fields, "strict": False}

    def view(self, body: Body) -> View:
        items = body["input"]
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        last = results[-1:] if items[-1].get("type") == "function_call_output" else []
        texts = [item["content"] for item in items if item.get("role") == "user"]
        return _view([tool["name"] for tool in body["tools"]], results, texts, last)

    def reply(self, text: str, call: tuple[str, Body] | None, id: str) -> Body:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item: Body = {
            "type": "message",
            "id": f"msg_{id}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        if call:
            fields = {"name": call[0], "arguments": json.dumps(call[1])}
            item = {"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}", "status": "completed", **fields}
        return {"id": f"resp_{id}", "object": "response", "status": "completed", "model": "m", "output": [item]}

    def accept(self, history: list[Body], response: Body) -> str:
        history += response["output"]
        return next((item["call_id"] for item in response["output"] if item["type"] == "function_call"), "")

    def result(self, id: str) -> Body:
        return {"type": "function_call_output", "call_id": id, "output": RESULT}


class Gemini(Wire):
    """Google's generateContent."""

    name, path, history = "Gemini", "/v1beta/models/m:generateContent", "contents"

    def body(self, history: Sequence[Body], tools: Sequence[Any]) -> Body:
        return {"contents": list(history), "tools": [{"functionDeclarations": list(tools)}]}

    def question(self, text: str) -> Body:
        return {"role": "user", "parts": [{"text": text}]}

    def listed(self, body: Body) -> Sequence[Body]:
        return [tool for each in body["tools"] for tool in each["functionDeclarations"]]

    def tool(self, tool: Tool) -> Body:
        return {"name": public_name(tool), "description": tool.description, "parametersJsonSchema": _schema(tool)}

    def message_pieces(self, message: Body) -> Iterator[str]:
        for part in message["parts"]:
            yield json.dumps([message["role"], part], ensure_ascii=False)

    def view(self, body: Body) -> View:
        parts = [message["parts"] for message in body["contents"] if message["role"] == "user"]
        texts = [part["text"] for each in parts for part in each if "text" in part]
        results = [[_result_text(part) for part in each if "functionResponse" in part] for each in parts]
        names = [tool["name"] for tool in self.listed(body)]
        return _view(names, [text for each in results for text in each], texts, results[-1])

    def reply(self, text: str, call: tuple[str, Body] | None, id: str) -> Body:
        part: Body = {"text": text}
        if call:
            part = {"functionCall": {"id": f"call_{id}", "name": call[0], "args": call[1]}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "modelVersion": "m", "responseId": id}

    def accept(self, history: list[Body], response: Body) -> str:
        content = response["candidates"][0]["content"]
        history.append(content)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        self._names.update((call["id"], call["name"]) for call in calls)
        return str(calls[0]["id"]) if calls else ""

    def __init__(self) -> None:
        super().__init__()
        # The names of the called functions, which their results repeat.
        self._names: dict[str, str] = {}

    def result(self, id: str) -> Body:
        response = {"id": id, "name": self._names[id], "response": {"output": RESULT}}
        return {"role": "user", "parts": [{"functionResponse": response}]}


def _result_text(part: Body) -> str:
    response = part["functionResponse"]["response"]
    value = response.get("output", response)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _schema(tool: Tool) -> Body:
    return {"type": "object", **tool.input_schema}


def _blocks(message: Body) -> list[Body]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
