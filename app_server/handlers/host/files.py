"""fs/*: files of this machine by absolute paths, and their changes.

Source: docs/tools.md, "Host methods".
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from app_server.handlers.host.failures import as_path, file_failures
from app_server.handlers.services import Services
from app_server.host.files import reading, trees, writing
from app_server.host.files.watching import FileWatches
from app_server.host.files.work import Slots, Stop
from app_server.rpc.context import PreparedResult, RequestContext, Routes
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


class FileHandlers:
    """The fs/ methods."""

    def __init__(self, services: Services) -> None:
        self._work = services.file_work
        self._reads = Slots(MAX_READS)
        self._hub = services.hub
        self._watches = FileWatches(services.tasks)
        self.routes: Routes = {
            "fs/copy": self.copy,
            "fs/createDirectory": self.create_directory,
            "fs/getMetadata": self.get_metadata,
            "fs/readDirectory": self.read_directory,
            "fs/readFile": self.read_file,
            "fs/remove": self.remove,
            "fs/unwatch": self.unwatch,
            "fs/watch": self.watch,
            "fs/writeFile": self.write_file,
        }

    async def copy(self, context: RequestContext, params: FsCopyParams) -> FsCopyResponse:
        """Copy a file or a folder."""
        source, destination = as_path(params.source_path), as_path(params.destination_path)
        await self._run(
            lambda stop: trees.copy(source, destination, recursive=params.recursive, stop=stop)
        )
        return FsCopyResponse()

    async def create_directory(
        self, context: RequestContext, params: FsCreateDirectoryParams
    ) -> FsCreateDirectoryResponse:
        """Make a folder, and those above it."""
        path, parents = as_path(params.path), params.recursive is not False
        await self._run(lambda stop: writing.make_directory(path, parents=parents, stop=stop))
        return FsCreateDirectoryResponse()

    async def get_metadata(
        self, context: RequestContext, params: FsGetMetadataParams
    ) -> FsGetMetadataResponse:
        """Say what is at a path."""
        found = await self._run(partial(reading.read_metadata, as_path(params.path)))
        return FsGetMetadataResponse(
            is_directory=found.is_directory,
            is_file=found.is_file,
            is_symlink=found.is_symlink,
            created_at_ms=found.created_at_ms,
            modified_at_ms=found.modified_at_ms,
        )

    async def read_directory(
        self, context: RequestContext, params: FsReadDirectoryParams
    ) -> FsReadDirectoryResponse:
        """List a folder."""
        path = as_path(params.path)

        def work(stop: Stop) -> FsReadDirectoryResponse:
            entries = [
                FsReadDirectoryEntry(
                    file_name=entry.name, is_directory=entry.is_directory, is_file=entry.is_file
                )
                for entry in reading.read_entries(path, stop)
            ]
            return FsReadDirectoryResponse(entries=entries)

        return await self._run(work)

    async def read_file(self, context: RequestContext, params: FsReadFileParams) -> PreparedResult:
        """Return the bytes of a file."""
        reader = context.connection_id
        await self._reads.take(reader)
        # What was read is in memory until it is on its way.
        context.after_answer(self._reads.give, reader)
        path = as_path(params.path)

        def work(stop: Stop) -> PreparedResult:
            # No sign of base64 has another form in JSON (FsReadFileResponse).
            return PreparedResult(
                "".join(['{"dataBase64":"', *reading.read_base64(path, stop), '"}'])
            )

        return await self._run(work)

    async def remove(self, context: RequestContext, params: FsRemoveParams) -> FsRemoveResponse:
        """Delete a file or a folder."""
        path = as_path(params.path)
        recursive, force = params.recursive is not False, params.force is not False
        await self._run(
            lambda stop: trees.remove(path, recursive=recursive, force=force, stop=stop)
        )
        return FsRemoveResponse()

    async def write_file(
        self, context: RequestContext, params: FsWriteFileParams
    ) -> FsWriteFileResponse:
        """Make bytes all that a file holds."""
        path = as_path(params.path)

        def work(stop: Stop) -> None:
            try:
                data = base64.b64decode(params.data_base64, validate=True)
            except (ValueError, binascii.Error) as exc:
                raise invalid_request(
                    f"fs/writeFile requires valid base64 dataBase64: {exc}", "invalidBase64"
                ) from exc
            writing.write_file(path, data, stop)

        await self._run(work)
        return FsWriteFileResponse()

    async def watch(self, context: RequestContext, params: FsWatchParams) -> FsWatchResponse:
        """Begin to report changes; the first may come right after the answer."""
        client, watch_id, path = context.connection_id, params.watch_id, as_path(params.path)

        def changed(paths: Sequence[str]) -> None:
            event = FsChangedNotification(watch_id=watch_id, changed_paths=list(paths))
            self._hub.notify(client, event)

        with file_failures():
            await self._watches.add(client, watch_id, path, changed)
        self._hub.connections.when_gone(client, self._watches.remove_all)
        return FsWatchResponse(path=str(path))

    async def unwatch(self, context: RequestContext, params: FsUnwatchParams) -> FsUnwatchResponse:
        """Report no more changes; a watch that is not there is no failure."""
        self._watches.remove(context.connection_id, params.watch_id)
        return FsUnwatchResponse()

    async def _run(self, work: Callable[[Stop], T]) -> T:
        with file_failures():
            return await self._work.run(work)
