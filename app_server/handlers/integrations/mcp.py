"""mcpServer*, config/mcpServer/reload: status, direct calls, event streams and sign-ins of servers.

A row of `mcpServerStatus/list` is made of its own server alone: what another one says never spoils
it, or takes its place.
Source: docs/mcp.md, "Status".
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
from pydantic import ValidationError
from pydantic_core import to_json

from app_server.config.values import Config
from app_server.extensions.plugins.contributor import ADJUSTABLE
from app_server.handlers.errors import (
    config_failures,
    loaded_thread,
    mcp_failures,
    settings_failures,
)
from app_server.handlers.integrations.app_servers import RESOURCES, AppViews, is_of_apps
from app_server.handlers.server.config import write_edits
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import offset, page
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import (
    VALID_NAME,
    HttpTransport,
    McpSettings,
    ServerConfig,
    ServerUnavailable,
)
from app_server.mcp.catalog.tables import read_mcp_settings, unreadable_servers
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.measurements import origin
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.servers.requests import call_tool, read_resource
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.status import (
    AuthProbe,
    ServerReport,
    report,
    without_left_out,
)
from app_server.mcp.servers.waits import refresh_lists
from app_server.mcp.tools.call_contents import (
    blocks_of,
    bounded_result,
    client_part,
    without_effective_input,
)
from app_server.mcp.tools.naming import RawName
from app_server.mcp_wire.errors import McpError
from app_server.observability.log_context import bind_request
from app_server.runtime.cut_text import cut_middle
from app_server.runtime.loader import load
from app_server.turns.approval.reviewer import without_account
from app_server.turns.servers import MAX_OWN_BYTES
from protocol.contract.specs import NoParams
from protocol.integrations.mcp import (
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpServerEventStreamStartParams,
    McpServerEventStreamStartResponse,
    McpServerEventStreamStopParams,
    McpServerEventStreamStopResponse,
    McpServerInfo,
    McpServerOauthLoginCompletedNotification,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
    McpServerOutput,
    McpServerOutputReadParams,
    McpServerOutputReadResponse,
    McpServerRefreshResponse,
    McpServerRestartParams,
    McpServerRestartResponse,
    McpServerSetParams,
    McpServerSetResponse,
    McpServerStatus,
    McpServerToolCallParams,
    McpServerToolCallResponse,
    Resource,
    ResourceTemplate,
    Tool,
)
from protocol.jsonrpc.errors import internal_error, invalid_params, invalid_request, overloaded
from protocol.model import Json, JsonObject, WireModel
from protocol.server.config import ConfigEdit

if TYPE_CHECKING:
    from app_server.mcp.oauth.login import Login, LoginWishes

Answer = TypeVar("Answer")


@serves("mcpServerStatus/list")
async def list_server_status(
    context: RequestContext, params: ListMcpServerStatusParams
) -> ListMcpServerStatusResponse:
    """Describe a thread's servers, or those of the configuration over trial connections."""
    resources = params.detail != "toolsAndAuthOnly"
    if params.thread_id is not None:
        session = loaded_thread(context.services.sessions, params.thread_id)
        servers = session.servers.live()
        if session.slot.turn is None:
            # A response goes with the tools of its request; a turn lists them between two.
            await refresh_lists(servers)
        views = _views(_configs(servers), session.servers.config)
    else:
        config, settings = await _resolve(
            context.services, prepare=context.services.apps is not None
        )
        views = _views(settings.servers, config)
    groups = views.groups()
    names = sorted(name for name in groups if params.server_name in (None, name))
    asked, _ = page(names, params.cursor, params.limit, "MCP servers")
    chosen = [name for shown in asked for name in groups[shown]]
    ask = partial(report, names=chosen, probe=context.services.part(_probe), resources=resources)
    of_thread = params.thread_id is not None
    if of_thread:
        reports = without_left_out(await ask(servers), servers.tools())
    elif not chosen:
        reports = []
    else:
        trial = McpSettings({name: settings.servers[name] for name in chosen})
        reports = await _ask_trial(context.services, trial, ask)

    def render() -> tuple[list[McpServerStatus], int]:
        statuses = {entry.config.name: row(entry, of_thread=of_thread) for entry in reports}
        return page_of(
            asked,
            lambda shown: views.folded(
                shown, [statuses[name] for name in groups[shown] if name in statuses]
            ),
        )

    # Nothing to validate is no work for a worker thread.
    data, count = await anyio.to_thread.run_sync(render) if reports else ([], len(asked))
    end = offset(names, params.cursor, "MCP servers") + count
    return ListMcpServerStatusResponse(
        data=data, next_cursor=str(end) if end < len(names) else None
    )


@serves("mcpServer/tool/call")
async def call_server_tool(
    context: RequestContext, params: McpServerToolCallParams
) -> McpServerToolCallResponse:
    """Call a tool over the thread's connection, without model, approval or item."""
    session = loaded_thread(context.services.sessions, params.thread_id)
    raw = RawName(params.server, params.tool)
    if params.server == RESOURCES:
        views = _views(_configs(session.servers.live()), session.servers.config)
        # The first one makes the metadata of all tools of apps.
        raw = await anyio.to_thread.run_sync(views.tool, params.server, params.tool)
    servers = session.servers.live()
    servers.revive(raw.server)
    doing = f"tool call failed for `{params.server}/{params.tool}`"
    meta = _request_meta(params.meta, doing)
    meta["threadId"] = params.thread_id
    with mcp_failures(doing):
        result = await call_tool(servers, raw, params.arguments, meta, _ignore_progress)
    bounded = bounded_result(without_effective_input(result)[0])
    is_error = bounded.get("isError")
    return McpServerToolCallResponse(
        content=blocks_of(bounded),
        structured_content=bounded.get("structuredContent"),
        is_error=is_error if isinstance(is_error, bool) else None,
        meta=bounded.get("_meta"),
    )


@serves("mcpServer/resource/read")
async def read_server_resource(
    context: RequestContext, params: McpResourceReadParams
) -> McpResourceReadResponse:
    """Read a resource over the thread's connection, or over one of its own."""
    meta = None if params.meta is None else client_part(params.meta)
    if params.thread_id is not None:
        meta = {**(meta or {}), "threadId": params.thread_id}

    with mcp_failures(f"resource read failed for `{params.server}`"):
        if params.thread_id is not None:
            session = loaded_thread(context.services.sessions, params.thread_id)
            server = _views(_configs(session.servers.live()), session.servers.config).reader(params)
            session.servers.live().revive(server)
            result = await read_resource(session.servers.live(), server, params.uri, meta)
        else:
            config, settings = await _resolve(
                context.services,
                prepare=context.services.apps is not None and is_of_apps(params.server),
            )
            server = _views(settings.servers, config).reader(params)
            chosen = {n: one for n, one in settings.servers.items() if n == server}
            result = await _ask_trial(
                context.services,
                McpSettings(chosen),
                lambda servers: read_resource(servers, server, params.uri, meta),
            )
    contents = result.get("contents")
    return McpResourceReadResponse(
        contents=contents if isinstance(contents, list) else [],
        origin_call_id=params.origin_call_id,
    )


@serves("mcpServer/event/stream/start")
async def start_event_stream(
    context: RequestContext, params: McpServerEventStreamStartParams
) -> McpServerEventStreamStartResponse:
    """Refuse: only hosted apps have events, and there are none here."""
    raise invalid_request(
        "MCP event subscriptions are only supported for hosted apps", "eventStreamsNotSupported"
    )


@serves("mcpServer/event/stream/stop")
async def stop_event_stream(
    context: RequestContext, params: McpServerEventStreamStopParams
) -> McpServerEventStreamStopResponse:
    """Agree that the stream has ended: none was ever begun."""
    return McpServerEventStreamStopResponse()


@serves("config/mcpServer/reload")
async def reload_servers(context: RequestContext, params: NoParams) -> McpServerRefreshResponse:
    """Reconcile every loaded thread with the file, once the caller has been answered."""
    with settings_failures("failed to refresh MCP servers"):
        base = await context.services.configuration.read_as_is()
        read_mcp_settings(base)
        for problem in unreadable_servers(base).values():
            raise problem
    await context.services.sessions.refresh_extensions(base)
    context.after_answer(context.services.sessions.reload_servers, base)
    return McpServerRefreshResponse()


@serves("mcpServer/set")
async def set_server(context: RequestContext, params: McpServerSetParams) -> McpServerSetResponse:
    """Write a change of a server, or give it to one thread alone; idle threads have it at once."""
    services = context.services
    change = _change_of(params)
    if params.thread_id is not None:
        session = loaded_thread(services.sessions, params.thread_id)
        servers = session.servers.live().servers
        found = servers[params.name].config if params.name in servers else None
        path, change = _placed(params, change, found, session.servers.config)
        with config_failures():
            session.servers.change(path, change)
        # An edit may make sense with it that made none before.
        await session.servers.look_at_files()
        if session.slot.turn is None:
            session.servers.take_over()
        return McpServerSetResponse(overridden=False)
    config, settings = await _resolve(services, prepare=False)
    found = settings.servers.get(params.name) or _of_any_thread(services, params.name)
    path, change = _placed(params, change, found, config)
    edits = [
        ConfigEdit(key_path=_key_path((*path, key)), value=value, merge_strategy="replace")
        for key, value in change.items()
    ]
    written = await write_edits(services, edits)
    await services.sessions.follow_files()
    return McpServerSetResponse(
        file_path=written.file_path, overridden=written.status == "okOverridden"
    )


def _change_of(params: McpServerSetParams) -> JsonObject:
    """Return the keys of the server's table that are to be set; None takes one away."""
    if (params.enabled is None) == (params.settings is None):
        rule = "exactly one of `enabled` and `settings` is given"
        raise invalid_params(f"Invalid params: `settings`: {rule}", field="settings", rule=rule)
    if VALID_NAME.fullmatch(params.name) is None:
        rule = f"a name of a server matches ^{VALID_NAME.pattern}$"
        raise invalid_params(f"Invalid params: `name`: {rule}", field="name", rule=rule)
    if params.settings is None:
        return {"enabled": params.enabled}
    if not params.settings or len(to_json(params.settings)) > MAX_OWN_BYTES:
        rule = f"an object with at least one key, and at most {MAX_OWN_BYTES} bytes of JSON"
        raise invalid_params(f"Invalid params: `settings`: {rule}", field="settings", rule=rule)
    return params.settings


def _of_any_thread(services: Services, name: str) -> ServerConfig | None:
    """Return a server that loaded threads alone have, such as one of a plugin of theirs."""
    for session in services.sessions:
        if (server := session.servers.live().servers.get(name)) is not None:
            return server.config
    return None


def _placed(
    params: McpServerSetParams, change: JsonObject, found: ServerConfig | None, config: Config
) -> tuple[tuple[str, ...], JsonObject]:
    """Return which table of the settings has the server's keys, and what changes in it.

    A server of no table of the user's has a switch, and nothing else.

    Raises:
        RpcError: there is no such server, or its settings are not the user's.
    """
    name = params.name
    if found is None and params.settings is None:
        raise invalid_request(f"No MCP server named '{name}' found.", "unknownMcpServer", name=name)
    if found is not None:
        _refuse_forbidden(params, found)
    if found is None or name in config.document.get("mcp_servers", {}):
        return ("mcp_servers", name), change
    plugin_id = found.metadata.plugin_id
    if (
        found.is_registered
        or plugin_id is None
        or plugin_id not in config.document.get("plugins", {})
    ):
        if params.settings is None:
            return ("mcp_switches",), {name: params.enabled}
        raise invalid_request(
            f"MCP server '{name}' is in no file: an extension, an app or a thread's plugin brings "
            "it, and only `enabled` can be set",
            "mcpServerNotEditable",
            name=name,
        )
    if params.settings is not None and not params.settings.keys() <= set(ADJUSTABLE):
        rule = f"of a plugin's server these are the user's: {', '.join(ADJUSTABLE)}"
        raise invalid_params(f"Invalid params: `settings`: {rule}", field="settings", rule=rule)
    if params.settings is None and name in config.document.get("mcp_switches", {}):
        return ("mcp_switches",), {name: params.enabled}
    return ("plugins", plugin_id, "mcp_servers", name), change


def _refuse_forbidden(params: McpServerSetParams, found: ServerConfig) -> None:
    if not found.allowed and params.enabled is True:
        raise internal_error(
            f"MCP server '{found.name}' is disabled by managed requirements",
            "mcpServerNotAllowed",
            name=found.name,
        )


def _key_path(path: Sequence[str]) -> str:
    """Write a key path, each part in quotes."""
    parts = (part.replace("\\", "\\\\").replace('"', '\\"') for part in path)
    return ".".join(f'"{part}"' for part in parts)


@serves("mcpServer/restart")
async def restart_server(
    context: RequestContext, params: McpServerRestartParams
) -> McpServerRestartResponse:
    """Start a server afresh in one thread, or in all that have it."""
    services, name = context.services, params.name
    if params.thread_id is not None:
        sessions = [loaded_thread(services.sessions, params.thread_id)]
    else:
        sessions = list(services.sessions)
    having = [session for session in sessions if name in session.servers.live().servers]
    startable = [one for one in having if one.servers.live().servers[name].startable]
    if not having:
        await _check_known(services, name, params.thread_id)
        return McpServerRestartResponse(thread_ids=[])
    if not startable:
        raise invalid_request(
            f"MCP server '{name}' is disabled: mcpServer/set with `enabled` switches it on",
            "mcpServerDisabled",
            name=name,
        )
    for session in startable:
        session.servers.live().restart(name)
    return McpServerRestartResponse(thread_ids=[session.log.id for session in startable])


async def _check_known(services: Services, name: str, thread_id: str | None) -> None:
    """Check that the settings have a server that the loaded threads, or this one, do not have."""
    if thread_id is None:
        _, settings = await _resolve(services, prepare=False)
    if thread_id is not None or name not in settings.servers:
        raise invalid_request(f"No MCP server named '{name}' found.", "unknownMcpServer", name=name)


MAX_OUTPUTS = 32
"""Threads whose output of a server one answer has."""

MAX_OUTPUT_CHARS = 8 * 1024
"""Of each of several threads; the newest."""


@serves("mcpServer/output/read")
async def read_server_output(
    context: RequestContext, params: McpServerOutputReadParams
) -> McpServerOutputReadResponse:
    """Return what a server wrote to stderr, and logged, in one thread or in all."""
    services, name = context.services, params.name
    if params.thread_id is not None:
        sessions = [loaded_thread(services.sessions, params.thread_id)]
    else:
        sessions = list(services.sessions)
    found = [
        (session.log.id, servers[name])
        for session in sessions
        if name in (servers := session.servers.live().servers)
    ]
    if not found:
        await _check_known(services, name, params.thread_id)
        return McpServerOutputReadResponse(data=[])

    def render() -> list[McpServerOutput]:
        most = None if len(found) == 1 else MAX_OUTPUT_CHARS
        return [_output_of(*one, most) for one in found[-MAX_OUTPUTS:]]

    return McpServerOutputReadResponse(data=await anyio.to_thread.run_sync(render))


def _output_of(thread_id: str, server: McpServer, most_chars: int | None) -> McpServerOutput:
    """Render what a server wrote, at most so much of it; without a bound all that was kept."""
    record = server.record
    text = record.without_secrets(record.output.text() + server.log.text())
    return McpServerOutput(
        thread_id=thread_id,
        text=text if most_chars is None else text[-most_chars:],
        runtime_status=server.status,
        started_at_ms=record.started_at_ms,
        last_error=record.last_error,
    )


async def _resolve(services: Services, *, prepare: bool) -> tuple[Config, McpSettings]:
    """Read which servers there are; `prepare` waits until those of apps are there."""
    with config_failures():
        config = await services.configuration.read()
        configured = read_mcp_settings(config)
    if prepare and services.apps is not None:
        await services.apps.prepare_mcp_servers(config.document)
    return config, ServerCatalog(services.extensions).resolve(configured, config, "discover")


async def _ask_trial(
    services: Services, settings: McpSettings, question: Callable[[ServerSet], Awaitable[Answer]]
) -> Answer:
    """Run servers for as long as one question takes."""
    cwd = services.configuration.resolve(None)
    servers = ServerSet(settings, cwd, services.mcp_pool, lambda *_: None)
    answers: list[Answer] = []
    failure: McpError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        try:
            answers.append(await question(servers))
        except McpError as exc:
            # Raised here it would come out of the task group wrapped in a group.
            failure = exc
        finally:
            servers.stop()
    if failure is not None:
        raise failure
    return answers[0]


def _configs(servers: ServerSet) -> Mapping[str, ServerConfig]:
    return {name: server.config for name, server in servers.servers.items()}


def _views(configs: Mapping[str, ServerConfig], config: Config) -> AppViews:
    with config_failures():
        return AppViews.read(configs, config)


def _request_meta(meta: Json, doing: str) -> JsonObject:
    if meta is None:
        return {}
    if not isinstance(meta, dict):
        raise internal_error(
            f"{doing}: MCP tool request _meta must be a JSON object, got {to_json(meta).decode()}",
            "mcpBadArguments",
        )
    return client_part(meta)


async def _ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    pass


logger = logging.getLogger(__name__)

MAX_LOGINS = 32
"""Sign-ins that wait for their browsers at the same time."""

SUPERSEDED = "another sign-in to this server took its place"


@dataclass(frozen=True, slots=True)
class _SignIn:
    """One sign-in that somebody asked for."""

    id: str
    key: str
    params: McpServerOauthLoginParams
    login: "Login"
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)


@serves("mcpServer/oauth/login")
async def log_in_to_server(
    context: RequestContext, params: McpServerOauthLoginParams
) -> McpServerOauthLoginResponse:
    """Begin a sign-in and answer with the address for the browser."""
    config = await _server(context.services, params)
    transport = config.transport
    if not isinstance(transport, HttpTransport):
        raise invalid_request(
            "OAuth login is only supported for streamable HTTP servers.",
            "oauthNotSupported",
            name=params.name,
        )
    if len(context.services.part(_sign_ins)) >= MAX_LOGINS:
        raise overloaded()
    home = transport.oauth.home
    if transport.auth != "oauth" or home is None:
        raise invalid_request(
            f"MCP server '{params.name}' does not sign in with OAuth.",
            "oauthNotSupported",
            name=params.name,
        )
    store = CredentialStore(home, transport.oauth.store)
    target = SignInTarget.of(config, transport, context.services.environments)
    login_type, wishes_type = await load(_login_types)
    wishes = wishes_type.within_bounds(
        params.client_registration, params.scopes, params.timeout_secs
    )
    sign_in = login_type(target, store, wishes)
    attempt = _SignIn(context.services.clock.new_id(), target.key, params, sign_in)
    context.after_answer(attempt.answered.set)
    try:
        url: str = await context.services.tasks.start(_run, context.services, attempt)
    except (OAuthFailed, ServerUnavailable) as exc:
        raise internal_error(
            f"failed to login to MCP server '{params.name}': {exc}",
            "oauthLoginFailed",
            name=params.name,
        ) from exc
    return McpServerOauthLoginResponse(authorization_url=url, login_id=attempt.id)


async def _server(services: Services, params: McpServerOauthLoginParams) -> ServerConfig:
    if params.thread_id is not None:
        servers = loaded_thread(services.sessions, params.thread_id).servers.live().servers
        config = servers[params.name].config if params.name in servers else None
    else:
        with config_failures():
            settings = await services.configuration.read()
            configured = read_mcp_settings(settings)
        catalog = ServerCatalog(services.extensions)
        config = catalog.resolve(configured, settings, "current").servers.get(params.name)
    if config is None or config.is_registered:
        raise invalid_request(
            f"No MCP server named '{params.name}' found.", "unknownMcpServer", name=params.name
        )
    if not config.allowed:
        raise internal_error(
            "failed to resolve MCP server runtime: the MCP server is disabled by managed "
            "requirements",
            "mcpServerNotAllowed",
            name=params.name,
        )
    return config


async def _run(
    services: Services, attempt: _SignIn, *, task_status: anyio.abc.TaskStatus[str]
) -> None:
    older = services.part(_sign_ins).get(attempt.key)
    services.part(_sign_ins)[attempt.key] = attempt
    shown, error = False, SUPERSEDED

    def show(url: str) -> None:
        nonlocal shown
        shown = True
        task_status.started(url)
        # What follows goes on long after the answer.
        bind_request(None)

    try:
        with attempt.scope:
            if older is not None:
                # It may hold the port that this one needs.
                older.scope.cancel()
                await older.ended.wait()
            await attempt.login.run(show)
    except (OAuthFailed, ServerUnavailable) as exc:
        if not shown:
            raise
        error = str(exc)
    except Exception as exc:  # noqa: BLE001
        # Its text might hold what the servers said to each other.
        logger.error("sign-in to %s broke: %s", attempt.params.name, type(exc).__name__)
        error = "the sign-in broke"
        if not shown:
            raise OAuthFailed(error) from None
    finally:
        if services.part(_sign_ins).get(attempt.key) is attempt:
            del services.part(_sign_ins)[attempt.key]
        attempt.ended.set()
    if not shown:
        raise OAuthFailed(error)
    await _notify(services, attempt, None if attempt.login.succeeded else error)


async def _notify(services: Services, attempt: _SignIn, error: str | None) -> None:
    await attempt.answered.wait()
    services.hub.broadcast(
        McpServerOauthLoginCompletedNotification(
            name=attempt.params.name,
            thread_id=attempt.params.thread_id,
            login_id=attempt.id,
            success=error is None,
            error=error,
        )
    )
    if error is None:
        for session in services.sessions:
            session.servers.live().signed_in(attempt.params.name)


def _login_types() -> "tuple[type[Login], type[LoginWishes]]":
    # With the HTTP client of MCP servers, which the status of none of them needs.
    from app_server.mcp.oauth.login import Login, LoginWishes

    return Login, LoginWishes


Element = TypeVar("Element", bound=WireModel)

MAX_PAGE_BYTES = 900_000
"""Of the rows of one page; a message to a client stays below 1 MiB."""

MAX_ERROR_BYTES = 2000
"""Of `toolsError` in a row that had to be cut."""

NO_TOOL_HOLDS = "none of its tools has a name, an input schema and texts where texts belong"


def row(entry: ServerReport, *, of_thread: bool) -> McpServerStatus:
    """Render one server; elements of its lists that are not of the wire's form are left out.

    Validating thousands of tools takes a while: for worker threads.
    """
    described = {name: without_account(tool) for name, tool in entry.tools.items()}
    tools = {
        name: tool
        for name, definition in described.items()
        if (tool := _element(Tool, definition)) is not None
    }
    error = entry.tools_error
    if described and not tools and error is None:
        error = NO_TOOL_HOLDS
    return McpServerStatus(
        name=entry.config.name,
        runtime_status=entry.status if of_thread else None,
        plugin_id=entry.config.metadata.plugin_id,
        http_origin=origin(entry.config),
        server_info=_server_info(entry.listing.server_info),
        server_capabilities=entry.listing.capabilities,
        tool_list_meta=entry.listing.tools_meta,
        tools=tools,
        tools_error=error,
        resources=_elements(Resource, entry.resources),
        resource_templates=_elements(ResourceTemplate, entry.resource_templates),
        auth_status=entry.auth_status,
        protocol_version=entry.record.protocol_version,
        pid=entry.pid,
        rss_bytes=entry.resident_bytes,
        shared_by=entry.record.shared_by if of_thread and not entry.config.problem else None,
        started_at_ms=entry.record.started_at_ms,
        restarts=entry.record.restarts if of_thread else None,
        last_error=entry.record.last_error,
        last_fault=entry.record.last_fault,
        tools_cached_at_ms=entry.tools_cached_at_ms,
    )


def page_of(
    groups: Sequence[str], rows_of: Callable[[str], Iterable[McpServerStatus]]
) -> tuple[list[McpServerStatus], int]:
    """Give the rows of as many groups from the front as fit, at least one, and their number.

    A row that fits into no page is cut down. `rows_of` gives the rows of a group; none if its
    servers have gone.
    """
    left = MAX_PAGE_BYTES
    page: list[McpServerStatus] = []
    for number, group in enumerate(groups):
        for whole in rows_of(group):
            shown, size = _cut(whole)
            if size > left and page:
                return page, number
            left -= size
            page.append(shown)
    return page, len(groups)


def _cut(whole: McpServerStatus) -> tuple[McpServerStatus, int]:
    """Take from a row what it has too much of: its lists, then all that its server sent."""
    reason = f"its lists are larger than {MAX_PAGE_BYTES} bytes"
    if (size := _size(whole)) is None:
        reason = "what it lists cannot be written as JSON"
    elif size <= MAX_PAGE_BYTES:
        return whole, size
    error = whole.tools_error if whole.tools_error and not whole.tools else reason
    empty = {
        "tools": {},
        "resources": [],
        "resource_templates": [],
        "tools_error": cut_middle(error, MAX_ERROR_BYTES),
    }
    without_lists = whole.model_copy(update=empty)
    if (size := _size(without_lists)) is not None and size <= MAX_PAGE_BYTES:
        return without_lists, size
    nothing = {"server_info": None, "server_capabilities": None, "tool_list_meta": None}
    bare = without_lists.model_copy(update=nothing)
    return bare, _size(bare) or 0


def _size(shown: McpServerStatus) -> int | None:
    try:
        # With the comma behind it.
        return len(shown.model_dump_json().encode()) + 1
    except ValueError:
        return None


def _elements(kind: type[Element], found: Sequence[JsonObject]) -> list[Element]:
    elements = (_element(kind, element) for element in found)
    return [element for element in elements if element is not None]


def _element(kind: type[Element], found: JsonObject) -> Element | None:
    try:
        return kind.model_validate(found)
    except ValidationError:
        return None


def _server_info(info: JsonObject | None) -> McpServerInfo | None:
    if info is None:
        return None

    def text(key: str) -> str | None:
        value = info.get(key)
        return value if isinstance(value, str) else None

    icons = info.get("icons")
    return McpServerInfo(
        name=text("name") or "",
        title=text("title"),
        version=text("version") or "",
        description=text("description"),
        icons=icons if isinstance(icons, list) else None,
        website_url=text("websiteUrl"),
    )


def _probe(services: Services) -> AuthProbe:
    return AuthProbe(services.environments)


def _sign_ins(_: Services) -> dict[str, _SignIn]:
    """Make the table of sign-ins that go on, by the key of the server."""
    return {}
