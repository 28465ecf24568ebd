"""command/exec and what can be asked of what it runs.

Source: docs/tools.md, "Host methods".
"""

from functools import partial

import anyio.to_thread

from app_server.config.effective import OFFLINE
from app_server.config.requirements import requirements_of
from app_server.handlers.errors import config_failures
from app_server.handlers.host import client_programs as given
from app_server.handlers.host.client_programs import ClientPrograms
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.configured import config_for
from app_server.permissions.network import read_network_feature
from app_server.permissions.sandbox.policy import (
    UNRESTRICTED,
    EffectivePolicy,
    effective_policy_of,
    through_proxy,
)
from app_server.permissions.sandbox.roots import with_hidden_paths
from app_server.permissions.trust import project_trust, says_something
from app_server.sessions.settings import (
    Overrides,
    initial_settings,
    refuse_overrides,
    sandbox_mode_of,
    with_required,
)
from protocol.host.commands import (
    CommandExecOutputDeltaNotification,
    CommandExecParams,
    CommandExecResizeParams,
    CommandExecResizeResponse,
    CommandExecResponse,
    CommandExecTerminateParams,
    CommandExecTerminateResponse,
    CommandExecWriteParams,
    CommandExecWriteResponse,
)
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.turns.policy import DangerFullAccessSandboxPolicy, ExternalSandboxPolicy

METHOD = "command/exec"

_OURS_NOT = (DangerFullAccessSandboxPolicy, ExternalSandboxPolicy)
"""Nothing is confined here."""

MAX_KEPT = 24 * 1024 * 1024
"""Bytes of each stream in a response, also without a cap: both fit into an answer."""


@serves("command/exec")
async def execute_command(
    context: RequestContext, params: CommandExecParams
) -> CommandExecResponse:
    """Run a program to its end."""
    client = context.connection_id
    _check(params)
    cwd = context.services.configuration.resolve(params.cwd)
    program = context.services.part(_programs).make(
        client,
        params,
        partial(CommandExecOutputDeltaNotification, process_id=params.process_id or ""),
        cwd=lambda: cwd,
        cap=_cap(params),
        timeout_s=partial(_timeout, params),
    )
    entered = context.services.part(_programs).entered(client, params.process_id, program)
    with context.services.part(_programs).failures(), entered:
        await program.start(
            context.services.commands, await _effective_policy(context.services, params, cwd)
        )
        ended = await program.run()
    return CommandExecResponse(
        exit_code=ended.exit_code,
        stdout=program.output.kept("stdout"),
        stderr=program.output.kept("stderr"),
    )


@serves("command/exec/write")
async def write_to_command(
    context: RequestContext, params: CommandExecWriteParams
) -> CommandExecWriteResponse:
    """Write to the input of a program."""
    context.services.part(_programs).write(context, params.process_id, params)
    return CommandExecWriteResponse()


@serves("command/exec/resize")
async def resize_terminal(
    context: RequestContext, params: CommandExecResizeParams
) -> CommandExecResizeResponse:
    """Change the size of a program's terminal."""
    context.services.part(_programs).resize(context.connection_id, params.process_id, params.size)
    return CommandExecResizeResponse()


@serves("command/exec/terminate")
async def terminate_command(
    context: RequestContext, params: CommandExecTerminateParams
) -> CommandExecTerminateResponse:
    """Terminate a program."""
    context.services.part(_programs).terminate(context.connection_id, params.process_id)
    return CommandExecTerminateResponse()


async def _effective_policy(
    services: Services, params: CommandExecParams, cwd: str
) -> EffectivePolicy:
    """Say what confines a program: what the client chose, else what the settings say."""
    with config_failures():
        mode = None
        if params.permission_profile is not None:
            mode = sandbox_mode_of(params.permission_profile)
        overrides = Overrides(
            model_provider=OFFLINE, sandbox_mode=mode, sandbox_policy=params.sandbox_policy
        )
        config = await services.configuration.read()
        trust = None
        if mode is None and params.sandbox_policy is None:
            # What a project says counts where the client says nothing.
            config, _ = await config_for(services.configuration, None, cwd)
            if says_something(config):
                trust = await anyio.to_thread.run_sync(project_trust, config, cwd)
        requirements = requirements_of(config)
        if isinstance(params.sandbox_policy, _OURS_NOT) and requirements.sandbox_modes is None:
            return UNRESTRICTED
        settings = initial_settings(config, cwd, overrides, trust)
        refuse_overrides(overrides, settings, requirements)
        settings, _ = with_required(settings, requirements)
        if isinstance(settings.sandbox_policy, _OURS_NOT):
            return UNRESTRICTED
        sandbox_policy = effective_policy_of(
            settings, with_hidden_paths(config, services.machine_paths)
        )
        await services.commands.pin_roots(sandbox_policy)
        return through_proxy(sandbox_policy, read_network_feature(config))


def _check(params: CommandExecParams) -> None:
    streams = params.tty or params.stream_stdin or params.stream_stdout_stderr
    if streams and params.process_id is None:
        raise invalid_request(
            "command/exec tty or streaming requires a client-supplied processId", "invalidCommand"
        )
    if params.timeout_ms is not None and params.disable_timeout:
        raise _both("timeoutMs", "disableTimeout")
    if params.output_bytes_cap is not None and params.disable_output_cap:
        raise _both("outputBytesCap", "disableOutputCap")
    if params.sandbox_policy is not None and params.permission_profile is not None:
        raise invalid_request(
            "`permissionProfile` cannot be combined with `sandboxPolicy`", "invalidCommand"
        )


def _both(one: str, other: str) -> Exception:
    return invalid_params(f"command/exec cannot set both {one} and {other}", field=one)


def _cap(params: CommandExecParams) -> int | None:
    if params.disable_output_cap:
        return None
    return given.DEFAULT_CAP if params.output_bytes_cap is None else params.output_bytes_cap


def _timeout(params: CommandExecParams) -> float | None:
    if params.disable_timeout:
        return None
    limit = given.timeout_s(params.timeout_ms, METHOD)
    return given.DEFAULT_TIMEOUT_S if limit is None else limit


def _programs(services: Services) -> ClientPrograms:
    return ClientPrograms(
        services.hub, METHOD, METHOD, "process id", noun="command", max_kept=MAX_KEPT
    )
