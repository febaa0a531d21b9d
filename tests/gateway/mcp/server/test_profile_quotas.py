"""A client over the quotas of its access profile gets an error that names the quota and the time to wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import PROFILE, STATELESS, build_config, call_text, connect_client, gateway, plain_server
from toolcrib.config.settings import AccessProfile
from toolcrib.gateway.mcp.server.router import QUOTA_EXCEEDED_CODE, McpRouter
from toolcrib.storage.audit import AuditFilter

pytestmark = pytest.mark.anyio

PROFILES = (
    *(AccessProfile(f"calls-{revision}", calls_per_minute=1) for revision in ("legacy", STATELESS)),
    *(AccessProfile(f"searches-{revision}", searches_per_minute=1) for revision in ("legacy", STATELESS)),
    AccessProfile("free"),
)
BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(plain_server("one", ["echo"]), profiles=PROFILES)) as router:
        yield router


@BOTH_REVISIONS
@pytest.mark.parametrize(
    ("quota", "tool", "arguments"),
    [("calls", "one___echo", {"text": "hi"}), ("searches", "search_tools", {"query": "echo"})],
)
async def test_the_error_names_the_quota_and_the_wait(
    router: McpRouter, revision: str, quota: str, tool: str, arguments: dict[str, str]
) -> None:
    PROFILE.set(f"{quota}-{revision}")
    async with connect_client(router, revision) as connected:
        await connected.call_tool(tool, arguments)
        with pytest.raises(MCPError, match=f"{quota}PerMinute") as refused:
            # The third call is needed only if a new minute begins between the first two.
            for _ in range(2):
                await connected.call_tool(tool, arguments)
        assert refused.value.error.code == QUOTA_EXCEEDED_CODE
        assert refused.value.error.data["retryAfterSeconds"] in range(1, 61)
    PROFILE.set("free")
    async with connect_client(router, revision) as other:
        assert await call_text(other, "one___echo", {"text": "hi"})


async def test_a_refused_call_is_in_the_audit_log(router: McpRouter) -> None:
    router.audit.flush()
    rows = router.hub.store.list_audit(AuditFilter(), 100)
    assert [row.profile for row in rows if row.outcome == "refused" and "callsPerMinute" in row.details["error"]]
