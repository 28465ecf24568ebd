"""A patch in another environment: planned there, and written there once it is allowed.

Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Patches".
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from pydantic import ValidationError

from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.protocol import MAX_PATCH_BYTES, line_of, plan_of
from app_server.patch.parse import EmptyPatch, NotApplicable, NotWritten
from app_server.patch.plan import Plan
from protocol.exec.files import PatchAllowed, PatchPlanned, PatchText, PatchWritten
from protocol.model import WireModel

Answer = TypeVar("Answer", bound=WireModel)

PLAN_S = 60.0
"""For a patch to be planned."""

WRITE_S = 60.0
"""Seconds to wait until the patch is written; after them its outcome is unknown."""

ALLOWED = line_of(PatchAllowed())

UNKNOWN_END = "it is not known which files were changed"


class RemotePatch:
    """A patch whose plan is known, and which the exec server holds on to."""

    def __init__(self, process: RemoteProcess, plan: Plan) -> None:
        self._process = process
        self.write_s = WRITE_S
        """Seconds to wait until the patch is written."""
        self.plan = plan
        """As of a patch of this machine; of the files it has texts and modes alone."""

    async def write(self) -> None:
        """Have all files written; to be called once.

        Raises:
            NotWritten: as `write_plan` says; or the connection was lost, and it is not known.
        """
        try:
            written = await _ask(self._process, ALLOWED, PatchWritten, self.write_s)
        except OSError as exc:
            raise NotWritten(f"Failed to write files: {exc}; {UNKNOWN_END}", None) from exc
        if written.failure is not None:
            raise NotWritten(written.failure, self._known(written.changed))

    def _known(self, changed: Sequence[int]) -> list[int]:
        return [number for number in changed if 0 <= number < len(self.plan.changes)]


@asynccontextmanager
async def planned_elsewhere(
    started: AbstractAsyncContextManager[RemoteProcess], text: str, *, plan_s: float = PLAN_S
) -> AsyncIterator[RemotePatch]:
    """Plan a patch on an exec server; `started` is from Environments.start_patch.

    The plan has `plan_s` seconds to come.

    Raises:
        PatchFailed: it cannot be applied, as `parse_patch` and `plan_patch` say.
        OSError: on entering; the environment is out of reach.
    """
    line = await anyio.to_thread.run_sync(line_of, PatchText(patch=text))
    if len(line) + len(ALLOWED) > MAX_PATCH_BYTES:
        raise NotApplicable(f"The patch has more than {MAX_PATCH_BYTES} bytes")
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(started)
        planned = await _ask(process, line, PatchPlanned, plan_s)
        if planned.failure is not None:
            raise (EmptyPatch if planned.is_empty else NotApplicable)(planned.failure)
        yield RemotePatch(process, await anyio.to_thread.run_sync(plan_of, planned))


async def _ask(
    process: RemoteProcess, question: bytes, kind: type[Answer], limit_s: float
) -> Answer:
    """Send one line and read the next.

    Raises:
        OSError: the connection was lost, or there was no answer in time that makes sense.
    """
    process.write(question)
    line = b""
    with anyio.move_on_after(limit_s) as scope:
        try:
            line = await process.stdout.readline()
        except ValueError as exc:
            raise ConnectionError("the exec server gave an answer that is too long") from exc
    if scope.cancelled_caught:
        raise ConnectionError(f"no answer in {limit_s:g} s")
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection to the exec server was lost")
    try:
        return await anyio.to_thread.run_sync(kind.model_validate_json, line)
    except ValidationError as exc:
        raise ConnectionError("the exec server gave an answer that makes no sense") from exc
