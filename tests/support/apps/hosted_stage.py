"""Clients of a hosted endpoint, and the pool of sessions between them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from app_server.apps.upstream.sessions import PoolLimits, UpstreamPool
from app_server.clients.demo.hosted.endpoint import Call, HostedConnector, text_result
from protocol.model import JsonObject
from tests.support.apps.hosted import Hosted, serve_hosted
from tests.support.harness import WAIT_S

ANSWER: JsonObject = {"action": "accept", "content": {"colour": None}, "_meta": {"by": ["hand"]}}


@dataclass
class Client:
    """A client of a local session; answers when it is let go."""

    asked: list[JsonObject] = field(default_factory=list)
    is_asked: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)

    async def elicit(self, params: JsonObject) -> JsonObject:
        self.asked.append(params)
        self.is_asked.set()
        await self.let_go.wait()
        return ANSWER


def answering() -> Client:
    client = Client()
    client.let_go.set()
    return client


@dataclass
class Stage:
    """A pool in front of a hosted endpoint."""

    hosted: Hosted
    pool: UpstreamPool

    async def call(self, tool: str, key: str = "key", client: Client | None = None) -> JsonObject:
        async with self.pool.session_of(key, client or answering()) as session:
            return await session.request("tools/call", {"name": tool, "arguments": {}})


@asynccontextmanager
async def stage(
    connectors: Sequence[HostedConnector] | None = None,
    *,
    elicitation: bool = True,
    limits: PoolLimits | None = None,
) -> AsyncIterator[Stage]:
    with anyio.fail_after(4 * WAIT_S):
        async with serve_hosted(connectors) as hosted, anyio.create_task_group() as tasks:
            pool = UpstreamPool(hosted.target(elicitation=elicitation), limits)
            await tasks.start(lambda task_status: pool.run(task_status=task_status))
            yield Stage(hosted, pool)
            pool.shut_down()
    assert (pool.counters.open, pool.counters.waiting) == (0, 0)


async def done(call: Call) -> JsonObject:
    return text_result("done")
