"""A connection to a host by whichever of its addresses answers first."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

# How long an address may take before the next is tried besides.
HEAD_START_SECONDS: Final = 0.25
MAX_ADDRESSES: Final = 16

# What the resolver says: family, type, protocol, canonical name, address.
_Address = tuple[Any, Any, int, str, Any]


async def connected(host: str, port: int) -> socket.socket:
    """A socket that is connected there; raises `OSError` if none of its addresses can be reached."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = by_turns(found)[:MAX_ADDRESSES]
    if not addresses:
        raise OSError(f"{host} has no address")
    if len(addresses) == 1:
        return await _open(addresses[0])
    return await _first(addresses)


def by_turns(addresses: Sequence[_Address]) -> list[_Address]:
    """Addresses with the kinds by turns, as one kind may not work at all; the resolver's first first."""
    kinds: dict[Any, list[_Address]] = {}
    for one in addresses:
        kinds.setdefault(one[0], []).append(one)
    return [one for turn in zip_longest(*kinds.values()) for one in turn if one is not None]


async def _first(addresses: Sequence[_Address]) -> socket.socket:
    waiting = list(addresses)
    trying: set[asyncio.Task[socket.socket]] = set()
    fault: BaseException = OSError("no address answers")
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.ensure_future(_open(waiting.pop(0))))
            done, trying = await asyncio.wait(
                trying,
                timeout=HEAD_START_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            opened = [one.result() for one in done if one.exception() is None]
            for spare in opened[1:]:
                spare.close()
            if opened:
                return opened[0]
            fault = next((one.exception() for one in done), None) or fault
        raise fault
    finally:
        await _let_go(trying)


async def _open(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    one = socket.socket(family, kind, protocol)
    try:
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, where)
    except BaseException:
        one.close()
        raise
    return one


async def _let_go(trying: set[asyncio.Task[socket.socket]]) -> None:
    for task in trying:
        task.cancel()
    for late in await asyncio.gather(*trying, return_exceptions=True):
        if isinstance(late, socket.socket):
            late.close()
