"""Patches that are planned and not written yet, on this machine and on others.

Source: docs/tools.md, "Patches"; docs/environments.md, "Threads in an environment".
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

import anyio.to_thread

from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.client.remote_patch import RemotePatch, planned_elsewhere
from app_server.patch.half_written import changing_files
from app_server.patch.parse import Patch
from app_server.patch.plan import Plan, plan_patch
from app_server.patch.write import new_token, write_plan
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.resolving import resolved
from app_server.tools.environments import NoEnvironment
from app_server.turns.recorder import TurnRecorder
from protocol.rollout import FilesChanging


class PlannedPatch(Protocol):
    """A patch that was checked as a whole."""

    @property
    def plan(self) -> Plan:
        """What it does."""

    async def before_writing(self, item_id: str) -> None:
        """Write down what the next process has to know if this one dies in the middle.

        Raises:
            OSError: the thread's log cannot be written.
        """

    async def write(self) -> None:
        """Make all changes.

        Raises:
            NotWritten: see `write_plan`.
        """


class PatchHere:
    """A patch of files of this machine."""

    def __init__(self, plan: Plan, recorder: TurnRecorder) -> None:
        self.plan = plan
        self._recorder = recorder
        self._token = new_token()

    async def before_writing(self, item_id: str) -> None:
        """See PlannedPatch."""
        await _note(self._recorder, item_id, self.plan, self._token, None)

    async def write(self) -> None:
        """See PlannedPatch."""
        await anyio.to_thread.run_sync(write_plan, self.plan, self._token)


class PatchElsewhere:
    """A patch of files of another machine, which the next process cannot look at."""

    def __init__(self, patch: RemotePatch, environment_id: str, recorder: TurnRecorder) -> None:
        self.plan = patch.plan
        self._patch = patch
        self._environment_id = environment_id
        self._recorder = recorder

    async def before_writing(self, item_id: str) -> None:
        """See PlannedPatch."""
        await _note(self._recorder, item_id, self.plan, None, self._environment_id)

    async def write(self) -> None:
        """See PlannedPatch."""
        await self._patch.write()


async def _note(
    recorder: TurnRecorder,
    item_id: str,
    plan: Plan,
    token: str | None,
    environment_id: str | None,
) -> None:
    record = FilesChanging(
        at_ms=recorder.now_ms(),
        turn_id=recorder.turn_id,
        item_id=item_id,
        environment_id=environment_id,
        files=await anyio.to_thread.run_sync(changing_files, plan, token),
    )
    await recorder.thread.append(record, sync=False)


@asynccontextmanager
async def planned_here(
    patch: Patch, cwd: str, confinement: Confinement, recorder: TurnRecorder
) -> AsyncIterator[PlannedPatch]:
    """Plan a patch of this machine's files.

    Raises:
        PatchFailed: see `plan_patch`.
    """
    plan = await anyio.to_thread.run_sync(lambda: plan_patch(patch, cwd, resolved(confinement)))
    yield PatchHere(plan, recorder)


@asynccontextmanager
async def planned_there(
    environment_id: str,
    started: AbstractAsyncContextManager[RemoteProcess],
    text: str,
    recorder: TurnRecorder,
) -> AsyncIterator[PlannedPatch]:
    """Plan a patch of another machine's files, which stays connected to until it is left.

    Raises:
        PatchFailed: see `plan_patch`.
        NoEnvironment: the machine is out of reach.
    """
    async with AsyncExitStack() as stack:
        try:
            patch = await stack.enter_async_context(planned_elsewhere(started, text))
        except OSError as exc:
            raise NoEnvironment(f"environment `{environment_id}`: {exc}") from exc
        yield PatchElsewhere(patch, environment_id, recorder)
