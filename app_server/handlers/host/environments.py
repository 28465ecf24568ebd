"""environment/*: machines that MCP servers can run on.

Source: docs/environments.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from app_server.handlers.serving import RequestContext, serves
from app_server.host.environments import NotAdded, UnknownEnvironment
from app_server.host.exec.client.address import BadAddress, parse_exec_address
from app_server.host.exec.client.environment import RemoteEnvironment
from protocol.host.environments import (
    EnvironmentAddParams,
    EnvironmentAddResponse,
    EnvironmentInfoParams,
    EnvironmentInfoResponse,
    EnvironmentStatusParams,
    EnvironmentStatusResponse,
)
from protocol.jsonrpc.errors import internal_error, invalid_request


@serves("environment/add")
async def add_environment(
    context: RequestContext, params: EnvironmentAddParams
) -> EnvironmentAddResponse:
    """Register an exec server as an environment; connecting to it is not waited for."""
    with _add_failures(params.environment_id):
        if params.skills is not None and params.skills.required:
            raise NotAdded("skills of environments are not offered here")
        address = parse_exec_address(
            params.exec_server_url,
            params.auth_bearer_token,
            params.websocket_request_id,
            params.connect_timeout_ms,
        )
        context.services.environments.add(params.environment_id, RemoteEnvironment, address)
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
