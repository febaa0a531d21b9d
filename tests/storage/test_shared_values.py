"""Values that replicas share: their expiry, one-time values, leases and limits. Run on every kind of store."""

from __future__ import annotations

from threading import Thread

from toolcrib.storage import open_store
from toolcrib.storage.shared_values import PRUNE_WRITES, SharedValue
from toolcrib.storage.store import Store


def put(store: Store, *keys: str, body: str = "1", expires_at: float = 100.0, now: float = 0.0) -> None:
    store.put_values([SharedValue("session", key, body, expires_at) for key in keys], now=now)


def test_a_value_is_returned_until_it_expires(store: Store) -> None:
    put(store, "a", "b")
    assert store.get_values("session", ["a", "b", "c"], 99.0) == {"a": "1", "b": "1"}
    assert store.get_values("session", ["a"], 100.0) == {}
    assert store.get_values("login", ["a"], 0.0) == {}


def test_a_value_replaces_the_one_before(store: Store) -> None:
    put(store, "a")
    put(store, "a", body="2")
    assert store.list_values("session", 0.0) == {"a": "2"}


def test_extending_a_value_never_shortens_it(store: Store) -> None:
    put(store, "a", expires_at=50.0)
    put(store, "b", expires_at=500.0)
    store.extend_values("session", ["a", "b", "missing"], 200.0)
    assert set(store.list_values("session", 199.0)) == {"a", "b"}
    assert set(store.list_values("session", 400.0)) == {"b"}


def test_a_value_can_be_taken_once(store: Store) -> None:
    put(store, "a")
    assert store.take_value("session", "a", 0.0) == "1"
    assert store.take_value("session", "a", 0.0) is None


def test_an_expired_value_cannot_be_taken(store: Store) -> None:
    put(store, "a", expires_at=1.0)
    assert store.take_value("session", "a", 2.0) is None


def test_one_of_many_takers_gets_a_value(store: Store) -> None:
    put(store, "a")
    taken: list[str | None] = []
    threads = [Thread(target=lambda: taken.append(store.take_value("session", "a", 0.0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(value or "" for value in taken) == [""] * 7 + ["1"]


def test_a_lease_has_one_holder_until_it_expires(store: Store) -> None:
    assert store.take_lease("server", "one", 0.0, 10.0) == "one"
    assert store.take_lease("server", "two", 9.0, 10.0) == "one"
    assert store.take_lease("server", "one", 9.0, 10.0) == "one"
    assert store.take_lease("server", "two", 18.0, 10.0) == "one"
    assert store.take_lease("server", "two", 19.0, 10.0) == "two"


def test_a_released_lease_can_be_taken(store: Store) -> None:
    store.take_lease("server", "one", 0.0, 10.0)
    store.release_lease("server", "two")
    assert store.take_lease("server", "two", 1.0, 10.0) == "one"
    store.release_lease("server", "one")
    assert store.take_lease("server", "two", 1.0, 10.0) == "two"


def test_replicas_that_ask_at_the_same_time_agree_on_the_holder(postgres_url: str) -> None:
    stores = [open_store(postgres_url) for _ in range(4)]
    holders: list[str] = []

    def take(number: int) -> None:
        holders.append(stores[number].take_lease("server", str(number), 0.0, 10.0))

    threads = [Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert len(holders) == 4
    assert len(set(holders)) == 1


def test_expired_values_are_deleted(store: Store) -> None:
    put(store, "old", expires_at=1.0)
    put(store, *(f"new {number}" for number in range(PRUNE_WRITES)), now=2.0)
    assert "old" not in store.list_values("session", 0.0)


def test_the_newest_values_are_listed_up_to_a_limit(store: Store) -> None:
    for number in range(5):
        put(store, str(number), expires_at=100.0 + number)
    assert set(store.list_values("session", 0.0, limit=2)) == {"3", "4"}
