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

from tests.embedders.endpoint import Endpoint, Reply, refusal, row, serving, vectors
from tests.gateway.llm.certificates import certificate
from toolcrib.embedders import openai as ours
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.errors import EmbeddingFailed, InvalidConfig


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(ours, "_FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as running:
        yield running


def _reply(data: object) -> Reply:
    return Reply(200, json.dumps({"data": data}).encode())


def test_texts_become_rows(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", key="sk-1")
    assert embedder.embed_queries(["mail", "weather"]).tolist() == [row("mail"), row("weather")]
    assert endpoint.asked == [
        {
            "path": "/v1/embeddings",
            "model": "small",
            "input": ["mail", "weather"],
            "encoding_format": "float",
        }
    ]
    assert endpoint.headers[0]["authorization"] == "Bearer sk-1"


def test_the_official_client_is_answered_alike_by_the_same_endpoint(endpoint: Endpoint) -> None:
    client = openai.OpenAI(base_url=endpoint.url, api_key="sk-1")
    official = client.embeddings.create(model="small", input=["mail", "weather"])
    own = OpenAIEmbedder(endpoint.url, "small", key="sk-1").embed_tools(["mail", "weather"])
    client.close()
    assert [each.embedding for each in official.data] == own.tolist()
    theirs, ours = endpoint.asked
    # The client asks for base64 unless told otherwise; not every server knows that.
    assert theirs.pop("encoding_format") == "base64"
    assert ours.pop("encoding_format") == "float"
    assert theirs == ours
    for header in ("authorization", "content-type"):
        assert endpoint.headers[0][header] == endpoint.headers[1][header]


def test_base64_is_read_where_a_server_gives_it_unasked(endpoint: Endpoint) -> None:
    endpoint.script = [lambda asked: vectors(asked | {"encoding_format": "base64"})]
    assert OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"]).tolist() == [row("mail")]


def test_rows_are_put_in_the_order_of_the_texts(endpoint: Endpoint) -> None:
    def turned(asked: dict[str, Any]) -> Reply:
        return _reply(json.loads(vectors(asked).body)["data"][::-1])

    endpoint.script = [turned]
    rows = OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail", "weather"])
    assert rows.tolist() == [row("mail"), row("weather")]


def test_many_texts_are_sent_in_several_requests(endpoint: Endpoint) -> None:
    texts = [f"text {number}" for number in range(300)]
    rows = OpenAIEmbedder(endpoint.url, "small").embed_tools(texts)
    assert [len(asked["input"]) for asked in endpoint.asked] == [128, 128, 44]
    assert rows.tolist() == [row(text) for text in texts]


def test_no_texts_are_no_request(endpoint: Endpoint) -> None:
    assert len(OpenAIEmbedder(endpoint.url, "small").embed_tools([])) == 0
    assert endpoint.asked == []


def test_prefixes_tell_queries_from_tools_and_long_texts_are_cut(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", prefixes=("query: ", "passage: "))
    embedder.embed_queries(["mail"])
    embedder.embed_tools(["x" * 50_000])
    assert endpoint.asked[0]["input"] == ["query: mail"]
    assert endpoint.asked[1]["input"] == [("passage: " + "x" * 50_000)[:8_000]]


def test_shorter_vectors_can_be_asked_for(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", dimensions=2)
    assert embedder.embed_tools(["mail"]).tolist() == [row("mail")[:2]]
    assert endpoint.asked[0]["dimensions"] == 2
    endpoint.script = [lambda asked: vectors(asked | {"dimensions": 3})]
    with pytest.raises(EmbeddingFailed, match="3 numbers, not 2; leave `dimensions` out"):
        embedder.embed_tools(["mail"])


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            refusal(401, "Incorrect API key"),
            r"status 401 \(Incorrect API key\); the key is missing",
        ),
        (refusal(403, "no"), "check its rights"),
        (refusal(404, "The model `small` does not exist"), "does not exist.*address or model"),
        (Reply(404, b"<html>\n\n404</html>"), r"\(<html> 404</html>\)"),
        (Reply(404, b""), r"\(Not Found\)"),
        (Reply(400, b'{"error": "bad\\u001b[31m input"}'), r"\(bad \[31m input\)"),
        (Reply(418, b"x" * 5_000), r"x{200}…\); see its own log"),
        (Reply(302, b"", {"Location": "http://elsewhere/"}), "moved to http://elsewhere/.*trust"),
        (Reply(200, b"<html>hello</html>"), "no embeddings but <html>hello"),
        (Reply(200, b"[]"), "no embeddings but"),
        (Reply(200, b'{"data": {"a": 1}}'), "no embeddings but"),
        (Reply(200, b"[" * 100_000), "no embeddings but"),
        (Reply(200, b"\xff\xfe"), "no embeddings but"),
        (_reply([]), "0 vectors for 1 texts"),
        (_reply([{"embedding": [1]}, {"embedding": [1], "index": 0}]), "2 vectors for 1 texts"),
        (_reply([{"embedding": None}]), "gave no vector for 1 of 1 texts; use another server"),
        (_reply([{"embedding": [1], "index": 7}]), "no embeddings but"),
        (_reply([{"embedding": "%%%"}]), "no embeddings but"),
        (_reply([{"embedding": "AAA="}]), "no embeddings but"),
        (_reply([{"embedding": []}]), "the shape"),
        (_reply([{"embedding": {}}]), "no table of numbers"),
        (_reply([{"embedding": [float("nan")]}]), "infinite or none"),
        (_reply([{"embedding": [10**400]}]), "no table of numbers"),
        (_reply([{"embedding": [1.0] * 16_385}]), "the shape"),
    ],
)
def test_what_is_wrong_is_told_with_the_cure(endpoint: Endpoint, reply: Reply, told: str) -> None:
    endpoint.script = [reply]
    with pytest.raises(EmbeddingFailed, match=told):
        OpenAIEmbedder(endpoint.url, "small", key="sk-secret").embed_tools(["mail"])
    assert len(endpoint.asked) == 1


def test_no_error_tells_the_key(endpoint: Endpoint) -> None:
    endpoint.script = [refusal(401, "there is no key sk-secret here")]
    with pytest.raises(EmbeddingFailed) as caught:
        OpenAIEmbedder(endpoint.url, "small", key="sk-secret").embed_tools(["mail"])
    assert "sk-secret" not in repr(caught.value)
    long = "sk-" + 60 * "x"
    echo = {"status": 200, "debug": f"your headers were: Authorization: Bearer {long}"}
    endpoint.script = [
        Reply(200, json.dumps(echo).encode()),
        Reply(302, b"", {"Location": f"http://x/{long}"}),
    ]
    for _ in range(2):
        with pytest.raises(EmbeddingFailed) as caught:
            OpenAIEmbedder(endpoint.url, "small", key=long).embed_tools(["mail"])
        assert "xxx" not in repr(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_fault_is_tried_again(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [refusal(status, "busy", Retry_After="0"), refusal(status, "busy")]
    assert OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"]).tolist() == [row("mail")]
    assert len(endpoint.asked) == 3


def test_tries_are_bounded(endpoint: Endpoint) -> None:
    endpoint.script = [refusal(503, "busy", Retry_After="soon")] * 9
    with pytest.raises(EmbeddingFailed, match=r"status 503 \(busy\)") as caught:
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])
    assert len(endpoint.asked) == 3
    assert type(caught.value) is EmbeddingFailed


def test_a_server_that_asks_for_a_long_pause_does_not_get_it(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    endpoint.script = [refusal(429, "wait", Retry_After="3600")]
    OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])
    assert slept == [2.0]


def test_vectors_of_two_widths_are_refused(endpoint: Endpoint) -> None:
    endpoint.script = [vectors, lambda asked: vectors(asked | {"dimensions": 2})]
    with pytest.raises(EmbeddingFailed, match=r"several widths: \[2, 3\]"):
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"] * 129)


def test_a_huge_reply_is_not_read_to_its_end(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "MAX_REPLY_BYTES", 1024 * 1024)
    endpoint.script = [Reply(200, b" " * 2_000_000)]
    with pytest.raises(EmbeddingFailed, match="more than 1 MiB"):
        OpenAIEmbedder(endpoint.url, "small").embed_tools(["mail"])


def test_a_server_that_does_not_answer_is_not_waited_for(endpoint: Endpoint) -> None:
    done = Event()

    def silent(asked: dict[str, Any]) -> Reply:
        done.wait(10)
        return vectors(asked)

    endpoint.script = [silent] * 3
    with pytest.raises(EmbeddingFailed, match=r"within 0\.05 seconds; give it longer"):
        OpenAIEmbedder(endpoint.url, "small", timeout_seconds=0.05).embed_tools(["mail"])
    done.set()


class _Trickling:
    """A server whose reply is whole and right, but comes byte by byte, as slowly as it is told."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.pause_seconds = 0.01
        self.answered = 0
        self._context = context
        self._over = Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.1)
        self._thread = Thread(target=self._serve)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def __enter__(self) -> _Trickling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            # Who has waited too long is gone by now.
            with suppress(OSError):
                raw, _ = self._listening.accept()
                with raw:
                    self._answer(raw)

    def _answer(self, raw: socket.socket) -> None:
        body = vectors({"input": ["mail"], "model": "small"}).body
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nX-Slow: {'a' * 500}\r\n\r\n"
        with self._context.wrap_socket(raw, server_side=True) if self._context else raw as peer:
            # Whatever is left unread would make closing an error for the other side.
            while (asked := peer.recv(1 << 16)) and not asked.endswith(b"}"):
                pass
            for byte in head.encode():
                peer.sendall(bytes([byte]))
                self._over.wait(self.pause_seconds)
            peer.sendall(body)
            self.answered += 1


def test_a_server_that_trickles_its_headers_is_not_waited_for(endpoint: Endpoint) -> None:
    with _Trickling() as server:
        with pytest.raises(EmbeddingFailed, match=r"within 0\.1 seconds; give it longer"):
            OpenAIEmbedder(server.url, "small", timeout_seconds=0.1).embed_tools(["mail"])
        # Its headers take five seconds, though each of their bytes comes soon.
        assert server.answered == 0
        server.pause_seconds = 0
        assert OpenAIEmbedder(server.url, "small").embed_tools(["mail"]).tolist() == [row("mail")]


def test_time_is_bounded_with_encryption_too(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    with _Trickling(made.context()) as server:
        with pytest.raises(EmbeddingFailed, match=r"within 0\.3 seconds; give it longer"):
            OpenAIEmbedder(server.url, "small", timeout_seconds=0.3).embed_tools(["mail"])
        assert server.answered == 0
        server.pause_seconds = 0
        assert OpenAIEmbedder(server.url, "small").embed_tools(["mail"]).tolist() == [row("mail")]
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(EmbeddingFailed, match="CERTIFICATE_VERIFY_FAILED"):
            OpenAIEmbedder(server.url, "small").embed_tools(["mail"])


def test_a_server_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1/embeddings/"
        with pytest.raises(EmbeddingFailed, match=r"cannot be reached.*see that it runs"):
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
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig):
        OpenAIEmbedder(url, "small")


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"model": ""}, "`model` must be the name of a model, not ''"),
        ({"model": None}, "`model` must be the name of a model, not None"),
        ({"dimensions": 0}, "`dimensions` must be a whole number from 1, or left out, not 0"),
        ({"dimensions": True}, "`dimensions` must be a whole number"),
        ({"prefixes": "ab"}, "`prefixes` must be two texts, for queries and for tools, not 'ab'"),
        ({"prefixes": ("a",)}, "`prefixes` must be two texts"),
        ({"prefixes": ("a", 1)}, "`prefixes` must be two texts"),
        ({"model": " "}, "`model` must be the name of a model, not ' '"),
        ({"timeout_seconds": 0}, "must be a number of seconds above 0, up to 86,400, not 0"),
        ({"timeout_seconds": 10**400}, "`timeout_seconds` must be a number of seconds"),
        ({"timeout_seconds": "5"}, "`timeout_seconds` must be a number of seconds"),
        ({"timeout_seconds": float("nan")}, "`timeout_seconds` must be a number of seconds"),
    ],
)
def test_what_would_fail_at_the_first_search_is_refused_at_once(given: Any, cure: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(cure)):
        OpenAIEmbedder("https://host/v1", **{"model": "small", **given})


@pytest.mark.parametrize("key", ["sk-1\n", "sk-ü", 5])
def test_a_key_that_is_none_is_refused_and_not_told(key: Any) -> None:
    with pytest.raises(InvalidConfig, match="copy it anew") as caught:
        OpenAIEmbedder("https://host/v1", "small", key=key)
    assert "sk-" not in str(caught.value)
