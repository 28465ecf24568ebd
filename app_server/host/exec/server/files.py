"""Files of an exec server's machine, as a sandbox policy lets them be read.

Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Files that the model names".
"""

import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import BinaryIO

import anyio.to_thread

from app_server.host.exec.protocol import CHUNK_BYTES
from app_server.host.exec.server.confining import confinement_there
from app_server.host.exec.server.served import ServedChild, serving
from app_server.permissions.confinement.confinement import Ruling
from app_server.permissions.confinement.pinned_places import PlaceChanged
from app_server.permissions.confinement.places import Places
from app_server.permissions.confinement.resolving import resolved
from app_server.permissions.readable import parts_of, readable, reads_everything
from app_server.runtime.files.reaching import NOT_A_FILE, Allows, NotReached, open_file
from protocol.exec.files import FileOpenParams

NUMBERS: Mapping[str, int] = {os.strerror(errno.ENOENT): errno.ENOENT, NOT_A_FILE: errno.EINVAL}
"""The `errno` by text of the errors that a client has to tell from others."""


@asynccontextmanager
async def read_file(params: FileOpenParams, places: Places) -> AsyncIterator[ServedChild]:
    """Print a regular file for as long as the context lasts; it is read as it is taken.

    Raises:
        OSError: it is not there, is something else, or may not be read.
    """
    file = await anyio.to_thread.run_sync(_open, params, places)

    async def work(child: ServedChild) -> None:
        while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
            await child.print(chunk)

    try:
        async with serving(work) as child:
            child.size = os.fstat(file.fileno()).st_size
            yield child
    finally:
        file.close()


def _open(params: FileOpenParams, places: Places) -> BinaryIO:
    try:
        return open_file(params.path, _allows(params, places))
    except PlaceChanged as exc:
        raise OSError(str(exc)) from None
    except NotReached as exc:
        text = str(exc)
        number = NUMBERS.get(text)
        raise (OSError(text) if number is None else OSError(number, text)) from None


def _allows(params: FileOpenParams, places: Places) -> Allows:
    confinement = confinement_there(params, None, places)
    ruling = Ruling(resolved(confinement))
    given = params.profile
    if given is None or reads_everything(given.profile):
        return lambda real: ruling.access(real) != "none"
    rules = readable(given.profile, given.cwd)
    return lambda real: ruling.access(real) != "none" and rules.allows(parts_of(real))
