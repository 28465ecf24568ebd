"""Files of an exec server's machine: read as a sandbox policy lets them be, and patched.

A patch is planned, and written once the client allows it.
Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Files that the model names",
"Patches".
"""

import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import BinaryIO

import anyio
import anyio.to_thread
from pydantic import ValidationError

from app_server.host.exec.protocol import (
    CHUNK_BYTES,
    MAX_PATCH_BYTES,
    MAX_PLAN_BYTES,
    TOO_LARGE,
    line_of,
    plan_line,
)
from app_server.host.exec.server.children import ServedChild, serving
from app_server.host.exec.server.commands import effective_policy_there
from app_server.patch.parse import EmptyPatch, NotApplicable, NotWritten, PatchFailed, parse_patch
from app_server.patch.plan import Plan, plan_patch
from app_server.patch.write import new_token, write_plan
from app_server.permissions.readable import parts_of, readable, reads_everything
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling, resolved
from app_server.permissions.sandbox.roots import MachinePaths, RootChanged
from app_server.runtime.files.reaching import NOT_A_FILE, Allows, NotReached, open_file
from protocol.exec.files import (
    FileOpenParams,
    PatchAllowed,
    PatchPlanned,
    PatchStartParams,
    PatchText,
    PatchWritten,
)

NUMBERS: Mapping[str, int] = {os.strerror(errno.ENOENT): errno.ENOENT, NOT_A_FILE: errno.EINVAL}
"""The `errno` by text of the errors that a client has to tell from others."""


@asynccontextmanager
async def read_file(
    params: FileOpenParams, machine_paths: MachinePaths
) -> AsyncIterator[ServedChild]:
    """Print a regular file for as long as the context lasts; it is read as it is taken.

    Raises:
        OSError: it is not there, is something else, or may not be read.
    """
    file = await anyio.to_thread.run_sync(_open, params, machine_paths)

    async def work(child: ServedChild) -> None:
        while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
            await child.print(chunk)

    try:
        async with serving(work) as child:
            child.size = os.fstat(file.fileno()).st_size
            yield child
    finally:
        file.close()


def _open(params: FileOpenParams, machine_paths: MachinePaths) -> BinaryIO:
    try:
        return open_file(params.path, _allows(params, machine_paths))
    except RootChanged as exc:
        raise OSError(str(exc)) from None
    except NotReached as exc:
        text = str(exc)
        number = NUMBERS.get(text)
        raise (OSError(text) if number is None else OSError(number, text)) from None


def _allows(params: FileOpenParams, machine_paths: MachinePaths) -> Allows:
    sandbox_policy = effective_policy_there(params, None, machine_paths)
    ruling = Ruling(resolved(sandbox_policy))
    given = params.profile
    if given is None or reads_everything(given.profile):
        return lambda real: ruling.access(real) != "none"
    rules = readable(given.profile, given.cwd)
    return lambda real: ruling.access(real) != "none" and rules.allows(parts_of(real))


@asynccontextmanager
async def run_patch(
    params: PatchStartParams, machine_paths: MachinePaths
) -> AsyncIterator[ServedChild]:
    """Serve one patch while the context lasts; a write that has begun is finished.

    Raises:
        OSError: a root is not absolute.
    """
    sandbox_policy = effective_policy_there(params, params.cwd, machine_paths)

    async def work(child: ServedChild) -> None:
        request = await child.input.readline()
        plan, line = await anyio.to_thread.run_sync(_plan, request, params.cwd, sandbox_policy)
        await child.print(line)
        if plan is None or not _is_allowed(await child.input.readline()):
            return
        with anyio.CancelScope(shield=True):
            written = await anyio.to_thread.run_sync(_write, plan)
        await child.print(line_of(written))

    async with serving(work, MAX_PATCH_BYTES) as child:
        yield child


def _plan(request: bytes, cwd: str, sandbox_policy: EffectivePolicy) -> tuple[Plan | None, bytes]:
    try:
        text = PatchText.model_validate_json(request).patch
        plan = plan_patch(parse_patch(text), cwd, sandbox_policy)
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
        return PatchWritten(failure=str(exc), changed=list(exc.changed or ()))
    return PatchWritten()
