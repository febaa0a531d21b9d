from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import openai
import pytest

from tests.embedders.endpoint import Endpoint, EndpointReply, embed_text, embeddings_reply, error_reply, serve_endpoint
from tests.gateway.llm.certificates import create_certificate
from toolcrib.embedders import json_endpoint as module
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.errors import EmbeddingFailed, InvalidConfig


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_endpoint() as running:
        yield running


def _reply(data: object) -> EndpointReply:
    return EndpointReply(200, json.dumps({"data": data}).encode())


def test_request_and_vectors(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", key="sk-1")
    assert embedder.embed_queries(["mail", "weather"]).tolist() == [embed_text("mail"), embed_text("weather")]
    assert endpoint.requests == [
        {"path": "/v1/embeddings", "model": "small", "input": ["mail", "weather"], "encoding_format": "float"}
    ]
    assert endpoint.headers[0]["authorization"] == "Bearer sk-1"


def test_request_matches_that_of_the_official_client(endpoint: Endpoint) -> None:
    client = openai.OpenAI(base_url=endpoint.url, api_key="sk-1")
    official = client.embeddings.create(model="small", input=["mail", "weather"])
    own = OpenAIEmbedder(endpoint.url, "small", key="sk-1").embed_tools(["mail", "weather"])
    client.close()
    assert [each.embedding for each in official.data] == own.tolist()
    theirs, ours = endpoint.requests
    # The official client requests base64 by default, which not every server supports.
    assert theirs.pop("encoding_format") == "base64"
    assert ours.pop("encoding_format") == "float"
    assert theirs == ours
    for header in ("authorization", "content-type"):
        assert endpoint.headers[0][header] == endpoint.headers[1][header]


def test_unrequested_base64_is_decoded(endpoint: Endpoint) -> None:
    endpoint.script = [lambda request: embeddings_reply(request | {"encoding_format": "base64"})]
    assert OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"]).tolist() == [embed_text("mail")]


def test_rows_are_sorted_by_index(endpoint: Endpoint) -> None:
    def reverse_order(request: dict[str, Any]) -> EndpointReply:
        return _reply(json.loads(embeddings_reply(request).body)["data"][::-1])

    endpoint.script = [reverse_order]
    rows = OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail", "weather"])
    assert rows.tolist() == [embed_text("mail"), embed_text("weather")]


def test_many_texts_are_sent_in_several_requests(endpoint: Endpoint) -> None:
    texts = [f"text {number}" for number in range(300)]
    rows = OpenAIEmbedder(endpoint.url, "small").embed_tools(texts)
    assert [len(request["input"]) for request in endpoint.requests] == [128, 128, 44]
    assert rows.tolist() == [embed_text(text) for text in texts]


def test_no_texts_send_no_request(endpoint: Endpoint) -> None:
    assert len(OpenAIEmbedder(endpoint.url, "small").embed_tools([])) == 0
    assert endpoint.requests == []


def test_prefixes_are_added_and_long_texts_truncated(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", prefixes=("query: ", "passage: "))
    embedder.embed_queries(["mail"])
    embedder.embed_tools(["x" * 50_000])
    assert endpoint.requests[0]["input"] == ["query: mail"]
    assert endpoint.requests[1]["input"] == [("passage: " + "x" * 50_000)[:8_000]]


def test_dimensions_are_requested_and_checked(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", dimensions=2)
    assert embedder.embed_tools(["mail"]).tolist() == [embed_text("mail")[:2]]
    assert endpoint.requests[0]["dimensions"] == 2
    endpoint.script = [lambda request: embeddings_reply(request | {"dimensions": 3})]
    with pytest.raises(EmbeddingFailed, match="3 dimensions, not 2; remove `dimensions`"):
        embedder.embed_tools(["mail"])


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (error_reply(401, "Incorrect API key"), r"status 401 \(Incorrect API key\); the key is missing"),
        (error_reply(403, "no"), "check its permissions"),
        (error_reply(404, "The model `small` does not exist"), "does not exist.*URL or model"),
        (EndpointReply(404, b"<html>\n\n404</html>"), r"\(<html> 404</html>\)"),
        (EndpointReply(404, b""), r"\(Not Found\)"),
        (EndpointReply(400, b'{"error": "bad\\u001b[31m input"}'), r"\(bad \[31m input\)"),
        (EndpointReply(418, b"x" * 5_000), r"x{200}…\); see the log of the server"),
        (EndpointReply(302, b"", {"Location": "http://elsewhere/"}), "moved to http://elsewhere/.*trust"),
        (EndpointReply(200, b"<html>hello</html>"), "returned <html>hello</html> instead of embeddings"),
        (EndpointReply(200, b"[]"), "instead of embeddings"),
        (EndpointReply(200, b'{"data": {"a": 1}}'), "instead of embeddings"),
        (EndpointReply(200, b"[" * 100_000), "instead of embeddings"),
        (EndpointReply(200, b"\xff\xfe"), "instead of embeddings"),
        (_reply([]), "0 vectors for 1 texts"),
        (_reply([{"embedding": [1]}, {"embedding": [1], "index": 0}]), "2 vectors for 1 texts"),
        (_reply([{"embedding": None}]), "returned no vector for 1 of 1 texts; use another server"),
        (_reply([{"embedding": [1], "index": 7}]), "instead of embeddings"),
        (_reply([{"embedding": "%%%"}]), "instead of embeddings"),
        (_reply([{"embedding": "AAA="}]), "instead of embeddings"),
        (_reply([{"embedding": []}]), "the shape"),
        (_reply([{"embedding": {}}]), "not a table of numbers"),
        (_reply([{"embedding": [float("nan")]}]), "infinite number or NaN"),
        (_reply([{"embedding": [10**400]}]), "not a table of numbers"),
        (_reply([{"embedding": [1.0] * 16_385}]), "the shape"),
    ],
)
def test_error_replies_are_reported_without_retry(endpoint: Endpoint, reply: EndpointReply, message: str) -> None:
    endpoint.script = [reply]
    with pytest.raises(EmbeddingFailed, match=message):
        OpenAIEmbedder(endpoint.url, "small", key="sk-secret").embed_tools(["mail"])
    assert len(endpoint.requests) == 1


def test_errors_do_not_contain_the_key(endpoint: Endpoint) -> None:
    endpoint.script = [error_reply(401, "there is no key sk-secret here")]
    with pytest.raises(EmbeddingFailed) as caught:
        OpenAIEmbedder(endpoint.url, "small", key="sk-secret").embed_tools(["mail"])
    assert "sk-secret" not in repr(caught.value)
    long = "sk-" + 60 * "x"
    echo = {"status": 200, "debug": f"your headers were: Authorization: Bearer {long}"}
    endpoint.script = [
        EndpointReply(200, json.dumps(echo).encode()),
        EndpointReply(302, b"", {"Location": f"http://x/{long}"}),
    ]
    for _ in range(2):
        with pytest.raises(EmbeddingFailed) as caught:
            OpenAIEmbedder(endpoint.url, "small", key=long).embed_tools(["mail"])
        assert "xxx" not in repr(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_transient_errors_are_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [error_reply(status, "busy", Retry_After="0"), error_reply(status, "busy")]
    assert OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"]).tolist() == [embed_text("mail")]
    assert len(endpoint.requests) == 3


def test_retries_are_limited(endpoint: Endpoint) -> None:
    endpoint.script = [error_reply(503, "busy", Retry_After="soon")] * 9
    with pytest.raises(EmbeddingFailed, match=r"status 503 \(busy\)") as caught:
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])
    assert len(endpoint.requests) == 3
    assert type(caught.value) is EmbeddingFailed


def test_retry_after_is_limited(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    endpoint.script = [error_reply(429, "wait", Retry_After="3600")]
    OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])
    assert pauses == [2.0]


def test_vectors_of_two_widths_are_rejected(endpoint: Endpoint) -> None:
    endpoint.script = [embeddings_reply, lambda request: embeddings_reply(request | {"dimensions": 2})]
    with pytest.raises(EmbeddingFailed, match=r"several widths: \[2, 3\]"):
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"] * 129)


def test_reply_size_is_limited(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REPLY_BYTES", 1024 * 1024)
    endpoint.script = [EndpointReply(200, b" " * 2_000_000)]
    with pytest.raises(EmbeddingFailed, match="more than 1 MiB"):
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])


def test_server_that_does_not_answer_times_out(endpoint: Endpoint) -> None:
    done = Event()

    def silent(request: dict[str, Any]) -> EndpointReply:
        done.wait(10)
        return embeddings_reply(request)

    endpoint.script = [silent] * 3
    with pytest.raises(EmbeddingFailed, match=r"within 0\.05 seconds; increase"):
        OpenAIEmbedder(endpoint.url, "small", timeout_seconds=0.05).embed_tools(["mail"])
    done.set()


class _SlowServer:
    """A server that sends the headers of a correct reply byte by byte, with pauses."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.pause_seconds = 0.01
        self.reply_count = 0
        self._context = context
        self._stopped = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._thread = Thread(target=self._serve)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> _SlowServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            # The client may have closed the connection after a timeout.
            with suppress(OSError):
                raw, _ = self._listener.accept()
                with raw:
                    self._answer(raw)

    def _answer(self, raw: socket.socket) -> None:
        body = embeddings_reply({"input": ["mail"], "model": "small"}).body
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nX-Slow: {'a' * 500}\r\n\r\n"
        with self._context.wrap_socket(raw, server_side=True) if self._context else raw as peer:
            # Unread data would make closing the connection an error for the client.
            while (request := peer.recv(1 << 16)) and not request.endswith(b"}"):
                pass
            for byte in head.encode():
                peer.sendall(bytes([byte]))
                self._stopped.wait(self.pause_seconds)
            peer.sendall(body)
            self.reply_count += 1


def test_server_that_sends_headers_slowly_times_out(endpoint: Endpoint) -> None:
    with _SlowServer() as server:
        with pytest.raises(EmbeddingFailed, match=r"within 0\.1 seconds; increase"):
            OpenAIEmbedder(server.url, "small", timeout_seconds=0.1).embed_tools(["mail"])
        # All headers take five seconds, though each byte arrives quickly.
        assert server.reply_count == 0
        server.pause_seconds = 0
        assert OpenAIEmbedder(server.url, "small").embed_tools(["mail"]).tolist() == [embed_text("mail")]


def test_timeout_applies_to_https(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = create_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    with _SlowServer(made.context()) as server:
        with pytest.raises(EmbeddingFailed, match=r"within 0\.3 seconds; increase"):
            OpenAIEmbedder(server.url, "small", timeout_seconds=0.3).embed_tools(["mail"])
        assert server.reply_count == 0
        server.pause_seconds = 0
        assert OpenAIEmbedder(server.url, "small").embed_tools(["mail"]).tolist() == [embed_text("mail")]
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(EmbeddingFailed, match="CERTIFICATE_VERIFY_FAILED"):
            OpenAIEmbedder(server.url, "small").embed_tools(["mail"])


def test_unreachable_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1/embeddings/"
        with pytest.raises(EmbeddingFailed, match=r"cannot be reached.*check that the server is running"):
            OpenAIEmbedder(url, "small").embed_tools(["mail"])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com/v1",
        "file:///etc/passwd",
        "ftp://host/v1",
        "https://",
        "http://host:port/v1",
        "http://[::1/v1",
        "http://host/v1\nX: y",
        "http://host/a b",
        "https://user:word@host/v1",
    ],
)
def test_invalid_urls_are_rejected(url: str) -> None:
    with pytest.raises(InvalidConfig):
        OpenAIEmbedder(url, "small")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "`model` must be the name of a model, not ''"),
        ({"model": None}, "`model` must be the name of a model, not None"),
        ({"dimensions": 0}, "`dimensions` must be a positive integer or None, not 0"),
        ({"dimensions": True}, "`dimensions` must be a positive integer"),
        ({"prefixes": "ab"}, "`prefixes` must be two strings, for queries and for tools, not 'ab'"),
        ({"prefixes": ("a",)}, "`prefixes` must be two strings"),
        ({"prefixes": ("a", 1)}, "`prefixes` must be two strings"),
        ({"model": " "}, "`model` must be the name of a model, not ' '"),
        ({"timeout_seconds": 0}, "must be a number above 0 and up to 86,400, not 0"),
        ({"timeout_seconds": 10**400}, "`timeout_seconds` must be a number above 0"),
        ({"timeout_seconds": "5"}, "`timeout_seconds` must be a number above 0"),
        ({"timeout_seconds": float("nan")}, "`timeout_seconds` must be a number above 0"),
    ],
)
def test_invalid_options_are_rejected(options: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        OpenAIEmbedder("https://host/v1", **{"model": "small", **options})


@pytest.mark.parametrize("key", ["sk-1\n", "sk-ü", 5])
def test_invalid_key_is_rejected_without_quoting_it(key: Any) -> None:
    with pytest.raises(InvalidConfig, match="copy it again") as caught:
        OpenAIEmbedder("https://host/v1", "small", key=key)
    assert "sk-" not in str(caught.value)
