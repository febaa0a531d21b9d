from __future__ import annotations

import logging
import socket
import sys

import anyio
import pytest

from toolcrib.cli.gateway.launch import configure_logging
from toolcrib.cli.gateway.serve import UNACKNOWLEDGED_SECONDS, bind_socket, print_client_setup
from toolcrib.config.settings import ApiKey, AuthConfig, GatewayConfig, HttpConfig, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import InvalidConfig


@pytest.mark.skipif(sys.platform != "linux", reason="needs TCP_USER_TIMEOUT")
def test_connections_have_a_send_timeout() -> None:
    with bind_socket(HttpConfig(port=0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                milliseconds = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert milliseconds == UNACKNOWLEDGED_SECONDS * 1_000


@pytest.mark.parametrize("host", ["no such machine", "a" * 300, "192.0.2.1"])
def test_wrong_host_is_not_reported_as_a_port_in_use(host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot listen on .*check --host") as error:
        bind_socket(HttpConfig(host=host, port=0))
    assert "already running" not in str(error.value)


def test_client_setup_has_a_placeholder_for_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    print_client_setup(GatewayConfig(auth=AuthConfig((ApiKey.from_secret("a secret key"),))), 8787)
    output = capsys.readouterr().out
    assert '"Authorization": "Bearer YOUR_KEY"' in output
    assert (
        'claude mcp add --transport http toolcrib http://127.0.0.1:8787/mcp --header "Authorization: Bearer YOUR_KEY"\n'
    ) in output
    assert "LLM gateway" not in output


def test_client_setup_has_the_url_of_each_api(capsys: pytest.CaptureFixture[str]) -> None:
    local = LlmUpstreamConfig("local", "messages", "http://127.0.0.1:1")
    print_client_setup(GatewayConfig(http=HttpConfig(host="::"), llm_gateway=LlmGatewayConfig((local,))), 8787)
    output = capsys.readouterr().out
    assert "LLM gateway: http://[::1]:8787." in output
    assert "ANTHROPIC_BASE_URL=http://[::1]:8787\n" in output
    assert "OPENAI" not in output and "--header" not in output
    other = LlmUpstreamConfig("other", "openai", "http://127.0.0.1:2")
    print_client_setup(GatewayConfig(llm_gateway=LlmGatewayConfig((local, other))), 8787)
    assert "OPENAI_BASE_URL=http://127.0.0.1:8787/v1\n" in capsys.readouterr().out


def test_errors_of_ended_sessions_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    root, logger = logging.getLogger(), logging.getLogger("mcp.server.streamable_http")
    handlers = list(root.handlers)
    loggers = [root, *map(logging.getLogger, [*root.manager.loggerDict])]
    levels = [one.level for one in loggers]
    configure_logging()
    try:
        logger.error("it came late", exc_info=anyio.ClosedResourceError())
        logger.error("it is broken", exc_info=ValueError("odd"))
    finally:
        root.handlers[:] = handlers
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
    output = capsys.readouterr().err
    assert "it is broken" in output and "it came late" not in output
