"""The security middleware, tested with a real server and real sockets."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import pytest

from tests.gateway.server import RawResponse, connect, read_response, running_app, send_request
from toolcrib.config.settings import ApiKey, HttpConfig
from toolcrib.errors import InvalidConfig
from toolcrib.gateway import http_server
from toolcrib.gateway.auth import Authenticator, check_bind_address
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.gateway.middleware import SecurityMiddleware

RIGHT = "right-secret-of-ci"


Keys = tuple[ApiKey, ...]

KEYS: Keys = (ApiKey.from_secret("another-secret"), ApiKey.from_secret(RIGHT, "writer", "ci"))


def _http(host: str = "127.0.0.1", **settings: Any) -> HttpConfig:
    return HttpConfig(**{"host": host, "max_body_bytes": 1_000, **settings})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Respond with what the middleware forwarded."""
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
    forwarded = {
        "principal": [principal.name, principal.profile],
        "headers": [name.decode() for name, _ in scope["headers"]],
        "received": len(body),
    }
    content = json.dumps(forwarded).encode()
    length = (b"content-length", str(len(content)).encode())
    for _ in range(2 if scope["path"] == "/twice" else 1):
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": content})


@contextmanager
def serve_protected(http: HttpConfig | None = None, keys: Keys = (), **options: Any) -> Iterator[int]:
    """Serve `echo` behind the middleware and yield its port."""
    app = SecurityMiddleware(echo, http or _http(), Authenticator(lambda: keys), **options)
    with running_app(app) as port:
        yield port


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with serve_protected(
        _http(allowed_hosts=("crib.example", "*.inner.example"), allowed_origins=("https://page.example",))
    ) as port:
        yield port


@pytest.fixture(scope="module")
def protected_port() -> Iterator[int]:
    with serve_protected(keys=KEYS) as port:
        yield port


def _is_rejected(response: RawResponse, status: int, remedy: str) -> bool:
    assert response.status == status, response
    assert remedy in response.json["error"]["message"]
    assert response.json["type"] == "error"
    return True


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost:{port}", "LOCALHOST", "[::1]:9", "crib.example", "Crib.Example.:80", "a.b.inner.example"],
)
def test_local_and_configured_hosts_are_accepted(plain: int, host: str) -> None:
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
def test_other_hosts_are_rejected(plain: int, host: str) -> None:
    response = send_request(plain, f"Host: {host}")
    # The server itself rejects an invalid Host header.
    assert response.status == 400 or _is_rejected(response, 403, "allowedHosts")


def test_two_host_headers_are_rejected(plain: int) -> None:
    assert send_request(plain, "Host: localhost", "Host: evil.example").status in (400, 403)


@pytest.mark.parametrize(
    "origin", ["https://page.example", "http://localhost:3000", "http://127.0.0.1:{port}", "http://[::1]"]
)
def test_local_and_configured_origins_are_accepted(plain: int, origin: str) -> None:
    origin = origin.format(port=plain)
    response = send_request(plain, f"Origin: {origin}")
    assert response.status == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert "mcp-session-id" in response.headers["access-control-expose-headers"]


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
def test_other_origins_are_rejected(plain: int, origin: str) -> None:
    response = send_request(plain, f"Origin: {origin}")
    assert _is_rejected(response, 403, "allowedOrigins")
    assert "access-control-allow-origin" not in response.headers


def test_page_of_a_configured_host_may_call_only_that_host(plain: int) -> None:
    assert send_request(plain, "Host: crib.example", "Origin: http://crib.example").status == 200
    assert send_request(plain, "Host: crib.example", "Origin: http://localhost").status == 403


def test_preflight_request_needs_no_key(protected_port: int) -> None:
    response = send_request(
        protected_port,
        "Origin: http://localhost:1",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization, mcp-session-id",
        method="OPTIONS",
    )
    assert response.status == 204
    assert response.headers["access-control-allow-headers"] == "authorization, mcp-session-id"
    assert "POST" in response.headers["access-control-allow-methods"]
    assert (
        send_request(
            protected_port, "Origin: https://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS"
        ).status
        == 403
    )
    assert send_request(protected_port, method="OPTIONS").status == 401


@pytest.mark.parametrize(
    "header", [f"Authorization: Bearer {RIGHT}", f"authorization: bearer   {RIGHT} ", f"X-API-Key: {RIGHT}"]
)
def test_valid_key_identifies_the_principal_and_is_not_forwarded(protected_port: int, header: str) -> None:
    response = send_request(protected_port, header, "X-Other: kept")
    assert response.json["principal"] == ["ci", "writer"]
    assert "x-other" in response.json["headers"]
    assert not {"authorization", "x-api-key"} & set(response.json["headers"])


def test_whitespace_around_header_values_is_removed() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value for name, value in scope["headers"] if name == b"mcp-name")
        await echo(scope, receive, send)

    with running_app(SecurityMiddleware(app, _http(), Authenticator(tuple))) as port:
        send_request(port, "Mcp-Name: \t lion \t ")
    assert seen == [b"lion"]


def test_other_credentials_are_forwarded(protected_port: int) -> None:
    response = send_request(protected_port, f"X-API-Key: {RIGHT}", "Authorization: Bearer of-the-model-provider")
    assert response.json["principal"] == ["ci", "writer"]
    assert "authorization" in response.json["headers"]


def test_key_without_a_name_is_named_by_its_hash(protected_port: int) -> None:
    name, profile = send_request(protected_port, "X-API-Key: another-secret").json["principal"]
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
        ["Authorization: Bearer " + KEYS[1].hash],
        ["X-API-Key: " + "x" * 5_000],
        ["X-API-Key: \xff\xfe"],
    ],
)
def test_request_without_a_valid_key_is_rejected(protected_port: int, headers: list[str]) -> None:
    response = send_request(protected_port, *headers)
    assert _is_rejected(response, 401, "Authorization: Bearer")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert RIGHT not in response.body.decode()


def test_only_the_health_path_needs_no_key(protected_port: int) -> None:
    assert send_request(protected_port, path="/health", method="GET").json["principal"] == ["anyone", None]
    assert send_request(protected_port, path="/health/more", method="GET").status == 401
    assert send_request(protected_port, path="//health", method="GET").status == 401


def test_removing_a_key_ends_its_streams() -> None:
    keys = KEYS
    may_continue = threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"before ", "more_body": True})
        await anyio.to_thread.run_sync(may_continue.wait)
        await send({"type": "http.response.body", "body": b"after ", "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    with running_app(SecurityMiddleware(stream, _http(), Authenticator(lambda: keys))) as port, connect(port) as wire:
        wire.sendall(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nx-api-key: %b\r\n\r\n" % RIGHT.encode()
        )
        received = b""
        while b"before" not in received:
            received += wire.recv(1000)
        keys = (ApiKey.from_secret("a-later-secret"),)
        may_continue.set()
        while more := wire.recv(1000):
            received += more
        assert b"after" not in received
        assert send_request(port, f"X-API-Key: {RIGHT}").status == 401
        assert send_request(port, "X-API-Key: a-later-secret").status == 200


def test_body_within_the_limit_is_forwarded(plain: int) -> None:
    assert send_request(plain, body="x" * 1_000).json["received"] == 1_000


@pytest.mark.parametrize("length", ["1001", "99999999999999999999999", "999999999999"])
def test_body_with_a_too_large_content_length_is_rejected(plain: int, length: str) -> None:
    with connect(plain) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        response = read_response(connection)
    assert response.status == 400 or _is_rejected(response, 413, "1,000 bytes")


@pytest.mark.parametrize("path", ["/mcp", "/raise"])
def test_chunked_body_over_the_limit_is_rejected(plain: int, path: str) -> None:
    with connect(plain) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(3):
            connection.sendall(b"190\r\n" + b"x" * 400 + b"\r\n")
        response = read_response(connection)
    assert _is_rejected(response, 413, "1,000 bytes")


def test_response_that_has_started_is_completed(plain: int) -> None:
    body = "x" * 1_500
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    response = send_request(plain, "Transfer-Encoding: chunked", path="/early", body=chunked)
    assert response.status == 200
    assert b"early" in response.body
    assert b"end" in response.body


def test_slow_body_times_out() -> None:
    for idle, total in ((0.05, 60.0), (60.0, 0.05)):
        with (
            serve_protected(body_idle_timeout_seconds=idle, body_timeout_seconds=total) as port,
            connect(port) as connection,
        ):
            connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx")
            assert _is_rejected(read_response(connection), 408, "send it faster")


def test_rate_limit_response_has_a_retry_after_header() -> None:
    with serve_protected(_http(requests_per_minute=2), KEYS) as port:
        header = f"X-API-Key: {RIGHT}"
        assert [send_request(port, header).status for _ in range(3)] == [200, 200, 429]
        response = send_request(port, header)
        assert _is_rejected(response, 429, "2 requests a minute")
        assert 1 <= int(response.headers["retry-after"]) <= 30
        assert send_request(port, "X-API-Key: another-secret").status == 200
        assert [send_request(port).status for _ in range(3)] == [401, 401, 429]


def test_every_response_has_a_request_id(plain: int) -> None:
    assert send_request(plain, "X-Request-Id: mine-7").headers["x-request-id"] == "mine-7"
    made = [send_request(plain, *headers).headers["x-request-id"] for headers in ([], ["X-Request-Id: a b"])]
    assert all(len(id) == 16 for id in made)
    assert send_request(plain, "Host: evil.example").headers["x-request-id"]


def test_second_response_to_a_request_is_dropped(plain: int, caplog: pytest.LogCaptureFixture) -> None:
    assert send_request(plain, path="/twice").status == 200
    # The error of the first request would be logged before the second response.
    assert send_request(plain).status == 200
    assert "Exception in ASGI application" not in caplog.text


def test_requests_are_counted_and_logged_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricsRegistry()
    with caplog.at_level(logging.INFO, "toolcrib.access"), serve_protected(keys=KEYS, metrics=metrics) as port:
        send_request(port, f"X-API-Key: {RIGHT}", path="/mcp/p/writer?key=x")
        send_request(port, path="/v1/messages")
        send_request(port, path="/\x1b[31mnowhere".replace("\x1b", "%1b"))
    text = metrics.render()
    assert 'toolcrib_http_requests_total{route="/mcp",status="200"} 1.0' in text
    assert 'toolcrib_http_requests_total{route="/v1/messages",status="401"} 1.0' in text
    assert 'toolcrib_http_requests_total{route="other",status="401"} 1.0' in text
    assert 'toolcrib_http_seconds_count{route="/mcp"} 1.0' in text
    messages = [record.getMessage() for record in caplog.records if record.name == "toolcrib.access"]
    assert messages == ["POST /mcp/p/writer 200", "POST /v1/messages 401", "POST /\\x1b[31mnowhere 401"]
    assert RIGHT not in caplog.text


def test_listening_on_the_network_needs_keys() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.4", "crib.example", ""):
        with pytest.raises(InvalidConfig, match=r"without keys.*127\.0\.0\.1"):
            check_bind_address(_http(host), ())
        check_bind_address(_http(host), KEYS)
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.3.2.1"):
        check_bind_address(_http(host), ())
    with pytest.raises(InvalidConfig, match="without keys"):
        SecurityMiddleware(echo, _http("0.0.0.0"), Authenticator(tuple))


def test_empty_key_is_an_error() -> None:
    keys = (*KEYS, ApiKey.from_secret(""))
    with pytest.raises(InvalidConfig, match="one of the keys is empty"):
        SecurityMiddleware(echo, _http(), Authenticator(lambda: keys))


def test_gateway_on_the_network_accepts_addresses_and_configured_hosts() -> None:
    with serve_protected(_http("0.0.0.0", allowed_hosts=("crib.example:8787",)), KEYS) as port:
        header = f"X-API-Key: {RIGHT}"
        for host in ("192.168.1.4:8787", "[fe80::1]", "127.0.0.1", "crib.example:8787"):
            assert send_request(port, header, f"Host: {host}").status == 200
        for host in ("evil.example", "crib.example", "crib.example:1"):
            assert send_request(port, header, f"Host: {host}").status == 403
    with serve_protected(_http("0.0.0.0", allowed_hosts=("*",), allowed_origins=("*",)), KEYS) as port:
        assert send_request(port, header, "Host: any.example", "Origin: https://any.example").status == 200


async def send_empty_response(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"], ids=["nothing", "half"])
@pytest.mark.parametrize("requests", [0, 1])
def test_connection_with_slow_headers_is_closed(head: bytes, requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.3)

    with running_app(send_empty_response, http=http_server.TimedHttpProtocol) as port, connect(port) as connection:
        for _ in range(requests):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"204" in connection.recv(65_536)
        connection.sendall(head)
        assert connection.recv(65_536) == b""


def test_body_before_the_headers_of_the_next_request_does_not_count() -> None:
    with running_app(send_empty_response, http=http_server.TimedHttpProtocol) as port, connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n")
        assert b"204" in connection.recv(65_536)
        connection.sendall(b"x" * 100_000 + b"GET / HTTP/1.1\r\nHost: 127")
        connection.sendall(b".0.0.1\r\n\r\n")
        assert b"204" in connection.recv(65_536)


@pytest.mark.parametrize("requests", [0, 1])
def test_connection_with_large_headers_is_closed(requests: int) -> None:
    with running_app(send_empty_response, http=http_server.TimedHttpProtocol) as port, connect(port) as connection:
        for _ in range(requests):
            # The response arrives before the body of the request.
            connection.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n")
            assert b"204" in connection.recv(65_536)
            connection.sendall(b"x" * 100_000)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        # The chunk in which the headers begin does not count, and it may be large.
        with suppress(ConnectionError):
            for _ in range(16):
                connection.sendall(b"x" * http_server.MAX_HEADER_BYTES)
        assert b"400 Bad Request" in connection.recv(65_536)


async def send_in_process(app: SecurityMiddleware, secret: str) -> int:
    """Send a request without a network and return its status."""
    statuses = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"host", b"127.0.0.1"), (b"x-api-key", secret.encode())]
    await app({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)
    return int(statuses[0])


async def work(scope: Any, receive: Any, send: Any) -> None:
    """Respond after some work in many steps, like the gateway."""
    for _ in range(20):
        sum(range(100_000))
        await anyio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.anyio
async def test_many_requests_of_one_profile_do_not_delay_another() -> None:
    keys = (ApiKey.from_secret("of-team-a", "a", "a"), ApiKey.from_secret("of-team-b", "b", "b"))
    app = SecurityMiddleware(work, _http(), Authenticator(lambda: keys))
    responses = 0

    async def send_without_pause() -> None:
        nonlocal responses
        while True:
            await send_in_process(app, "of-team-a")
            responses += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(send_without_pause)
        # The first request comes before the queue knows that there are two teams.
        assert await send_in_process(app, "of-team-b") == 200
        for _ in range(10):
            before = responses
            assert await send_in_process(app, "of-team-b") == 200
            # In the order of arrival there would be 16.
            assert responses - before <= 5
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_request_that_waited_needs_a_key_that_is_still_valid() -> None:
    keys = [ApiKey.from_secret("of-team-a", "a", "a"), ApiKey.from_secret("of-team-b", "b", "b")]
    started = anyio.Event()

    async def app_of_test(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await work(scope, receive, send)

    app = SecurityMiddleware(app_of_test, _http(), Authenticator(lambda: keys))
    assert await send_in_process(app, "of-team-b") == 200
    started = anyio.Event()
    statuses: list[int] = []

    async def send_and_remember() -> None:
        statuses.append(await send_in_process(app, "of-team-a"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send_and_remember)
        tasks.start_soon(send_and_remember)
        await started.wait()
        del keys[0]
    assert statuses[1] == 401
