"""Patches that are planned and not written yet, on this machine and on others.

Source: docs/tools.md, "Patches"; docs/environments.md, "Threads in an environment".
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio.to_thread

from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.client.remote_patch import planned_elsewhere
from app_server.patch.parse import Patch
from app_server.patch.plan import Plan, plan_patch
from app_server.patch.recovery import changing_files
from app_server.patch.write import new_token, write_plan
from app_server.permissions.confinement.confinement import Confinement
from app_server.tools.environments import NoEnvironment
from app_server.turns.recorder import TurnRecorder
from protocol.log.rollout import FilesChanging


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """A patch that was checked as a whole."""

    plan: Plan
    """What it does."""
    write: Callable[[], Awaitable[None]]
    """Makes all changes; raises NotWritten, see `write_plan`."""
    token: str | None = None
    """That of `write_plan`."""
    environment_id: str | None = None
    """The other machine whose files it changes, which the next process cannot look at."""

    async def note(self, item_id: str, recorder: TurnRecorder) -> None:
        """Write down what the next process has to know if this one dies in the middle.

        Raises:
            OSError: the thread's log cannot be written.
        """
        record = FilesChanging(
            at_ms=recorder.now_ms(),
            turn_id=recorder.turn_id,
            item_id=item_id,
            environment_id=self.environment_id,
            files=await anyio.to_thread.run_sync(changing_files, self.plan, self.token),
        )
        await recorder.log.append(record, sync=False)


async def planned_here(patch: Patch, cwd: str, confinement: Confinement) -> PlannedPatch:
    """Plan a patch of this machine's files.

    Raises:
        PatchFailed: see `plan_patch`.
    """
    plan = await anyio.to_thread.run_sync(plan_patch, patch, cwd, confinement)
    token = new_token()
    write = partial(anyio.to_thread.run_sync, write_plan, plan, token)
    return PlannedPatch(plan=plan, write=write, token=token)


@asynccontextmanager
async def planned_there(
    environment_id: str, started: AbstractAsyncContextManager[RemoteProcess], text: str
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
        yield PlannedPatch(plan=patch.plan, write=patch.write, environment_id=environment_id)
