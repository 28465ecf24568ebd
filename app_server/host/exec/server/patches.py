"""Patches of an exec server's files: planned, and written once the client allows it.

Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Patches".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from pydantic import ValidationError

from app_server.host.exec.patch_lines import (
    MAX_PATCH_BYTES,
    MAX_PLAN_BYTES,
    TOO_LARGE,
    line_of,
    plan_line,
)
from app_server.host.exec.server.confining import confinement_there
from app_server.host.exec.server.served import ServedChild, serving
from app_server.patch.parse import EmptyPatch, NotApplicable, NotWritten, PatchFailed, parse_patch
from app_server.patch.plan import Plan, plan_patch
from app_server.patch.write import new_token, write_plan
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.places import Places
from protocol.exec.files import (
    PatchAllowed,
    PatchPlanned,
    PatchStartParams,
    PatchText,
    PatchWritten,
)


@asynccontextmanager
async def run_patch(params: PatchStartParams, places: Places) -> AsyncIterator[ServedChild]:
    """Serve one patch for as long as the context lasts; what is being written is written whole.

    Raises:
        OSError: a root is not absolute.
    """
    confinement = confinement_there(params, params.cwd, places)

    async def work(child: ServedChild) -> None:
        request = await child.input.readline()
        plan, line = await anyio.to_thread.run_sync(_plan, request, params.cwd, confinement)
        await child.print(line)
        if plan is None or not _is_allowed(await child.input.readline()):
            return
        with anyio.CancelScope(shield=True):
            written = await anyio.to_thread.run_sync(_write, plan)
        await child.print(line_of(written))

    async with serving(work, MAX_PATCH_BYTES) as child:
        yield child


def _plan(request: bytes, cwd: str, confinement: Confinement) -> tuple[Plan | None, bytes]:
    try:
        text = PatchText.model_validate_json(request).patch
        plan = plan_patch(parse_patch(text), cwd, confinement)
        line = plan_line(plan)
        if len(line) > MAX_PLAN_BYTES:
            raise NotApplicable(TOO_LARGE)
    except ValidationError:
        return None, line_of(PatchPlanned(failure="this is no patch"))
    except PatchFailed as exc:
        failed = PatchPlanned(failure=str(exc), is_empty=isinstance(exc, EmptyPatch))
        return None, line_of(failed)
    return plan, line


def _is_allowed(line: bytes) -> bool:
    try:
        return PatchAllowed.model_validate_json(line).write
    except ValidationError:
        # The client has gone on without it, which it says by ending the input.
        return False


def _write(plan: Plan) -> PatchWritten:
    try:
        write_plan(plan, new_token())
    except NotWritten as exc:
        return PatchWritten(failure=str(exc), changed=list(exc.changed))
    return PatchWritten()
