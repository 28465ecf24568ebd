"""fs/watch and fs/unwatch: changes of files, for the connection that asked for them.

Source: docs/tools.md, "Host methods".
"""

from collections.abc import Mapping, Sequence

from app_server.handlers.host.failures import as_path, file_failures
from app_server.handlers.services import Services
from app_server.host.files.watching import FileWatches
from app_server.rpc.context import Handler, RequestContext
from protocol.host import (
    FsChangedNotification,
    FsUnwatchParams,
    FsUnwatchResponse,
    FsWatchParams,
    FsWatchResponse,
)


class WatchHandlers:
    """The fs/ methods about changes."""

    def __init__(self, services: Services) -> None:
        self._hub = services.hub
        self._watches = FileWatches(services.tasks)

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"fs/unwatch": self.unwatch, "fs/watch": self.watch}

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
