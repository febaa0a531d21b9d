"""`toolcrib status` against whatever may answer at an address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli import gateway_client
from toolcrib.cli.main import toolcrib

SERVER = {
    "name": "files",
    "state": "started",
    "trouble": "",
    "tools": 1,
    "tokens": 30,
    "calls": 1,
    "waiting": ["read"],
    "flagged": [],
    "faults": [],
    "altered": [],
}
STATS: dict[str, Any] = {
    "tools": 1,
    "tokens": 30,
    "sessions": 1,
    "counts": {"listings": 1, "searches": 1, "tokens_saved": -48},
    "learned": {"words": 1, "tools": 1},
    "notices": [],
}
WHOLE = {"status": "ok", "reasons": [], "servers": [SERVER], **STATS}


class Peer:
    """Something that listens; it keeps what it was sent."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.heard: list[str] = []

    def answer(self, connection: socket.socket, said: bytes | None) -> None:
        """Take one request, and say this; nothing is said until the asker has gone."""
        self.heard.append(connection.recv(65_536).decode())
        if said is None:
            connection.recv(1)
        else:
            connection.sendall(said)


@contextmanager
def peer(said: bytes | None) -> Iterator[Peer]:
    """A peer that says this to all who ask."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Peer(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    one.answer(connection, said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield one
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def spoken(document: object) -> bytes:
    """An answer of HTTP with this JSON."""
    body = json.dumps(document).encode()
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body


def run(*arguments: str, code: int, **variables: str) -> Result:
    """Run the command, and see that it ends as it should, without a traceback."""
    done = CliRunner(env={"TOOLCRIB_KEY": "", **variables}).invoke(toolcrib, ["status", *arguments])
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "ftp://here", "http://a b", "http://"])
def test_an_address_that_is_none_is_told_with_one_that_is(url: str) -> None:
    done = run("--url", url, code=1)
    assert done.stderr == f"Error: --url: must be a URL such as {gateway_client.EXAMPLE_URL}\n"


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
        spoken({}),
        spoken([]),
        spoken({**WHOLE, "servers": [{}]}),
        spoken({**WHOLE, "servers": [{**SERVER, "tools": "many"}]}),
        spoken({**WHOLE, "counts": {"listings": "many"}}),
        spoken({**WHOLE, "learned": {"words": "many"}}),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_no_gateway_is_told_from_one(said: bytes, options: list[str]) -> None:
    with peer(said) as other:
        done = run("--url", f"http://{other.address}", *options, code=1)
    assert f"what answers at http://{other.address} is no Toolcrib gateway" in done.stderr


def test_a_peer_that_never_answers_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_client, "_TIMEOUT_SECONDS", 0.2)
    with peer(None) as other:
        done = run("--url", f"http://{other.address}", code=1)
    assert "did not answer within" in done.stderr
    assert "no gateway is running" not in done.stderr


def test_a_name_that_is_no_machines_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    done = run("--url", "nonsense", code=1)
    assert done.stderr == "Error: there is no machine called nonsense; correct --url\n"


def test_an_address_without_a_scheme_is_reached_past_any_proxy() -> None:
    nowhere = "http://127.0.0.1:9"
    with peer(spoken(WHOLE)) as other:
        done = run("--url", f"{other.address}/", code=0, HTTP_PROXY=nowhere, http_proxy=nowhere)
    assert "1 tool of 1 server, about 30 tokens. 1 session." in done.stdout


def test_one_is_not_many_and_less_than_nothing_is_nothing() -> None:
    with peer(spoken(WHOLE)) as other:
        done = run("--url", other.address, code=0)
    assert "! 1 tool held back; see toolcrib approve" in done.stdout
    assert "1 list and 1 search so far spared clients nothing yet." in done.stdout
    assert "Learned from use: 1 word for 1 tool." in done.stdout
    more = {**WHOLE, "counts": {"listings": 2, "tokens_saved": 2000, "model_requests": 1}}
    with peer(spoken(more)) as other:
        done = run("--url", other.address, code=0)
    assert "2 lists and 0 searches so far spared clients about 2,000 tokens." in done.stdout
    assert "1 request to models with tools held back spared them nothing yet." in done.stdout


def test_a_key_is_sent_as_a_gateway_knows_it_and_one_that_is_none_is_told() -> None:
    with peer(spoken(WHOLE)) as other:
        run("--url", other.address, "--key", "k€y", code=0)
    assert all("Authorization: Bearer k€y\r\n" in heard for heard in other.heard)
    done = run("--url", "nonsense", "--key", "two\nlines", code=1)
    assert "correct --key" in done.stderr
