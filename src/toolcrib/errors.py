"""The exceptions of Toolcrib.

    ToolcribError            the base class: catch it to catch all of them
    ├── InvalidTool          a tool definition is invalid
    │   └── InvalidSchema    … because of its JSON Schema
    ├── DuplicateTool        two tools of one catalog have the same id
    ├── UnknownTool          no tool has this name or id
    ├── InvalidQuery         a query cannot be parsed
    │   ├── InvalidPattern   … because it is not a valid regular expression
    │   └── QueryTooLong     … because it is over the length limit
    ├── InvalidLimit         a limit or offset is out of range
    ├── SearchTimeout        a search exceeded its time budget
    ├── EmbeddingFailed      an embedder raised an error or returned invalid vectors
    ├── EnrichmentFailed     a model could not write requests for a tool
    ├── CallError            a call of a tool has no result
    │   ├── InvalidArguments … because its arguments do not match the schema
    │   ├── ToolDisabled     … because the tool is disabled
    │   ├── CallRefused      … because a hook refused it, or too many calls are running
    │   │   └── QuotaExceeded … because its access profile has used its quota
    │   ├── CallTimeout      … because it took too long
    │   ├── ScriptFailed     … because the script of code mode failed
    │   └── ToolFailed       … because the function raised an exception, its `__cause__`
    ├── AgentUnfinished      an agent stopped before its task was done
    ├── RequestFailed        the LLM gateway answers a request with an error
    ├── InvalidConfig        a configuration or an argument is invalid
    ├── InvalidMessage       a reply or a message history cannot be parsed
    ├── InvalidCatalogFile   a catalog file cannot be read; names line and field
    ├── InvalidCacheFile     a file of cached vectors cannot be used
    ├── InvalidStore         the store of a gateway cannot be opened, read or written
    │   └── StoreUnavailable     the database cannot be reached at the moment
    ├── ServerUnavailable    a tool server is unreachable, or does not respond
    ├── LoginFailed          a login to a tool server failed
    ├── GatewayUnreachable   no gateway responds at an address
    ├── UnknownProfile       the configuration has no such access profile
    └── InvalidEvalSet       an eval set cannot be read; names file, line and field

A search without matches is not an error: it returns a `SearchResult` without hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ToolcribError(Exception):
    """The base class of all exceptions that Toolcrib raises on purpose."""


class InvalidTool(ToolcribError):
    """A tool definition is invalid."""


class InvalidSchema(InvalidTool):
    """A JSON Schema is invalid."""


class DuplicateTool(ToolcribError):
    """Two tools of one catalog have the same id."""


class UnknownTool(ToolcribError, ValueError):
    """No tool has this name or id."""


class InvalidQuery(ToolcribError):
    """A query cannot be parsed. `position` is that of the invalid character, if known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidPattern(InvalidQuery):
    """A query is not a valid regular expression."""


class QueryTooLong(InvalidQuery):
    """A query is over the length limit."""


class InvalidLimit(ToolcribError):
    """A limit or offset is out of range."""


class SearchTimeout(ToolcribError):
    """A search exceeded its time budget."""


class EmbeddingFailed(ToolcribError):
    """An embedder raised an error or returned invalid vectors."""


class EnrichmentFailed(ToolcribError):
    """A model could not write requests for a tool."""


class CallError(ToolcribError):
    """A call of a tool has no result. The message is written for a model to act on."""


class InvalidArguments(CallError):
    """The arguments do not match the tool's schema."""


class ToolDisabled(CallError):
    """The tool is disabled."""


class CallRefused(CallError):
    """A call was not started: a hook refused it, or too many calls are running."""


class QuotaExceeded(CallRefused):
    """An access profile has used its quota; a request may succeed after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class CallTimeout(CallError):
    """A call took too long."""


class ScriptFailed(CallError):
    """A script of code mode failed, or exceeded a limit."""


class ToolFailed(CallError):
    """The function raised an exception, which is the `__cause__` of this one."""


class AgentUnfinished(ToolcribError):
    """An agent stopped before its task was done.

    `text` is the last text of the model, `messages` are the messages to continue with.
    """

    def __init__(self, message: str, text: str = "", messages: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.text = text
        self.messages = list(messages)


class RequestFailed(ToolcribError):
    """The LLM gateway answers a request with an error in the format of its API.

    `error_type` is the API's name of the error, if it does not follow from the HTTP `status`; `code`
    is the API's code for programs, `param` the field with the error; both may be empty.
    """

    def __init__(self, message: str, status: int = 400, error_type: str = "", code: str = "", param: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.code = code
        self.param = param


class InvalidConfig(ToolcribError):
    """A configuration or an argument is invalid."""


class InvalidMessage(ToolcribError):
    """A reply or a message history cannot be parsed."""


class InvalidCatalogFile(ToolcribError):
    """A catalog file cannot be read."""


class InvalidEvalSet(ToolcribError):
    """An eval set cannot be read."""


class InvalidCacheFile(ToolcribError):
    """A file of cached vectors cannot be used."""


class InvalidStore(ToolcribError):
    """The store of a gateway cannot be opened, read or written."""


class StoreUnavailable(InvalidStore):
    """The database of a gateway cannot be reached at the moment."""


class ServerUnavailable(ToolcribError):
    """A tool server is unreachable, or does not respond."""


class LoginFailed(ToolcribError):
    """A login to a tool server failed."""


class GatewayUnreachable(ToolcribError):
    """No gateway responds at an address."""


class UnknownProfile(ToolcribError):
    """The configuration has no such access profile."""
