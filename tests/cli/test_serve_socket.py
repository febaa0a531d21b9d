"""Where `toolcrib serve` listens, and what it says to paste into a client."""

from __future__ import annotations

import socket
import sys

import pytest

from toolcrib.cli.serve import UNACKNOWLEDGED_SECONDS, _bind_socket, _print_client_setup
from toolcrib.config.settings import (
    ApiKey,
    AuthConfig,
    GatewayConfig,
    HttpConfig,
    LlmGatewayConfig,
    LlmUpstreamConfig,
)
from toolcrib.errors import InvalidConfig


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a socket say so")
def test_connections_are_let_go_by_the_kernel_if_nothing_of_them_is_taken() -> None:
    with _bind_socket(HttpConfig(port=0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                said = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert said == UNACKNOWLEDGED_SECONDS * 1_000


@pytest.mark.parametrize("host", ["no such machine", "a" * 300, "192.0.2.1"])
def test_a_host_that_is_not_here_is_told_and_not_taken_for_a_port_in_use(host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot listen on .*correct --host") as told:
        _bind_socket(HttpConfig(host=host, port=0))
    assert "running already" not in str(told.value)


def test_what_is_pasted_has_a_place_for_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    _print_client_setup(GatewayConfig(auth=AuthConfig((ApiKey.from_secret("a secret key"),))), 8787)
    said = capsys.readouterr().out
    assert '"Authorization": "Bearer YOUR_KEY"' in said
    assert (
        "claude mcp add --transport http toolcrib http://127.0.0.1:8787/mcp "
        '--header "Authorization: Bearer YOUR_KEY"\n'
    ) in said
    assert "Models are served" not in said


def test_the_address_of_the_models_is_told_for_each_api(capsys: pytest.CaptureFixture[str]) -> None:
    local = LlmUpstreamConfig("local", "messages", "http://127.0.0.1:1")
    _print_client_setup(
        GatewayConfig(http=HttpConfig(host="::"), llm_gateway=LlmGatewayConfig((local,))), 8787
    )
    said = capsys.readouterr().out
    assert "Models are served at http://[::1]:8787." in said
    assert "ANTHROPIC_BASE_URL=http://[::1]:8787\n" in said
    assert "OPENAI" not in said and "--header" not in said
    other = LlmUpstreamConfig("other", "openai", "http://127.0.0.1:2")
    _print_client_setup(GatewayConfig(llm_gateway=LlmGatewayConfig((local, other))), 8787)
    assert "OPENAI_BASE_URL=http://127.0.0.1:8787/v1\n" in capsys.readouterr().out
