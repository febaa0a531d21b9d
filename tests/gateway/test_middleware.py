"""The guard lets in who may come in, over a real server and real sockets."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.gateway.server import RawResponse, connect, read_response, running_app, send_request
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.gateway.middleware import SecurityMiddleware, check_bind_address

RIGHT = "right-secret-of-ci"


@dataclass(frozen=True)
class Key:
    hash: str
    profile: str | None = None
    name: str = ""


@dataclass(frozen=True)
class Auth:
    keys: tuple[Key, ...] = ()


@dataclass
class Changing:
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Http:
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 1_000
    requests_per_minute: int | None = None


def _key(secret: str, profile: str | None = None, name: str = "") -> Key:
    return Key(hashlib.sha256(secret.encode()).hexdigest(), profile, name)


KEYS = Auth((_key("another-secret"), _key(RIGHT, "writer", "ci")))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what the guard let through."""
    if scope["path"] == "/early":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"early ", "more_body": True})
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            if scope["path"] == "/raise":
                raise RuntimeError("the client is gone")
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/early":
        await send({"type": "http.response.body", "body": b"end"})
        return
    principal = scope["state"]["principal"]
    told = {
        "principal": [principal.name, principal.profile],
        "headers": [name.decode() for name, _ in scope["headers"]],
        "received": len(body),
    }
    content = json.dumps(told).encode()
    length = (b"content-length", str(len(content)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": content})


@contextmanager
def guarded(http: Http | None = None, auth: Auth | None = None, **more: Any) -> Iterator[int]:
    with running_app(SecurityMiddleware(echo, http or Http(), auth or Auth(), **more)) as port:
        yield port


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with guarded(
        Http(
            allowed_hosts=("crib.example", "*.inner.example"),
            allowed_origins=("https://page.example",),
        )
    ) as port:
        yield port


@pytest.fixture(scope="module")
def locked() -> Iterator[int]:
    with guarded(Http(), KEYS) as port:
        yield port


def _refused(found: RawResponse, status: int, cure: str) -> bool:
    assert found.status == status, found
    assert cure in found.json["error"]["message"]
    assert found.json["type"] == "error"
    return True


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost:{port}",
        "LOCALHOST",
        "[::1]:9",
        "crib.example",
        "Crib.Example.:80",
        "a.b.inner.example",
    ],
)
def test_the_names_of_this_machine_and_those_configured_are_let_in(plain: int, host: str) -> None:
    assert send_request(plain, f"Host: {host.format(port=plain)}").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "crib.example.evil.example",
        "inner.example",
        "127.0.0.1.evil.example",
        "192.168.1.4",
        "a b",
        "user@localhost",
        "localhost:port",
        "",
    ],
)
def test_other_names_are_refused(plain: int, host: str) -> None:
    found = send_request(plain, f"Host: {host}")
    # The server itself refuses what is no Host header at all.
    assert found.status == 400 or _refused(found, 403, "allowedHosts")


def test_two_hosts_are_refused(plain: int) -> None:
    assert send_request(plain, "Host: localhost", "Host: evil.example").status in (400, 403)


@pytest.mark.parametrize(
    "origin",
    ["https://page.example", "http://localhost:3000", "http://127.0.0.1:{port}", "http://[::1]"],
)
def test_pages_of_this_machine_and_those_configured_may_call(plain: int, origin: str) -> None:
    origin = origin.format(port=plain)
    found = send_request(plain, f"Origin: {origin}")
    assert found.status == 200
    assert found.headers["access-control-allow-origin"] == origin
    assert "mcp-session-id" in found.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://page.example",
        "https://page.example.evil.example",
        "null",
        "http://localhost.evil.example",
        "file://",
        "http://evil.example#localhost",
        "",
    ],
)
def test_pages_of_others_may_not(plain: int, origin: str) -> None:
    found = send_request(plain, f"Origin: {origin}")
    assert _refused(found, 403, "allowedOrigins")
    assert "access-control-allow-origin" not in found.headers


def test_a_page_of_a_name_that_is_ours_may_call_by_that_name_only(plain: int) -> None:
    assert send_request(plain, "Host: crib.example", "Origin: http://crib.example").status == 200
    assert send_request(plain, "Host: crib.example", "Origin: http://localhost").status == 403


def test_a_browser_that_asks_first_is_answered_without_a_key(locked: int) -> None:
    found = send_request(
        locked,
        "Origin: http://localhost:1",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization, mcp-session-id",
        method="OPTIONS",
    )
    assert found.status == 204
    assert found.headers["access-control-allow-headers"] == "authorization, mcp-session-id"
    assert "POST" in found.headers["access-control-allow-methods"]
    assert (
        send_request(
            locked,
            "Origin: https://evil.example",
            "Access-Control-Request-Method: POST",
            method="OPTIONS",
        ).status
        == 403
    )
    assert send_request(locked, method="OPTIONS").status == 401


@pytest.mark.parametrize(
    "header",
    [f"Authorization: Bearer {RIGHT}", f"authorization: bearer   {RIGHT} ", f"X-API-Key: {RIGHT}"],
)
def test_the_right_key_is_let_in_by_name_and_goes_no_further(locked: int, header: str) -> None:
    found = send_request(locked, header, "X-Other: kept")
    assert found.json["principal"] == ["ci", "writer"]
    assert "x-other" in found.json["headers"]
    assert not {"authorization", "x-api-key"} & set(found.json["headers"])


def test_white_space_around_a_value_is_no_part_of_it() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value for name, value in scope["headers"] if name == b"mcp-name")
        await echo(scope, receive, send)

    with running_app(SecurityMiddleware(app, Http(), Auth())) as port:
        send_request(port, "Mcp-Name: \t lion \t ")
    assert seen == [b"lion"]


def test_only_our_key_is_taken_out_and_another_credential_goes_on(locked: int) -> None:
    found = send_request(
        locked, f"X-API-Key: {RIGHT}", "Authorization: Bearer of-the-model-provider"
    )
    assert found.json["principal"] == ["ci", "writer"]
    assert "authorization" in found.json["headers"]


def test_a_key_without_a_name_is_called_by_its_digest(locked: int) -> None:
    name, profile = send_request(locked, "X-API-Key: another-secret").json["principal"]
    assert name.startswith("key ")
    assert profile is None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization: Bearer wrong"],
        ["X-API-Key: wrong"],
        ["X-API-Key:"],
        ["Authorization: Bearer"],
        ["Authorization: Bearer " + RIGHT[:-1]],
        [f"Authorization: Bearer {RIGHT}x"],
        [f"Authorization: Basic {RIGHT}"],
        [f"Authorization: {RIGHT}"],
        [f"Cookie: x-api-key={RIGHT}"],
        ["Authorization: Bearer " + KEYS.keys[1].hash],
        ["X-API-Key: " + "x" * 5_000],
        ["X-API-Key: \xff\xfe"],
    ],
)
def test_without_the_right_key_nobody_is_let_in(locked: int, headers: list[str]) -> None:
    found = send_request(locked, *headers)
    assert _refused(found, 401, "Authorization: Bearer")
    assert found.headers["www-authenticate"].startswith("Bearer")
    assert RIGHT not in found.body.decode()


def test_health_needs_no_key_and_nothing_else_does(locked: int) -> None:
    assert send_request(locked, path="/health", method="GET").json["principal"] == ["anyone", None]
    assert send_request(locked, path="/health/more", method="GET").status == 401
    assert send_request(locked, path="//health", method="GET").status == 401


def test_keys_come_and_go_and_streams_with_them() -> None:
    auth = Changing(KEYS.keys)
    goes_on = threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"before ", "more_body": True})
        await anyio.to_thread.run_sync(goes_on.wait)
        await send({"type": "http.response.body", "body": b"after ", "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    with running_app(SecurityMiddleware(stream, Http(), auth)) as port, connect(port) as wire:
        wire.sendall(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            b"x-api-key: %b\r\n\r\n" % RIGHT.encode()
        )
        heard = b""
        while b"before" not in heard:
            heard += wire.recv(1000)
        auth.keys = (_key("a-later-secret"),)
        goes_on.set()
        while more := wire.recv(1000):
            heard += more
        assert b"after" not in heard
        assert send_request(port, f"X-API-Key: {RIGHT}").status == 401
        assert send_request(port, "X-API-Key: a-later-secret").status == 200


def test_a_body_within_the_limit_is_passed_on(plain: int) -> None:
    assert send_request(plain, body="x" * 1_000).json["received"] == 1_000


@pytest.mark.parametrize("length", ["1001", "99999999999999999999999", "999999999999"])
def test_a_body_that_says_it_is_too_large_is_not_waited_for(plain: int, length: str) -> None:
    with connect(plain) as connection:
        connection.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        found = read_response(connection)
    assert found.status == 400 or _refused(found, 413, "1,000 bytes")


@pytest.mark.parametrize("path", ["/mcp", "/raise"])
def test_a_body_of_unknown_length_is_cut_off_when_it_is_too_large(plain: int, path: str) -> None:
    with connect(plain) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(3):
            connection.sendall(b"190\r\n" + b"x" * 400 + b"\r\n")
        found = read_response(connection)
    assert _refused(found, 413, "1,000 bytes")


def test_an_answer_that_has_begun_is_let_to_end(plain: int) -> None:
    body = "x" * 1_500
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    found = send_request(plain, "Transfer-Encoding: chunked", path="/early", body=chunked)
    assert found.status == 200
    assert b"early" in found.body
    assert b"end" in found.body


def test_a_slow_body_is_not_waited_for() -> None:
    for pause, whole in ((0.05, 60.0), (60.0, 0.05)):
        with (
            guarded(body_pause_seconds=pause, body_seconds=whole) as port,
            connect(port) as connection,
        ):
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx"
            )
            assert _refused(read_response(connection), 408, "send it faster")


def test_too_many_requests_are_told_when_to_try_again() -> None:
    with guarded(Http(requests_per_minute=2), KEYS) as port:
        header = f"X-API-Key: {RIGHT}"
        assert [send_request(port, header).status for _ in range(3)] == [200, 200, 429]
        found = send_request(port, header)
        assert _refused(found, 429, "2 requests a minute")
        assert 1 <= int(found.headers["retry-after"]) <= 30
        assert send_request(port, "X-API-Key: another-secret").status == 200
        assert [send_request(port).status for _ in range(3)] == [401, 401, 429]


def test_every_answer_has_the_id_of_its_request(plain: int) -> None:
    assert send_request(plain, "X-Request-Id: mine-7").headers["x-request-id"] == "mine-7"
    made = [
        send_request(plain, *headers).headers["x-request-id"]
        for headers in ([], ["X-Request-Id: a b"])
    ]
    assert all(len(id) == 16 for id in made)
    assert send_request(plain, "Host: evil.example").headers["x-request-id"]


def test_requests_are_counted_and_logged_without_their_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = MetricsRegistry()
    with (
        caplog.at_level(logging.INFO, "toolcrib.access"),
        guarded(auth=KEYS, metrics=metrics) as port,
    ):
        send_request(port, f"X-API-Key: {RIGHT}", path="/mcp/p/writer?key=x")
        send_request(port, path="/v1/messages")
        send_request(port, path="/\x1b[31mnowhere".replace("\x1b", "%1b"))
    text = metrics.render()
    assert 'toolcrib_http_requests_total{door="/mcp",status="200"} 1.0' in text
    assert 'toolcrib_http_requests_total{door="/v1/messages",status="401"} 1.0' in text
    assert 'toolcrib_http_requests_total{door="other",status="401"} 1.0' in text
    assert 'toolcrib_http_seconds_count{door="/mcp"} 1.0' in text
    messages = [
        record.getMessage() for record in caplog.records if record.name == "toolcrib.access"
    ]
    assert messages == [
        "POST /mcp/p/writer 200",
        "POST /v1/messages 401",
        "POST /\\x1b[31mnowhere 401",
    ]
    assert RIGHT not in caplog.text


def test_listening_where_others_reach_us_needs_keys() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.4", "crib.example", ""):
        with pytest.raises(InvalidConfig, match=r"without keys.*127\.0\.0\.1"):
            check_bind_address(Http(host), Auth())
        check_bind_address(Http(host), KEYS)
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.3.2.1"):
        check_bind_address(Http(host), Auth())
    with pytest.raises(InvalidConfig, match="without keys"):
        SecurityMiddleware(echo, Http("0.0.0.0"), Auth())


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="one of the keys is empty"):
        SecurityMiddleware(echo, Http(), Auth((_key(RIGHT), _key(""))))


def test_open_to_the_network_it_is_called_by_address_or_by_configured_name() -> None:
    with guarded(Http("0.0.0.0", allowed_hosts=("crib.example:8787",)), KEYS) as port:
        header = f"X-API-Key: {RIGHT}"
        for host in ("192.168.1.4:8787", "[fe80::1]", "127.0.0.1", "crib.example:8787"):
            assert send_request(port, header, f"Host: {host}").status == 200
        for host in ("evil.example", "crib.example", "crib.example:1"):
            assert send_request(port, header, f"Host: {host}").status == 403
    with guarded(Http("0.0.0.0", allowed_hosts=("*",), allowed_origins=("*",)), KEYS) as port:
        assert (
            send_request(port, header, "Host: any.example", "Origin: https://any.example").status
            == 200
        )
