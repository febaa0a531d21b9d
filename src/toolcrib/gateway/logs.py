"""Log formatters: JSON lines or plain text, with the request id and without secrets."""

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
"""The id of the current request."""

MAX_MESSAGE_CHARS: Final = 8_000
# Shorter secrets could be common words.
MIN_SECRET_CHARS: Final = 6
REDACTED: Final = "[redacted]"

_SECRET_NAMES: Final = (
    r"(?:authorization|proxy-authorization|cookie|set-cookie|x-api-key|api[_-]?key|apikey|"
    r"access[_-]?token|refresh[_-]?token|auth[_-]?token|id[_-]?token|bearer[_-]?token|token|"
    r"client[_-]?secret|secret|secret[_-]?key|private[_-]?key|password|passwd|pwd|signature|sig)"
)
_SCHEMES: Final = r"(?:bearer|basic|token|digest)"
_PATTERNS: Final = (
    # A name and a value: `api_key=…`, `"password": "…"`, `Authorization: Basic …`.
    (
        re.compile(
            rf"(\b\w{{0,40}}{_SECRET_NAMES}\b[\\]?[\"']?\s{{0,3}}[:=]\s{{0,3}}[\\]?[\"']?"
            # What is redacted already is left as it is.
            rf"(?!(?:{_SCHEMES}\s+)?{re.escape(REDACTED)})(?:{_SCHEMES}\s+)?)"
            r"[^\s\"',;&}\])\\]{3,8000}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w\-.~+/=]{8,8000}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"(://[^\s/:@]{0,200}:)[^\s/@]{1,500}(?=@)"), rf"\1{REDACTED}"),
    # Keys with a known prefix.
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
_SECRET_NAME: Final = re.compile(rf"(?:^|[_.-]){_SECRET_NAMES}$", re.IGNORECASE)
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def is_secret_name(name: str) -> bool:
    """Return whether a parameter with this name holds a secret: `password`, `apiKey`, `db_token`."""
    return _SECRET_NAME.search(_CAMEL_CASE.sub("_", name[:200])) is not None


class Redactor:
    """Removes known secrets and texts that look like secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        spellings = (
            known | {quote(secret, safe="") for secret in known} | {json.dumps(secret)[1:-1] for secret in known}
        )
        longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if spellings else None

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known:
            text = self._known.sub(REDACTED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text


class _RedactingFormatter(logging.Formatter):
    """Formats the fields of a record without secrets."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def _message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:
            # Log the line also if it has the wrong number of arguments.
            text = str(record.msg)
        # Redact first, because half a secret would not be recognized.
        return _truncate(self._redact(text[: 2 * MAX_MESSAGE_CHARS]))

    def _error(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        parts += [record.stack_info] if record.stack_info else []
        return self._redact("\n".join(parts))[-2 * MAX_MESSAGE_CHARS :]

    def _extra_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if request_id.get():
            extra.setdefault("request_id", request_id.get())
        return {name: self._redact_value(name, value) for name, value in extra.items()}

    def _redact_value(self, name: str, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        # With its name, because `token: …` is recognized as a secret.
        prefix = f"{name}: "
        return _truncate(self._redact(f"{prefix}{value}").removeprefix(prefix))


class JsonFormatter(_RedactingFormatter):
    """Formats a record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
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
    """Formats a record as a readable line. Logged text cannot start a new line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, followed by its traceback."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        more = "".join(f" {name}={value}" for name, value in self._extra_fields(record).items())
        message = escape_invisible(f"{self._message(record)}{more}", 2 * MAX_MESSAGE_CHARS)
        line = f"{time} {record.levelname.lower():7} {message}"
        traceback = [f"  {escape_invisible(frame, 1_000)}" for frame in self._error(record).splitlines()]
        return "\n".join([line, *traceback])


class _SilentStreamHandler(logging.StreamHandler[IO[str]]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the line. The default implementation would print it with its secrets."""


def start_logging(
    stream: IO[str], *, as_json: bool = False, level: int = logging.INFO, secrets: Iterable[str] = ()
) -> logging.Handler:
    """Write all log lines of this process to a stream and return the handler."""
    handler = _SilentStreamHandler(stream)
    redact = Redactor(secrets)
    handler.setFormatter(JsonFormatter(redact) if as_json else PlainFormatter(redact))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def _truncate(text: str) -> str:
    extra = len(text) - MAX_MESSAGE_CHARS
    return text if extra <= 0 else f"{text[:MAX_MESSAGE_CHARS]}… ({extra:,} characters more)"
