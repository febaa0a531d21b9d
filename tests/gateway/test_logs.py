"""Log lines have the request id and contain no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from toolcrib.gateway.logs import MAX_MESSAGE_CHARS, REDACTED, JsonFormatter, Redactor, request_id, start_logging

SECRET = 'hunter2/"secret"&more'
LOG = logging.getLogger("toolcrib.test")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(params=[True, False], ids=["json", "plain"])
def either(request: pytest.FixtureRequest, stream: io.StringIO) -> Iterator[io.StringIO]:
    yield from _logging(stream, bool(request.param))


@pytest.fixture
def as_json(stream: io.StringIO) -> Iterator[io.StringIO]:
    yield from _logging(stream, True)


@pytest.fixture
def as_text(stream: io.StringIO) -> Iterator[io.StringIO]:
    yield from _logging(stream, False)


def _logging(stream: io.StringIO, as_json: bool) -> Iterator[io.StringIO]:
    level = logging.getLogger().level
    handler = start_logging(stream, as_json=as_json, secrets=[SECRET, "abc"])
    yield stream
    logging.getLogger().removeHandler(handler)
    logging.getLogger().setLevel(level)


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line_has_the_request_id(as_json: io.StringIO) -> None:
    token = request_id.set("id-7")
    LOG.warning("server %s is down", "mail", extra={"tries": 3, "place": ("a", 1)})
    request_id.reset(token)
    LOG.info("later")
    first, second = _lines(as_json)
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "toolcrib.test",
        "message": "server mail is down",
        "request_id": "id-7",
        "tries": 3,
        "place": "('a', 1)",
    }
    assert "request_id" not in second


@pytest.mark.parametrize(
    "message",
    [
        f"started with {SECRET}",
        "GET /x?token=hunter2secret&page=1",
        "x-api-key: hunter2secret",
        "Authorization: Bearer hunter2secret",
        "authorization=Basic hunter2secret",
        "{'Authorization': 'Bearer hunter2secret'}",
        '{"api_key": "hunter2secret", "page": 1}',
        '{\\"password\\": \\"hunter2secret\\"}',
        "env GITHUB_TOKEN=hunter2secret npx",
        "client_secret = hunter2secret",
        "bearer hunter2secret",
        "postgres://me:hunter2secret@host/db",
        "the key sk-ant-api03-hunter2secret was refused",
        "ghp_hunter2secrethunter2secret",
        "eyJhbGciOiJI.hunter2secret.c2ln",
        "https://h/x?access_token=hunter2secret",
        "/mcp?key=" + "hunter2%2F%22secret%22%26more",
        json.dumps({"note": SECRET}),
    ],
)
def test_secrets_are_redacted(either: io.StringIO, message: str) -> None:
    LOG.info(message)
    LOG.info("said: %s", message)
    LOG.info("more", extra={"detail": message})
    try:
        raise ValueError(message)
    except ValueError:
        LOG.exception("failed")
    log_text = either.getvalue()
    assert "hunter2" not in log_text
    assert log_text.count("[redacted]") >= 4


def test_extra_field_with_a_secret_name_is_redacted(either: io.StringIO) -> None:
    LOG.info("called", extra={"api_key": "hunter2secret", "tokens": 12, "tool": "get_token"})
    log_text = either.getvalue()
    assert "hunter2" not in log_text
    assert "12" in log_text
    assert "get_token" in log_text


def test_ordinary_text_is_unchanged(as_json: io.StringIO) -> None:
    messages = [
        "3 tokens saved; the secretary of abc has 12 keys",
        "tool get_secret_value of server vault is new",
        "GET /mcp 200, basic auth is off",
        "https://example.org/a:b/c?page=2",
    ]
    for message in messages:
        LOG.info(message)
    assert [line["message"] for line in _lines(as_json)] == messages


def test_logged_text_cannot_start_a_new_line(either: io.StringIO) -> None:
    LOG.info("name: %s", "x\n12:00:00 info    forged\x1b[2J\u2028more")
    assert len(either.getvalue().splitlines()) == 1
    assert "\x1b" not in either.getvalue()


def test_traceback_is_indented_below_its_line(as_text: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond \x1b[0m")
    except ValueError:
        LOG.exception("failed")
    first, *rest = as_text.getvalue().splitlines()
    assert first.endswith("error   failed")
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in as_text.getvalue()


def test_long_line_is_truncated(as_json: io.StringIO) -> None:
    LOG.info("x" * 1_000_000)
    (line,) = _lines(as_json)
    assert len(line["message"]) < MAX_MESSAGE_CHARS + 50


def test_line_with_wrong_arguments_is_logged() -> None:
    record = logging.makeLogRecord({"msg": "%d and %s", "args": ("only one",)})
    line = JsonFormatter(Redactor()).format(record)
    assert json.loads(line)["message"] == "%d and %s"


def test_closed_stream_drops_the_line_without_printing_secrets(
    either: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    either.close()
    LOG.info("password: hunter2secret")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["a" * 100_000, "token" * 20_000, "://" * 30_000, "eyJ" * 30_000])
def test_redaction_takes_linear_time(text: str) -> None:
    # A quadratic pattern would take too long on these texts.
    assert isinstance(Redactor([SECRET])(text), str)


@pytest.mark.parametrize(
    "text", ['{"api_key": "sk-0123456789abcdefgh"}', "Authorization: Bearer abcdefghijkl", "pwd=hunter22"]
)
def test_redacting_twice_changes_nothing(text: str) -> None:
    redacted = Redactor()(text)
    assert REDACTED in redacted and redacted != text
    assert Redactor()(redacted) == redacted
