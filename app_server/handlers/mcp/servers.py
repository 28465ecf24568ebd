"""MCP servers: their status, direct calls, streams of their events, and taking over settings."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.config.values import Config
from app_server.handlers.apps.servers import RESOURCES, AppViews, is_of_apps
from app_server.handlers.errors import (
    config_failures,
    loaded_thread,
    mcp_failures,
    settings_failures,
)
from app_server.handlers.services import Services
from app_server.handlers.views.mcp_servers import page_of, row
from app_server.handlers.views.pages import offset, page
from app_server.mcp.auth_status import AuthProbe
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import McpSettings, ServerConfig
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.servers.calls import call_tool, read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.status import report, without_left_out
from app_server.mcp.tools.calls import (
    blocks_of,
    bounded_result,
    client_part,
    without_effective_input,
)
from app_server.mcp.tools.naming import RawName
from app_server.mcp_wire.errors import McpError
from app_server.rpc.context import RequestContext, Routes
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
    McpServerRefreshResponse,
    McpServerStatus,
    McpServerToolCallParams,
    McpServerToolCallResponse,
)
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.model import Json, JsonObject

Answer = TypeVar("Answer")


class McpHandlers:
    """The methods about MCP servers, but for signing in."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions
        self._configuration = services.configuration
        self._extensions = services.extensions
        self._processes = services.environments
        self._apps = services.apps
        self._probe = AuthProbe(services.environments)
        self.routes: Routes = {
            "config/mcpServer/reload": self.reload,
            "mcpServerStatus/list": self.list_status,
            "mcpServer/tool/call": self.call_tool,
            "mcpServer/resource/read": self.read_resource,
            "mcpServer/event/stream/start": self.start_event_stream,
            "mcpServer/event/stream/stop": self.stop_event_stream,
        }

    async def list_status(
        self, context: RequestContext, params: ListMcpServerStatusParams
    ) -> ListMcpServerStatusResponse:
        """Describe a thread's servers, or those of the configuration over trial connections."""
        resources = params.detail != "toolsAndAuthOnly"
        if params.thread_id is not None:
            session = loaded_thread(self._sessions, params.thread_id)
            servers = session.servers
            views = _views(_configs(servers), session.config)
        else:
            config, settings = await self._resolve(prepare=self._apps is not None)
            views = _views(settings.servers, config)
        groups = views.groups()
        names = sorted(name for name in groups if params.server_name in (None, name))
        asked, _ = page(names, params.cursor, params.limit, "MCP servers")
        chosen = [name for shown in asked for name in groups[shown]]
        ask = partial(report, names=chosen, probe=self._probe, resources=resources)
        of_thread = params.thread_id is not None
        if of_thread:
            reports = without_left_out(await ask(servers), servers.tools())
        elif not chosen:
            reports = []
        else:
            trial = McpSettings({name: settings.servers[name] for name in chosen})
            reports = await self._ask_trial(trial, ask)

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

    async def call_tool(
        self, context: RequestContext, params: McpServerToolCallParams
    ) -> McpServerToolCallResponse:
        """Call a tool over the thread's connection, without model, approval or item."""
        session = loaded_thread(self._sessions, params.thread_id)
        servers, raw = session.servers, RawName(params.server, params.tool)
        if params.server == RESOURCES:
            raw = _views(_configs(servers), session.config).tool(params.server, params.tool)
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

    async def read_resource(
        self, context: RequestContext, params: McpResourceReadParams
    ) -> McpResourceReadResponse:
        """Read a resource over the thread's connection, or over one of its own."""
        meta = None if params.meta is None else client_part(params.meta)
        if params.thread_id is not None:
            meta = {**(meta or {}), "threadId": params.thread_id}

        with mcp_failures(f"resource read failed for `{params.server}`"):
            if params.thread_id is not None:
                session = loaded_thread(self._sessions, params.thread_id)
                server = _views(_configs(session.servers), session.config).reader(params)
                session.servers.revive(server)
                result = await read_resource(session.servers, server, params.uri, meta)
            else:
                config, settings = await self._resolve(
                    prepare=self._apps is not None and is_of_apps(params.server)
                )
                server = _views(settings.servers, config).reader(params)
                chosen = {n: one for n, one in settings.servers.items() if n == server}
                result = await self._ask_trial(
                    McpSettings(chosen),
                    lambda servers: read_resource(servers, server, params.uri, meta),
                )
        contents = result.get("contents")
        return McpResourceReadResponse(
            contents=contents if isinstance(contents, list) else [],
            origin_call_id=params.origin_call_id,
        )

    async def start_event_stream(
        self, context: RequestContext, params: McpServerEventStreamStartParams
    ) -> McpServerEventStreamStartResponse:
        """Refuse: only hosted apps have events, and there are none here."""
        raise invalid_request(
            "MCP event subscriptions are only supported for hosted apps", "eventStreamsNotSupported"
        )

    async def stop_event_stream(
        self, context: RequestContext, params: McpServerEventStreamStopParams
    ) -> McpServerEventStreamStopResponse:
        """Agree that the stream has ended: none was ever begun."""
        return McpServerEventStreamStopResponse()

    async def reload(self, context: RequestContext, params: NoParams) -> McpServerRefreshResponse:
        """Reconcile every loaded thread with the file, once the caller has been answered."""
        with settings_failures("failed to refresh MCP servers"):
            base = await self._configuration.read()
            read_mcp_settings(base)
        await self._sessions.refresh_extensions(base)
        context.after_answer(self._sessions.reload_servers, base)
        return McpServerRefreshResponse()

    async def _resolve(self, *, prepare: bool) -> tuple[Config, McpSettings]:
        """Read which servers there are; `prepare` waits until those of apps are there."""
        with config_failures():
            config = await self._configuration.read()
            configured = read_mcp_settings(config)
        if prepare and self._apps is not None:
            await self._apps.prepare_mcp_servers(config.document)
        return config, ServerCatalog(self._extensions).resolve(configured, config, "discover")

    async def _ask_trial(
        self, settings: McpSettings, question: Callable[[ServerSet], Awaitable[Answer]]
    ) -> Answer:
        """Run servers for as long as one question takes."""
        cwd = self._configuration.resolve(None)
        servers = ServerSet(settings, cwd, self._processes, lambda *_: None)
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
