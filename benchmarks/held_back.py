"""Requests for tools that the encoder was not trained on, and catalogs with and without their servers.

A request for a tool of a server in the catalog is answerable. A request for a tool of another server is
impossible, unless a tool of the catalog has the same name or a similar vector. Both are the needs, direct
requests and capability phrases that were written for one tool each.
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from toolcrib.core.tool import Tool
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_table import normalize_vectors
from training.data import TrainingData

# Weights are fitted to the requests for half of the servers and measured on those for the other half.
Half = Literal["fit", "measure"]
MAX_TOOLS_PER_SERVER: Final = 8
# A catalog of the size of `mcp_catalog`.
MAX_TOOLS: Final = 5_744


class Request(NamedTuple):
    """A request, and whether a tool of the catalog serves it."""

    text: str
    is_answerable: bool


class RequestSource:
    """The tools of one catalog of real servers, and the requests for those that the encoder was not trained on."""

    def __init__(self, data: TrainingData, catalog: str, embedder: Embedder, half: Half) -> None:
        requests: dict[str, tuple[str, ...]] = {}
        for example in data.unseen_tools:
            if example.tool[0] == catalog:
                requests[example.tool[1]] = requests.get(example.tool[1], ()) + example.queries
        by_server: dict[str, list[Tool]] = defaultdict(list)
        for (name, _), tool in data.tools.items():
            if name == catalog:
                by_server[tool.server].append(tool)
        asked = sorted({server for server, tools in by_server.items() if any(tool.id in requests for tool in tools)})
        others = sorted(by_server.keys() - set(asked))
        random.Random(catalog).shuffle(others)
        # As many servers as fit, those with requests first.
        self.by_server: dict[str, list[Tool]] = {}
        for server in (*asked, *others):
            if sum(map(len, self.by_server.values())) + len(by_server[server]) <= MAX_TOOLS:
                self.by_server[server] = by_server[server]
        self.asked = [server for server in asked if server in self.by_server and _choose_half(server) == half]
        self.requests = {
            tool.id: requests[tool.id]
            for server in self.asked
            for tool in self.by_server[server]
            if tool.id in requests
        }
        tools = [tool for some in self.by_server.values() for tool in some]
        vectors = normalize_vectors(embedder.embed_tools([build_tool_text(tool) for tool in tools]))
        self._tools = {tool.id: tool for tool in tools}
        self._vectors = {tool.id: vector for tool, vector in zip(tools, vectors, strict=True)}

    def draw_catalog(self, count: int, chance: random.Random) -> list[Tool]:
        """Return this many tools of random servers; few of each for a small catalog.

        Every other server has requests, and at least half of the servers with requests are left out.
        """
        asked, others = list(self.asked), [server for server in self.by_server if server not in self.asked]
        chance.shuffle(asked)
        chance.shuffle(others)
        mixed = [server for pair in zip(asked[: len(asked) // 2], others, strict=False) for server in pair]
        drawn: list[Tool] = []
        for server in dict.fromkeys((*mixed, *others)):
            own = self.by_server[server]
            drawn += chance.sample(own, min(len(own), max(MAX_TOOLS_PER_SERVER, count // 20)))
            if len(drawn) >= count:
                break
        return drawn[:count]

    def remove_servers(self, part: int, parts: int) -> list[Tool]:
        """Return the tools without one of several parts of the servers with requests."""
        removed = set(self.asked[part::parts])
        return [tool for server, tools in self.by_server.items() if server not in removed for tool in tools]

    def draw_requests(
        self, tools: Sequence[Tool], chance: random.Random, *, count: int, max_similarity: float
    ) -> Iterator[Request]:
        """Yield up to this many requests of each kind, answerable and impossible."""
        ids = {tool.id for tool in tools}
        names, servers = {tool.name for tool in tools}, {tool.server for tool in tools}
        present = np.stack([self._vectors[tool.id] for tool in tools])
        outside = [
            id
            for id in self.requests
            if self._tools[id].server not in servers
            and self._tools[id].name not in names
            and float((present @ self._vectors[id]).max()) <= max_similarity
        ]
        for kind, is_answerable in (([id for id in self.requests if id in ids], True), (outside, False)):
            texts = [text for id in kind for text in self.requests[id]]
            for text in chance.sample(texts, min(len(texts), count)):
                yield Request(text, is_answerable)


def _choose_half(server: str) -> Half:
    digest = hashlib.blake2b(server.encode(), digest_size=4).digest()
    return "fit" if int.from_bytes(digest) % 2 else "measure"
