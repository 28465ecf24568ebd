"""Tasks that answer requests: one takes request after request, for as long as none has to wait.

A task costs more than the answer to a quick request. So the requests of a connection queue up for
one task, the runner. A request that waits keeps the runner for itself: what it binds to its task,
such as a timeout or a scope, is its own. Those behind it go on without it.
Source: docs/architecture.md, "What a request costs".
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVarTuple, Unpack

Arguments = TypeVarTuple("Arguments")

Work: TypeAlias = Coroutine[Any, Any, None]

REQUESTS_AT_ONCE = 32
"""Requests that are answered without waiting before others may run."""


class Runners:
    """The tasks of one connection; they end with its task group.

    What a request raises ends its task and concerns no other request; the group takes it as it
    takes what any task raises. A request finds the context variables that one before it has set:
    it sets its own at its begin.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._queued: deque[tuple[Callable[..., Work], tuple[Any, ...]]] = deque()
        self._runner: asyncio.Task[None] | None = None
        """Who takes what is queued; None while nothing is."""
        self._context = copy_context()

    def start_soon(
        self, answer: Callable[[Unpack[Arguments]], Work], *arguments: *Arguments
    ) -> None:
        """Begin a request once those before it have begun."""
        self._queued.append((answer, arguments))
        if self._runner is None:
            self._runner = self._create(self._run())

    async def _run(self) -> None:
        runner = self._runner
        assert runner is not None
        # It is called before the runner goes on, whatever that waits for.
        asyncio.get_running_loop().call_soon(self._leave_waiting, runner)
        left = REQUESTS_AT_ONCE
        try:
            while self._queued and left and not runner.cancelling():
                left -= 1
                answer, arguments = self._queued.popleft()
                await answer(*arguments)
                if self._runner is not runner:
                    return
        finally:
            if self._runner is runner:
                self._runner = self._create(self._run()) if self._queued else None

    def _leave_waiting(self, runner: asyncio.Task[None]) -> None:
        """Leave a runner to its request if that waits, and start a task for each one behind it.

        One more runner for all these would be held up by every one of them that waits.
        """
        if self._runner is runner:
            self._runner = None
            while self._queued:
                answer, arguments = self._queued.popleft()
                self._create(answer(*arguments))

    def _create(self, work: Work) -> asyncio.Task[None] | None:
        try:
            return self._tasks.create_task(work, context=self._context.copy())
        except RuntimeError:
            # The group ends, and with it what has not begun.
            work.close()
            return None
