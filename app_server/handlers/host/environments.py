"""environment/*: machines that MCP servers can run on.

Source: docs/environments.md.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import anyio

from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.host.environments import NotAdded, UnknownEnvironment
from app_server.host.exec.client.address import BadAddress, parse_exec_address
from app_server.host.exec.client.environment import RemoteEnvironment
from app_server.rpc.dispatch import storage_failed
from app_server.threads.environments import AddedEnvironment
from protocol.host.environments import (
    EnvironmentAddParams,
    EnvironmentAddResponse,
    EnvironmentInfoParams,
    EnvironmentInfoResponse,
    EnvironmentStatusParams,
    EnvironmentStatusResponse,
)
from protocol.jsonrpc.errors import internal_error, invalid_request

logger = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds between looks at what clients of other servers have added."""


class SharedEnvironments:
    """Environments that clients of other servers of the store added; a part of the services."""

    def __init__(self, services: Services) -> None:
        self._kept = services.added_environments
        self._environments = services.environments
        self._known: dict[str, AddedEnvironment] = {}
        """By id, as they were when this server took or gave them."""

    async def put(self, environment: AddedEnvironment) -> None:
        """Make an environment known to the other servers.

        Raises:
            OSError: the store did not take it.
        """
        await self._kept.put(environment)
        self._known[environment.id] = environment

    async def refresh(self) -> None:
        """Add what is new; an environment that cannot be added here is logged.

        Raises:
            OSError: the store cannot be read.
        """
        for one in await self._kept.all():
            if self._known.get(one.id) == one:
                continue
            self._known[one.id] = one
            try:
                address = parse_exec_address(one.url, None, one.request_id, one.connect_ms)
                # Connected to when it is used: it may have been added long ago.
                self._environments.add(one.id, RemoteEnvironment, address, connects=False)
            except (BadAddress, NotAdded) as exc:
                logger.warning("environment `%s` of another server is left out: %s", one.id, exc)

    async def run(self) -> None:
        """Look for what is new every LOOK_S, until cancelled."""
        fails = False
        while True:
            try:
                await self.refresh()
                fails = False
            except OSError as exc:
                if not fails:
                    logger.warning("environments of other servers cannot be read: %s", exc)
                fails = True
            await anyio.sleep(LOOK_S)


@serves("environment/add")
async def add_environment(
    context: RequestContext, params: EnvironmentAddParams
) -> EnvironmentAddResponse:
    """Register an exec server as an environment; connecting to it is not waited for."""
    services = context.services
    with _add_failures(params.environment_id):
        if params.skills is not None and params.skills.required:
            raise NotAdded("skills of environments are not offered here")
        address = parse_exec_address(
            params.exec_server_url,
            params.auth_bearer_token,
            params.websocket_request_id,
            params.connect_timeout_ms,
        )
        services.environments.require_addable(params.environment_id)
    # A query may hold a secret as a token does, and the store keeps none.
    if params.auth_bearer_token is None and not urlsplit(address.url).query:
        added = AddedEnvironment(
            params.environment_id,
            address.url,
            params.websocket_request_id,
            params.connect_timeout_ms,
        )
        try:
            await services.part(SharedEnvironments).put(added)
        except OSError as exc:
            raise storage_failed(exc, "the environment cannot be stored") from exc
    services.environments.add(params.environment_id, RemoteEnvironment, address)
    return EnvironmentAddResponse()


@serves("environment/info")
async def read_environment(
    context: RequestContext, params: EnvironmentInfoParams
) -> EnvironmentInfoResponse:
    """Ask an environment for its shell and working folder."""
    environment_id = params.environment_id
    try:
        shell, cwd = await context.services.environments.info(environment_id)
    except UnknownEnvironment as exc:
        raise invalid_request(str(exc), "unknownEnvironment", environmentId=environment_id) from exc
    except OSError as exc:
        raise internal_error(
            f"failed to get info for environment `{environment_id}`: {exc}",
            "environmentUnavailable",
            environmentId=environment_id,
        ) from exc
    return EnvironmentInfoResponse(shell=shell, cwd=_uri(cwd))


@serves("environment/status")
async def read_environment_status(
    context: RequestContext, params: EnvironmentStatusParams
) -> EnvironmentStatusResponse:
    """Return the connection status of an environment, without connecting to it."""
    status, error = context.services.environments.status(params.environment_id)
    return EnvironmentStatusResponse(status=status, error=error)


def _uri(path: str) -> str | None:
    folder = PurePosixPath(path)
    return folder.as_uri() if folder.is_absolute() else None


@contextmanager
def _add_failures(environment_id: str) -> Iterator[None]:
    try:
        yield
    except (BadAddress, NotAdded) as exc:
        raise invalid_request(
            f"exec-server protocol error: {exc}",
            "environmentRefused",
            environmentId=environment_id,
        ) from exc
