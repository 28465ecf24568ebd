"""The order in which a server takes what a dead node left behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from app_server.server.ownership import Ownership
from app_server.threads.nodes import LeaseNews, Node, Owner
from tests.support.harness import WAIT_S, serve


@dataclass
class OneDied:
    """A group in which the other node has died, and left threads behind."""

    left: Sequence[str]
    own_id: str = "this one"
    is_held: bool = True
    next_death: anyio.Event = field(default_factory=anyio.Event)
    looked: anyio.Event = field(default_factory=anyio.Event)
    """Set when what was left behind is asked for again: it has all been taken."""

    def now_s(self) -> float:
        return 0.0

    async def owner(self, thread_id: str) -> Owner | None:
        return None

    async def all(self) -> Sequence[Node]:
        return []

    async def require_lease(self) -> None:
        return

    async def news(self) -> LeaseNews:
        await anyio.sleep_forever()
        raise AssertionError

    async def announce_settings(self, digest: str) -> None:
        return

    async def loaded_elsewhere(self, after: str | None, limit: int) -> Sequence[str]:
        return []

    async def left_behind(self) -> Sequence[str]:
        left, self.left = self.left, []
        if not left:
            self.looked.set()
        return left


async def test_threads_that_clients_follow_come_first(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        sessions = served.services.sessions
        first, second, third, fourth = [await client.start_thread() for _ in range(4)]
        for thread_id in (first, second, fourth):
            await client.call("thread/unsubscribe", {"threadId": thread_id})
        for thread_id in (first, second, third, fourth):
            await sessions.unload(thread_id)
        nodes = OneDied([first, second, third, fourth])

        def has_subscribers(thread_id: str) -> bool:
            return thread_id in (third, fourth)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Ownership(served.services, nodes, has_subscribers, max_at_once=1).run)
            with anyio.fail_after(WAIT_S):
                await nodes.looked.wait()
            tasks.cancel_scope.cancel()
        assert sessions.ids == [third, fourth, first, second]


@dataclass
class DiesDuringALook(OneDied):
    """A group in which another node dies while it is looked at what the first left behind."""

    looks: int = 0

    async def left_behind(self) -> Sequence[str]:
        self.looks += 1
        if self.looks == 1:
            self.die()
        else:
            self.looked.set()
        return []

    def die(self) -> None:
        self.next_death.set()
        self.next_death = anyio.Event()


async def test_a_death_during_a_look_is_followed_by_the_next_look(tmp_path: Path) -> None:
    nodes = DiesDuringALook([])
    async with serve(tmp_path) as served, anyio.create_task_group() as tasks:
        has_subscribers = served.services.hub.has_subscribers
        acting = Ownership(served.services, nodes, has_subscribers, look_s=10 * WAIT_S)
        tasks.start_soon(acting.run)
        await anyio.wait_all_tasks_blocked()
        nodes.die()
        with anyio.fail_after(WAIT_S):
            await nodes.looked.wait()
        tasks.cancel_scope.cancel()
