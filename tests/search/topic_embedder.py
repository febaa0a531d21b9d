"""An embedder for tests: one dimension for each of a few topics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

TOPICS = (
    ("mail", "email", "letter", "post"),
    ("money", "refund", "bill", "invoice", "pay"),
    ("weather", "rain", "sun"),
    ("issue", "bug", "ticket"),
)


class TopicEmbedder:
    """Counts the words of each topic, and records the tools that it embeds."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([_vector(text) for text in texts], np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        self.read += texts
        return self.embed_queries(texts)


class ProvisionalTopicEmbedder(TopicEmbedder):
    """Returns uninformative provisional vectors."""

    def embed_provisional(self, texts: Sequence[str]) -> Vectors:
        # Slightly similar to everything.
        return np.full((len(texts), len(TOPICS)), 0.1, np.float32)


def _vector(text: str) -> list[float]:
    lower = text.lower()
    found = [float(sum(word in lower for word in words)) for words in TOPICS]
    return found
