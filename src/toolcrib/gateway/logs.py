"""Logs of a gateway: JSON lines or plain text, with the id of the request, without secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Final
from urllib.parse import quote

from toolcrib.safety.hidden_text import escape_invisible

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered."""

MAX_MESSAGE_CHARS: Final = 8_000
# Shorter ones are words that stand in many a log line.
MIN_SECRET_CHARS: Final = 6
REDACTED: Final = "[redacted]"

_NAMED: Final = (
    r"(?:authorization|proxy-authorization|cookie|set-cookie|x-api-key|api[_-]?key|apikey|"
    r"access[_-]?token|refresh[_-]?token|auth[_-]?token|id[_-]?token|bearer[_-]?token|token|"
    r"client[_-]?secret|secret|secret[_-]?key|private[_-]?key|password|passwd|pwd|signature|sig)"
)
_PATTERNS: Final = (
    # Said by name: `api_key=…`, `"password": "…"`, `Authorization: Basic …`.
    (
        re.compile(
            rf"(\b\w{{0,40}}{_NAMED}\b[\\]?[\"']?\s{{0,3}}[:=]\s{{0,3}}[\\]?[\"']?(?:(?:bearer|basic|token|digest)\s+)?)"
            r"[^\s\"',;&}\])\\]{3,8000}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w\-.~+/=]{8,8000}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"(://[^\s/:@]{0,200}:)[^\s/@]{1,500}(?=@)"), rf"\1{REDACTED}"),
    # Known by how they begin.
    (
        re.compile(
            r"\b(?:sk-[\w-]{16,300}|(?:ghp|gho|ghu|ghs|ghr)_\w{20,300}|github_pat_\w{20,300}|"
            r"glpat-[\w-]{16,300}|xox[abeoprs]-[\w-]{10,300}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,100}|"
            r"hf_\w{20,100}|npm_\w{20,100}|pypi-[\w-]{20,500}|"
            r"eyJ[\w-]{8,4000}\.[\w-]{4,8000}\.[\w-]{0,4000})"
        ),
        REDACTED,
    ),
)
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class Redactor:
    """Takes secrets out of texts: those it was told of, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        spelled = (
            known
            | {quote(one, safe="") for one in known}
            | {json.dumps(one)[1:-1] for one in known}
        )
        longest_first = sorted(spelled, key=lambda one: (-len(one), one))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if spelled else None

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._known:
            text = self._known.sub(REDACTED, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


class _RedactingFormatter(logging.Formatter):
    """The fields of a record, each without secrets."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def _message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:
            # A wrong number of arguments must not cost the line, nor what it answers.
            text = str(record.msg)
        # Cut after it is redacted: half a secret would not be known.
        return _truncate(self._redact(text[: 2 * MAX_MESSAGE_CHARS]))

    def _error(self, record: logging.LogRecord) -> str:
        told = [self.formatException(record.exc_info)] if record.exc_info else []
        told += [record.stack_info] if record.stack_info else []
        return self._redact("\n".join(told))[-2 * MAX_MESSAGE_CHARS :]

    def _extra_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        found = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if request_id.get():
            found.setdefault("request_id", request_id.get())
        return {name: self._redact_value(name, value) for name, value in found.items()}

    def _redact_value(self, name: str, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        # Told with its name, so that `token: …` is known as one.
        prefix = f"{name}: "
        return _truncate(self._redact(f"{prefix}{value}").removeprefix(prefix))


class JsonFormatter(_RedactingFormatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._message(record),
            **self._extra_fields(record),
        }
        if error := self._error(record):
            line["error"] = error
        return json.dumps(line, default=str)


class PlainFormatter(_RedactingFormatter):
    """A line for people; nothing that a stranger sent can begin another one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, and below it the traceback, if there is one."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        more = "".join(f" {name}={value}" for name, value in self._extra_fields(record).items())
        message = escape_invisible(f"{self._message(record)}{more}", 2 * MAX_MESSAGE_CHARS)
        line = f"{time} {record.levelname.lower():7} {message}"
        told = [f"  {escape_invisible(one, 1_000)}" for one in self._error(record).splitlines()]
        return "\n".join([line, *told])


class _SilentStreamHandler(logging.StreamHandler[IO[str]]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Lose the line: the usual complaint would print it as it is, secrets and all."""


def start_logging(
    stream: IO[str],
    *,
    as_json: bool = False,
    level: int = logging.INFO,
    secrets: Iterable[str] = (),
) -> logging.Handler:
    """Send every log line of this process to a stream; gives the handler, to remove it again."""
    handler = _SilentStreamHandler(stream)
    redact = Redactor(secrets)
    handler.setFormatter(JsonFormatter(redact) if as_json else PlainFormatter(redact))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def _truncate(text: str) -> str:
    left = len(text) - MAX_MESSAGE_CHARS
    return text if left <= 0 else f"{text[:MAX_MESSAGE_CHARS]}… ({left:,} characters more)"
