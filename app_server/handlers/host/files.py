"""fs/*: files of this machine by absolute paths, and their changes.

Source: docs/tools.md, "Host methods".
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from app_server.handlers.errors import as_path, file_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.host.files import operations
from app_server.host.files.watching import FileWatches
from app_server.host.files.work import Slots, Stop
from app_server.rpc.context import PreparedResult
from protocol.host.files import (
    FsChangedNotification,
    FsCopyParams,
    FsCopyResponse,
    FsCreateDirectoryParams,
    FsCreateDirectoryResponse,
    FsGetMetadataParams,
    FsGetMetadataResponse,
    FsReadDirectoryEntry,
    FsReadDirectoryParams,
    FsReadDirectoryResponse,
    FsReadFileParams,
    FsRemoveParams,
    FsRemoveResponse,
    FsUnwatchParams,
    FsUnwatchResponse,
    FsWatchParams,
    FsWatchResponse,
    FsWriteFileParams,
    FsWriteFileResponse,
)
from protocol.jsonrpc.errors import invalid_request

T = TypeVar("T")

MAX_READS = 4
"""Files that are read for one connection, or read and not sent yet; the next one waits."""


@serves("fs/copy")
async def copy(context: RequestContext, params: FsCopyParams) -> FsCopyResponse:
    """Copy a file or a folder."""
    source, destination = as_path(params.source_path), as_path(params.destination_path)
    await _run(
        context.services,
        lambda stop: operations.copy(source, destination, recursive=params.recursive, stop=stop),
    )
    return FsCopyResponse()


@serves("fs/createDirectory")
async def create_directory(
    context: RequestContext, params: FsCreateDirectoryParams
) -> FsCreateDirectoryResponse:
    """Make a folder, and those above it."""
    path, parents = as_path(params.path), params.recursive is not False
    await _run(
        context.services, lambda stop: operations.make_directory(path, parents=parents, stop=stop)
    )
    return FsCreateDirectoryResponse()


@serves("fs/getMetadata")
async def get_metadata(
    context: RequestContext, params: FsGetMetadataParams
) -> FsGetMetadataResponse:
    """Return the metadata of a path."""
    found = await _run(context.services, partial(operations.read_metadata, as_path(params.path)))
    return FsGetMetadataResponse(
        is_directory=found.is_directory,
        is_file=found.is_file,
        is_symlink=found.is_symlink,
        created_at_ms=found.created_at_ms,
        modified_at_ms=found.modified_at_ms,
    )


@serves("fs/readDirectory")
async def read_directory(
    context: RequestContext, params: FsReadDirectoryParams
) -> FsReadDirectoryResponse:
    """List a folder."""
    path = as_path(params.path)

    def work(stop: Stop) -> FsReadDirectoryResponse:
        entries = [
            FsReadDirectoryEntry(
                file_name=entry.name, is_directory=entry.is_directory, is_file=entry.is_file
            )
            for entry in operations.read_entries(path, stop)
        ]
        return FsReadDirectoryResponse(entries=entries)

    return await _run(context.services, work)


@serves("fs/readFile")
async def read_file(context: RequestContext, params: FsReadFileParams) -> PreparedResult:
    """Return the bytes of a file."""
    reader = context.connection_id
    await context.services.part(_Files).reads.take(reader)
    # What was read is in memory until it is on its way.
    context.after_answer(context.services.part(_Files).reads.give, reader)
    path = as_path(params.path)

    def work(stop: Stop) -> PreparedResult:
        # No sign of base64 has another form in JSON (FsReadFileResponse).
        return PreparedResult(
            "".join(['{"dataBase64":"', *operations.read_base64(path, stop), '"}'])
        )

    return await _run(context.services, work)


@serves("fs/remove")
async def remove(context: RequestContext, params: FsRemoveParams) -> FsRemoveResponse:
    """Delete a file or a folder."""
    path = as_path(params.path)
    recursive, force = params.recursive is not False, params.force is not False
    await _run(
        context.services,
        lambda stop: operations.remove(path, recursive=recursive, force=force, stop=stop),
    )
    return FsRemoveResponse()


@serves("fs/writeFile")
async def write_file(context: RequestContext, params: FsWriteFileParams) -> FsWriteFileResponse:
    """Write bytes as the whole content of a file."""
    path = as_path(params.path)

    def work(stop: Stop) -> None:
        try:
            data = base64.b64decode(params.data_base64, validate=True)
        except (ValueError, binascii.Error) as exc:
            raise invalid_request(
                f"fs/writeFile requires valid base64 dataBase64: {exc}", "invalidBase64"
            ) from exc
        operations.write_file(path, data, stop)

    await _run(context.services, work)
    return FsWriteFileResponse()


@serves("fs/watch")
async def watch(context: RequestContext, params: FsWatchParams) -> FsWatchResponse:
    """Begin to report changes; the first may come right after the answer."""
    client, watch_id, path = context.connection_id, params.watch_id, as_path(params.path)

    def changed(paths: Sequence[str]) -> None:
        event = FsChangedNotification(watch_id=watch_id, changed_paths=list(paths))
        context.services.hub.notify(client, event)

    with file_failures():
        await context.services.part(_Files).watches.add(client, watch_id, path, changed)
    context.services.hub.connections.when_gone(
        client, context.services.part(_Files).watches.remove_all
    )
    return FsWatchResponse(path=str(path))


@serves("fs/unwatch")
async def unwatch(context: RequestContext, params: FsUnwatchParams) -> FsUnwatchResponse:
    """Report no more changes; a watch that is not there is no failure."""
    context.services.part(_Files).watches.remove(context.connection_id, params.watch_id)
    return FsUnwatchResponse()


async def _run(services: Services, work: Callable[[Stop], T]) -> T:
    with file_failures():
        return await services.file_work.run(work)


class _Files:
    """The reads and watches of a server's clients."""

    def __init__(self, services: Services) -> None:
        self.reads = Slots(MAX_READS)
        self.watches = FileWatches(services.tasks)
