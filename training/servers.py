"""Split tools by server, so that the tests are on servers that the training has never seen.

The same server appears in several catalogs and under several names. Servers belong to one group if
their names have the same words, without scopes and words such as "mcp", if the whole name of one is a
product in the name of the other ("linear" and "tacticlaunch linear"), or if they share tools. A group is
on one side of the split.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Final, Literal

from toolcrib.core.tool import Tool

Key = tuple[str, str]
Side = Literal["train", "dev", "test"]

# Of twenty groups, one chooses settings and three are tested; a fifth takes no part in training.
GROUPS: Final = 20
DEV, TEST = frozenset({0}), frozenset({1, 2, 3})
# Two servers with this share of common tools, of the smaller one, are the same server.
COMMON_TOOLS: Final = 0.3
# A shorter description does not identify a tool.
MIN_DESCRIPTION_CHARS: Final = 40
# A text that more servers have is boilerplate.
MAX_SHARING: Final = 12

# A catalog with thousands of APIs of one word each, such as "convert": these are not products.
API_DIRECTORY: Final = "toolbench"
# A word in the names of more servers is not a product.
MAX_PRODUCT_SERVERS: Final = 60

_WORDS = re.compile(r"[a-z0-9]+")
_STOP_WORDS: Final = frozenset(
    _WORDS.findall(
        "mcp server servers modelcontextprotocol model context protocol api apis tool tools client service integration "
        "official smithery ai the for and of a an with by to io com dev app js ts py python node"
    )
)

_GENERIC_WORDS: Final = frozenset(
    _WORDS.findall(
        "search google open agent database aws crypto weather db browser memory graph prompt analytics docs test "
        "documentation fetch fetcher time file files price shell local toolbox x map maps finance email book max meta "
        "notes lab llm workspace markdown calculator web code data image news video chat cloud assistant hub"
    )
)


def normalize_server(name: str) -> str:
    """Return the words that identify a server: "@acme/linear-mcp" and "Linear MCP Server" are "linear"."""
    scope, separator, rest = name.rpartition("/")
    words = _list_words(rest)
    return " ".join(words or (_list_words(scope) if separator else []) or [name.strip().lower()])


def split_servers(tools: Mapping[Key, Tool]) -> dict[Key, Side]:
    """Return the side of each tool. All tools of a group of servers are on the same side."""
    groups = _Groups()
    by_server: dict[Key, list[Key]] = defaultdict(list)
    for key, tool in tools.items():
        by_server[key[0], _server_name(key, tool)].append(key)
    names = {server: normalize_server(server[1]) for server in by_server}
    products = _find_products({name for (catalog, _), name in names.items() if catalog != API_DIRECTORY})
    for server, name in names.items():
        for part in {name, *products.intersection(name.split())}:
            groups.join(server, ("", part))
    for one, other in _find_copies(tools, by_server):
        groups.join(one, other)
    sides: dict[Key, Side] = {}
    for server, keys in by_server.items():
        side = _choose_side(groups.find(server))
        sides |= dict.fromkeys(keys, side)
    return sides


def _find_products(names: Set[str]) -> set[str]:
    """Return the names of one word that are not too common in other names."""
    count = Counter(word for name in names for word in name.split())
    return {name for name in names if 0 < count[name] <= MAX_PRODUCT_SERVERS} - _GENERIC_WORDS


def _list_words(name: str) -> list[str]:
    found = _WORDS.findall(name.lower())
    return sorted({word for word in found if word not in _STOP_WORDS})


def _server_name(key: Key, tool: Tool) -> str:
    """Return the name of the tool's server. Ids such as "@acme/linear::list" contain it, too."""
    return tool.server or key[1].rpartition("::")[0] or key[1]


def _find_copies(tools: Mapping[Key, Tool], by_server: Mapping[Key, list[Key]]) -> Iterable[tuple[Key, Key]]:
    """Yield pairs of servers that have many tools in common."""
    sharing: dict[str, set[Key]] = defaultdict(set)
    for server, keys in by_server.items():
        for key in keys:
            description = " ".join(tools[key].description.split()).lower()
            if len(description) >= MIN_DESCRIPTION_CHARS:
                sharing[description].add(server)
    common: dict[tuple[Key, Key], int] = defaultdict(int)
    for servers in sharing.values():
        if 1 < len(servers) <= MAX_SHARING:
            ordered = sorted(servers)
            for at, one in enumerate(ordered):
                for other in ordered[at + 1 :]:
                    common[one, other] += 1
    for (one, other), count in common.items():
        if count >= COMMON_TOOLS * min(len(by_server[one]), len(by_server[other])):
            yield one, other


def _choose_side(group: Key) -> Side:
    digest = hashlib.blake2b("\0".join(group).encode(), digest_size=4).digest()
    place = int.from_bytes(digest) % GROUPS
    return "dev" if place in DEV else "test" if place in TEST else "train"


class _Groups:
    """Disjoint sets. The first member in order names a set, so that its side does not depend on the order."""

    def __init__(self) -> None:
        self._parents: dict[Key, Key] = {}

    def find(self, member: Key) -> Key:
        """Return the name of a member's set."""
        root = member
        while self._parents.get(root, root) != root:
            root = self._parents[root]
        self._parents[member] = root
        return root

    def join(self, one: Key, other: Key) -> None:
        """Make one set of the sets of two members."""
        first, second = sorted((self.find(one), self.find(other)))
        self._parents[second] = first
