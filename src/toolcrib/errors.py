"""Every error Toolcrib raises on purpose.

    ToolcribError
    ├── InvalidTool          a tool definition that cannot be used
    │   └── InvalidSchema    … because of its JSON Schema
    ├── DuplicateTool        two tools of one catalog share an id
    ├── UnknownTool          a tool was asked for that the catalog does not have
    ├── InvalidQuery         a question that cannot be read
    │   ├── InvalidPattern   … because it is not a valid regular expression
    │   └── QueryTooLong     … because it is over the stated limit
    ├── InvalidLimit         a limit or offset out of range
    ├── SearchTimeout        a search went over its time budget
    ├── EmbeddingFailed      an embedder did not give the vectors it was asked for
    ├── CallError            a call of a tool that gave no result
    │   ├── InvalidArguments … because its arguments do not fit the schema
    │   ├── ToolDisabled     … because the tool is switched off
    │   ├── CallRefused      … because a hook said no, or too many calls are running
    │   ├── CallTimeout      … because it took too long
    │   └── ToolFailed       … because the function raised an exception, which is its `__cause__`
    ├── Unfinished           an agent that stopped before its task was done
    ├── RequestFailed        a request through a gateway that is answered with an error
    ├── InvalidConfig        a configuration that cannot be used
    ├── InvalidMessage       a reply or a message history that cannot be read
    ├── InvalidCatalogFile   a catalog file that cannot be read; names line and field
    ├── InvalidCacheFile     a file of cached vectors that cannot be used
    ├── InvalidStore         a store of a gateway that cannot be opened, read or written
    ├── ServerUnavailable    a tool server that is not reachable, or did not answer
    ├── LoginFailed          a login to a tool server that came to nothing
    ├── GatewayUnreachable   no gateway answers where one was looked for
    ├── UnknownProfile       a profile that the configuration does not have
    └── InvalidEvalSet       an eval set that cannot be read; names file, line and field

Nothing found is not an error: it is a `SearchResult` without hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ToolcribError(Exception):
    """The root: catch this to catch everything Toolcrib raises on purpose."""


class InvalidTool(ToolcribError):
    """A tool definition that cannot be used."""


class InvalidSchema(InvalidTool):
    """A JSON Schema that cannot be used."""


class DuplicateTool(ToolcribError):
    """Two tools of one catalog share an id."""


class UnknownTool(ToolcribError):
    """A tool was asked for that the catalog does not have."""


class InvalidQuery(ToolcribError):
    """A question that cannot be read. `position` is the offending character's, where known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidPattern(InvalidQuery):
    """Not a valid regular expression."""


class QueryTooLong(InvalidQuery):
    """The query is over the stated limit."""


class InvalidLimit(ToolcribError):
    """A limit or offset out of range."""


class SearchTimeout(ToolcribError):
    """A search went over its time budget."""


class EmbeddingFailed(ToolcribError):
    """An embedder did not give the vectors it was asked for."""


class CallError(ToolcribError):
    """A call of a tool that gave no result. The message is written for a model to act on."""


class InvalidArguments(CallError):
    """The arguments do not fit the tool's schema."""


class ToolDisabled(CallError):
    """The tool is switched off."""


class CallRefused(CallError):
    """A call was not begun: a hook said no, or too many are running."""


class CallTimeout(CallError):
    """A call took too long and was given up."""


class ToolFailed(CallError):
    """The function raised an exception, which is the `__cause__` of this one."""


class AgentUnfinished(ToolcribError):
    """An agent stopped before its task was done.

    `text` is what the model said last; `messages` are what there is to go on with.
    """

    def __init__(
        self, message: str, text: str = "", messages: Sequence[dict[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.text = text
        self.messages = list(messages)


class RequestFailed(ToolcribError):
    """A request through a gateway that is answered with an error, as its API words them.

    `kind` is the API's word for the fault, where it does not follow from the HTTP `status`; `code`
    is what programs look at, where the API has one for it; `param` is the field at fault, where the
    API names it.
    """

    def __init__(
        self, message: str, status: int = 400, error_type: str = "", code: str = "", param: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.code = code
        self.param = param


class InvalidConfig(ToolcribError):
    """A configuration that cannot be used."""


class InvalidMessage(ToolcribError):
    """A reply or a message history that cannot be read."""


class InvalidCatalogFile(ToolcribError):
    """A catalog file that cannot be read."""


class InvalidEvalSet(ToolcribError):
    """An eval set that cannot be read."""


class InvalidCacheFile(ToolcribError):
    """A file of cached vectors that cannot be used."""


class InvalidStore(ToolcribError):
    """A store of a gateway that cannot be opened, read or written."""


class ServerUnavailable(ToolcribError):
    """A tool server that is not reachable, or did not answer."""


class LoginFailed(ToolcribError):
    """A login to a tool server that came to nothing."""


class GatewayUnreachable(ToolcribError):
    """No gateway answers where one was looked for, or not as one does."""


class UnknownProfile(ToolcribError):
    """A profile that the configuration does not have."""
