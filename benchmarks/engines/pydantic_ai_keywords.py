"""Pydantic AI's explicit `strategy="keywords"`, which scans every tool on every call."""

from benchmarks.engines.pydantic_ai import PydanticAI


def contender() -> PydanticAI:
    """Return the engine."""
    return PydanticAI("keywords")
