"""What is published of an account: one inventory after the other, and its end."""

from typing import Any

import anyio

from app_server.apps.presentation import ApprovalTemplates
from app_server.apps.publishing import Publishing
from app_server.apps.routes.generation import Generation
from tests.support.apps.inventories import listed
from tests.support.apps.peer import FakePool, Guard
from tests.support.harness import WAIT_S


class ClosedPool(FakePool):
    """A pool that says when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.shut = anyio.Event()

    def shut_down(self) -> None:
        assert not self.shut.is_set()
        self.shut.set()


async def test_the_pool_is_closed_with_the_last_generation_that_somebody_uses() -> None:
    async def refresh() -> None:
        raise AssertionError("nobody signed in")

    pool: Any = ClosedPool()
    served: set[Generation] = set()
    async with anyio.create_task_group() as tasks:
        publishing = Publishing(
            tasks, pool, Guard(), None, ApprovalTemplates.load(), served, refresh
        )
        assert publishing.current is None
        assert await publishing.publish([listed("look")])
        first = publishing.current
        assert first is not None
        assert not await publishing.publish([listed("look")])
        assert publishing.current is first
        lease = first.generation.lease()
        assert await publishing.publish([listed("look"), listed("read")])
        second = publishing.current
        assert second is not None
        assert served == {first.generation, second.generation}
        publishing.end()
        assert publishing.current is None
        with anyio.fail_after(WAIT_S):
            await second.generation.ended()
            assert not pool.shut.is_set()
            lease.release()
            await pool.shut.wait()
        assert served == set()
