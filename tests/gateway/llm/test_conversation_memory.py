from __future__ import annotations

from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory


def test_scoped_memory_is_private_to_owner() -> None:
    memory = ConversationMemory(10)
    recall = ScopedMemory(memory, "ann", "key")
    recall.put(["hidden"], "call", "call_1")
    assert recall.get("call", "call_1") == ["hidden"]
    assert recall.get("call", "call_2") is None
    assert ScopedMemory(memory, "bob", "key").get("call", "call_1") is None
    assert recall.narrow("a conversation").get("call", "call_1") is None


def test_least_recently_used_entry_is_evicted() -> None:
    memory = ConversationMemory(2)
    memory.put("a", 1)
    memory.put("b", 2)
    memory.get("a")
    memory.put("c", 3)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (1, None, 3)


def test_memory_is_limited_by_bytes() -> None:
    memory = ConversationMemory(1_000, max_bytes=1_000)
    for number in range(100):
        memory.put(str(number), "x" * 100)
    assert 0 < len(memory) < 10
    memory.put("large", "x" * 2_000)
    assert memory.get("large") is None
    memory.put("99", "y")
    assert memory.get("99") == "y"
