"""host: commands of exec servers, as the app-server sees them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from app_server.host.exec.client.process import RemoteCommand, RemoteProcess
from tests.support.harness import WAIT_S


async def test_a_start_that_is_given_up_ends_the_command_that_starts_all_the_same() -> None:
    answered, left = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def running() -> AsyncIterator[RemoteProcess]:
        with anyio.CancelScope(shield=True):
            # The exec server answers although nobody waits for it any more.
            await answered.wait()
        try:
            yield RemoteProcess(1, 1024, lambda *_: None, lambda _: None)
        finally:
            left.set()

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as starting:

                    async def start() -> None:
                        await RemoteCommand.start(
                            running(), lambda *_: None, tasks, takes_input=False
                        )

                    starting.start_soon(start)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            answered.set()
            await left.wait()


async def test_a_fault_of_ours_in_one_command_reaches_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = RemoteProcess(1, 1024, lambda *_: None, lambda _: None)

    @asynccontextmanager
    async def running() -> AsyncIterator[RemoteProcess]:
        yield process

    @asynccontextmanager
    async def broken() -> AsyncIterator[RemoteProcess]:
        raise ValueError("broken")
        yield process

    def on_output(*_: object) -> None:
        raise ValueError("broken")

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            with pytest.raises(OSError, match=r"^it could not be started$"):
                await RemoteCommand.start(broken(), on_output, tasks, takes_input=False)
            command = await RemoteCommand.start(running(), on_output, tasks, takes_input=False)
            process.feed("stdout", b"x")
            await command.finished.wait()
            assert command.returncode == -9
    assert caplog.text.count("a command in another environment broke") == 2
