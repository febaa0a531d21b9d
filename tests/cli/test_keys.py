"""`toolcrib keys`: keys of a running gateway, and budgets that its LLM gateway enforces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from click.testing import CliRunner, Result

from tests.gateway.serving import GatewayProcess, running_gateway, write_json
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.cli.main import toolcrib

ADMIN = "a-key-for-the-tests"
# A key without a name, whose budget counts nevertheless.
SMALL = "a-key-for-one-request"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with keys in its configuration, in front of a scripted model."""
    folder: Path = tmp_path_factory.mktemp("keys")
    with ScriptedModel(lambda request: Turn("Hello")) as model:
        config = {
            "mcpServers": {},
            "profiles": {"few": {"servers": []}},
            "models": {"local": {"api": "openai", "url": model.url}},
            "auth": {"keys": [{"key": ADMIN, "name": "admin"}, {"key": SMALL, "requestsPerDay": 1}]},
        }
        write_json(folder / "toolcrib.json", config)
        with running_gateway(folder) as gateway:
            yield gateway


def run(gateway: GatewayProcess, *arguments: str, key: str = ADMIN) -> Result:
    arguments = ("keys", *arguments, "--url", gateway.url, "--key", key)
    return CliRunner(env={"COLUMNS": "100"}).invoke(toolcrib, arguments)


def ask(gateway: GatewayProcess, key: str) -> str:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as client:
        return str(client.responses.create(model="m", input="Hi").output_text)


def test_key_is_created_with_a_budget_that_can_be_changed_until_it_is_revoked(gateway: GatewayProcess) -> None:
    created = run(gateway, "create", "phone", "--requests-per-day", "1", "--tokens-per-day", "5000000")
    assert created.exit_code == 0, created.output
    secret = created.stdout.strip()
    assert ask(gateway, secret) == "Hello"
    with pytest.raises(openai.RateLimitError, match="'phone' has used 1 of its 1 requests for today"):
        ask(gateway, secret)
    assert "phone" in run(gateway, "list").stdout and "of 5,000,000 tokens" in run(gateway, "list").stdout
    assert run(gateway, "budget", "phone").stdout == "The budget of phone is changed.\n"
    assert ask(gateway, secret) == "Hello"
    (row,) = (key for key in json.loads(run(gateway, "list", "--json").stdout) if key["name"] == "phone")
    assert (row["tokens_per_day"], row["requests_per_day"]) == (None, None)
    assert run(gateway, "revoke", "phone").exit_code == 0
    with pytest.raises(openai.AuthenticationError):
        ask(gateway, secret)


def test_budget_of_a_configured_key_without_a_name_is_enforced(gateway: GatewayProcess) -> None:
    assert ask(gateway, SMALL) == "Hello"
    with pytest.raises(openai.RateLimitError, match="has used 1 of its 1 requests"):
        ask(gateway, SMALL)


def test_first_key_has_full_access_and_is_announced(tmp_path: Path) -> None:
    write_json(tmp_path / "toolcrib.json", {"mcpServers": {}, "profiles": {"guest": {}}})
    with running_gateway(tmp_path) as gateway:
        refused = run(gateway, "create", "guest", "--profile", "guest", key="")
        assert refused.exit_code == 1 and "the first key needs full access" in refused.output
        first = run(gateway, "create", "admin", key="")
        assert first.stderr == "This is the first key. From now on, every client needs a key.\n"
        second = run(gateway, "create", "guest", "--profile", "guest", key=first.stdout.strip())
        assert (second.exit_code, second.stderr) == (0, "")


def test_mistakes_end_in_one_line_with_the_cure(gateway: GatewayProcess) -> None:
    assert "does not exist; there are: " in run(gateway, "revoke", "nobody").output
    assert "is in toolcrib.json; change it there" in run(gateway, "budget", "admin").output
    assert "no access profile 'none'" in run(gateway, "create", "x", "--profile", "none").output
    assert "pass its key with --key" in run(gateway, "list", key="wrong").output
    few = run(gateway, "create", "few", "--profile", "few").stdout.strip()
    assert run(gateway, "list", key=few).stderr.endswith("a key with full access; yours has an access profile\n")
    refused = gateway.request("/api/keys", ADMIN, {"name": "x", "tokensPerDay": "many"})
    assert refused.status == 400 and "`tokensPerDay` must be a number from 0" in refused.json["error"]
