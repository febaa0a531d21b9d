"""Keys that are created at run time, and what keeps a gateway on the network closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.config.settings import ApiKey, AuthConfig, GatewayConfig, HttpConfig
from toolcrib.errors import InvalidConfig, RequestFailed
from toolcrib.gateway.auth import Authenticator, Principal
from toolcrib.gateway.keys import KeyRing
from toolcrib.hub.hub import Hub
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store


def open_hub(host: str = "127.0.0.1", *configured: ApiKey) -> Hub:
    config = GatewayConfig(http=HttpConfig(host=host), auth=AuthConfig(configured))
    return Hub(config, open_store("sqlite://"), {"lexical": LexicalRanker()})


@pytest.fixture
def hub() -> Iterator[Hub]:
    opened = open_hub("0.0.0.0")
    yield opened
    opened.close()


def is_accepted(ring: KeyRing, secret: str) -> bool:
    scope = {"headers": [(b"x-api-key", secret.encode())], "path": "/mcp", "method": "POST"}
    principal = Authenticator(ring.get_keys).authenticate(scope)
    return principal is not None and bool(principal.key_hash)


def test_created_key_is_accepted_until_it_is_revoked(hub: Hub) -> None:
    ring = KeyRing(hub)
    first, second = ring.create_key("first", None, "admin"), ring.create_key("second", None, "admin")
    assert is_accepted(ring, first.secret) and first.secret not in repr(first)
    assert ring.revoke_key(first.key.id).name == "first"
    assert not is_accepted(ring, first.secret) and is_accepted(ring, second.secret)
    with pytest.raises(RequestFailed, match="no such key"):
        ring.revoke_key(first.key.id)


def test_first_key_needs_full_access(hub: Hub) -> None:
    ring = KeyRing(hub)
    with pytest.raises(RequestFailed, match="the first key needs full access"):
        ring.create_key("guest", "guest", "")
    ring.create_key("admin", None, "")
    with pytest.raises(RequestFailed, match="there is no access profile 'guest'"):
        ring.create_key("guest", "guest", "")


def test_last_key_of_a_gateway_on_the_network_cannot_be_revoked(hub: Hub) -> None:
    ring = KeyRing(hub)
    created = ring.create_key("only", None, "")
    with pytest.raises(InvalidConfig, match="without keys"):
        ring.revoke_key(created.key.id)
    assert is_accepted(ring, created.secret)


def test_last_key_of_a_gateway_on_this_machine_can_be_revoked() -> None:
    hub = open_hub()
    ring = KeyRing(hub)
    ring.revoke_key(ring.create_key("only", None, "").key.id)
    assert ring.get_keys() == ()
    hub.close()


def test_keys_that_vanish_from_the_store_do_not_open_the_gateway(hub: Hub) -> None:
    ring = KeyRing(hub)
    created = ring.create_key("only", None, "")
    hub.store.delete_key(created.key.id)
    hub.refresh()
    assert is_accepted(ring, created.secret)
    assert "the keys in the store are gone" in hub.notices["keys"]


def test_damaged_store_does_not_open_a_gateway_on_this_machine(tmp_path: Path) -> None:
    def open_file_hub() -> Hub:
        store = open_store(f"sqlite:///{tmp_path / 'toolcrib.db'}", tmp_path / "toolcrib.journal")
        return Hub(GatewayConfig(), store, {"lexical": LexicalRanker()})

    first = open_file_hub()
    created = KeyRing(first).create_key("only", None, "")
    first.close()
    second = open_file_hub()
    ring = KeyRing(second)
    (tmp_path / "toolcrib.db").write_bytes(bytes(5_000))
    second.store.put_key(replace(created.key, id="other", hash="0" * 64, name="other"))
    second.store.delete_key("other")
    second.refresh()
    assert "trusted on first use" in second.notices["keys"] and is_accepted(ring, created.secret)
    second.close()
    third = open_file_hub()
    with pytest.raises(InvalidConfig, match=r"the keys in the store are gone.*toolcrib\.keys"):
        KeyRing(third)
    (tmp_path / "toolcrib.keys").unlink()
    ring = KeyRing(third)
    assert ring.get_keys() == ()
    ring.revoke_key(ring.create_key("new", None, "").key.id)
    assert not (tmp_path / "toolcrib.keys").exists()
    third.close()


def test_keys_of_other_processes_are_noticed(hub: Hub) -> None:
    ring, other = KeyRing(hub), KeyRing(hub)
    kept, revoked = other.create_key("kept", None, ""), other.create_key("revoked", None, "")
    hub.refresh()
    assert is_accepted(ring, kept.secret) and is_accepted(ring, revoked.secret)
    other.revoke_key(revoked.key.id)
    hub.refresh()
    assert is_accepted(ring, kept.secret) and not is_accepted(ring, revoked.secret)


def test_use_of_configured_and_created_keys_is_counted() -> None:
    hub = open_hub("127.0.0.1", ApiKey.from_secret("a-configured-key", None, "laptop"))
    ring = KeyRing(hub)
    created = ring.create_key("phone", None, "")
    for key in ring.get_keys():
        ring.count_use(Principal(key.name, None, key.hash))
    ring.count_use(Principal("phone", None, created.key.hash))
    ring.count_use(Principal("anyone"))
    ring.flush()
    rows = {row["name"]: row for row in ring.describe_keys()}
    assert {name: row["requests"] for name, row in rows.items()} == {"laptop": 1, "phone": 2}
    assert rows["laptop"]["last_used"] > 0 and "hash" not in str(rows)
    hub.close()
