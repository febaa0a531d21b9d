"""Read a file from a URL that the user has chosen."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any, NoReturn

from toolcrib.errors import InvalidConfig


def fetch_remote_file(url: str, max_bytes: int, timeout_seconds: float, *, uses_proxy: bool = True) -> bytes:
    """Return the content at a URL; raise `InvalidConfig` if it can't be read, is too large or redirects."""
    request = urllib.request.Request(url, headers={"Accept": "application/json, application/yaml;q=0.9, */*;q=0.1"})
    opener = urllib.request.build_opener(_NoRedirects, *[urllib.request.ProxyHandler({})] * (not uses_proxy))
    try:
        with opener.open(request, timeout=timeout_seconds) as response:
            content: bytes = response.read(max_bytes + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise InvalidConfig(f"{url} returned HTTP {error.code}; check the address") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InvalidConfig(f"{url}: cannot be read: {getattr(error, 'reason', error)}") from None
    if len(content) > max_bytes:
        raise InvalidConfig(f"{url}: is larger than {max_bytes // 1024**2} MiB")
    return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the user has chosen this address and no other."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> NoReturn:
        fp.close()
        raise InvalidConfig(f"{req.full_url} redirects to {newurl}; pass that address if you trust it")
