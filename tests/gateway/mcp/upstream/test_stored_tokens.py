"""OAuth tokens in the store: encrypted, shared by replicas, with keys that can be replaced."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import anyio
import pytest
from cryptography.fernet import Fernet

from tests.gateway.mcp.harness import build_config, call_text, connect_client, gateway, wait_until
from tests.gateway.mcp.upstream.test_login import log_in, serve_protected
from toolcrib.config.parser import parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig, InvalidStore
from toolcrib.gateway.mcp.upstream.oauth_tokens import OAuthGrant, require_token_place, rotate_tokens
from toolcrib.storage import open_store
from toolcrib.storage.store import Store

SERVER = ServerConfig("safe", url="https://one.example/mcp")
GRANT = OAuthGrant("an-access-token", "https://one.example/token", "client", refresh_token="a-refresh-token")
FIRST_KEY, SECOND_KEY = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def config_with_keys(*keys: str) -> GatewayConfig:
    return replace(build_config(SERVER), token_keys=keys)


def test_token_is_encrypted_and_readable_with_any_key(store: Store) -> None:
    old = require_token_place(config_with_keys(FIRST_KEY), store)(SERVER)
    assert old.load() is None
    old.save(GRANT)
    (body,) = store.list_tokens().values()
    assert b"token" not in body
    both = config_with_keys(SECOND_KEY, FIRST_KEY)
    assert require_token_place(both, store)(SERVER).load() == GRANT
    only_new = require_token_place(config_with_keys(SECOND_KEY), store)(SERVER)
    with pytest.raises(InvalidStore, match="encrypted with a key that is not in `tokenKeys`"):
        only_new.load()
    assert rotate_tokens(both, store) == 1
    assert rotate_tokens(both, store) == 0
    assert only_new.load() == GRANT
    other_url = require_token_place(config_with_keys(SECOND_KEY), store)(replace(SERVER, url="https://two.example"))
    assert other_url.load() is None
    assert only_new.delete() and not only_new.delete()


def test_only_one_replica_may_refresh_a_token_at_a_time(store: Store) -> None:
    place = require_token_place(config_with_keys(FIRST_KEY), store)(SERVER)
    place.save(GRANT)
    assert place.claim_refresh()
    assert not place.claim_refresh()
    place.save(GRANT)
    assert place.claim_refresh()


def test_postgresql_without_keys_names_the_setting(postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store, pytest.raises(InvalidStore, match='"tokenKeys" to encrypt them'):
        require_token_place(replace(build_config(SERVER), store=postgres_url), store)


@pytest.mark.parametrize("key", ["short", "x" * 44])
def test_invalid_key_is_refused_with_the_command_for_a_valid_one(key: str) -> None:
    with pytest.raises(InvalidConfig, match="openssl rand -base64 32") as raised:
        parse_config({"tokenKeys": [key]}, {})
    assert key not in str(raised.value)


@pytest.mark.anyio
async def test_two_gateways_use_one_login_and_refresh_it_once(postgres_url: str) -> None:
    async with serve_protected() as (authority, server):
        config = replace(build_config(server), store=postgres_url, token_keys=(FIRST_KEY,))
        grant = await log_in(server)
        assert grant
        with closing(open_store(postgres_url)) as store:
            await anyio.to_thread.run_sync(require_token_place(config, store)(server).save, grant)
        async with (
            gateway(config) as one,
            gateway(config) as two,
            connect_client(one) as first,
            connect_client(two) as second,
        ):
            await wait_until(lambda: one.pool.servers["safe"].connection and two.pool.servers["safe"].connection, 60)
            authority.access.clear()
            async with anyio.create_task_group() as tasks:
                for client in (first, second) * 3:
                    tasks.start_soon(call_text, client, "safe___greet")
            assert authority.renewals == 1
            assert await call_text(first, "safe___greet") == await call_text(second, "safe___greet") == "welcome"
