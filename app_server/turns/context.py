"""Context of the turns of one loaded thread, made once, when the thread is loaded."""

import os
from dataclasses import dataclass, field

import anyio.abc

from app_server.config.values import Config
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.mcp.catalog.config import McpSettings
from app_server.models.catalogue.models import ThreadModel
from app_server.models.catalogue.providers import credential_variables
from app_server.runtime.clock import Clock
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.threads.log.live import LiveThread
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.approval.commands import CommandApprovals
from app_server.turns.approval.elicitations import Elicitations
from app_server.turns.approval.files import FileApprovals
from app_server.turns.approval.network import NetworkApprovals
from app_server.turns.approval.permissions import PermissionApprovals
from app_server.turns.approval.reviewer import AssessmentRequests, Reviewer
from app_server.turns.approval.tools import ToolApprovals
from app_server.turns.clients import ThreadClients
from app_server.turns.commands import ThreadCommands, ThreadMachine
from app_server.turns.goals import Goals, is_active
from app_server.turns.hooks import ThreadHooks
from app_server.turns.server_context import ServerContext
from app_server.turns.servers import ThreadServers
from app_server.turns.session_settings import SessionSettings
from app_server.turns.slot import SessionStatus, TurnSlot
from app_server.turns.tools import KeptOffer
from app_server.turns.usage.budgets import ThreadBudgets
from app_server.turns.usage.recorder import UsageRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadApprovals:
    """The approvals of one loaded thread, by kind of action."""

    questions: ThreadQuestions
    tools: ToolApprovals
    """Of tools of MCP servers."""
    commands: CommandApprovals
    files: FileApprovals
    permissions: PermissionApprovals
    network: NetworkApprovals


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadContext:
    """One loaded thread, as its turns and their tools see it."""

    log: LiveThread
    """With its state."""
    clients: ThreadClients
    clock: Clock
    settings: SessionSettings
    """Settings of the configuration, as of the loading; clients' are in the log's state."""
    slot: TurnSlot
    status: SessionStatus
    model: ThreadModel
    servers: ThreadServers
    """The MCP servers."""
    machine: ThreadMachine
    commands: ThreadCommands
    timeouts: PausableTimeouts
    """For how long commands are waited for."""
    approvals: ThreadApprovals
    hooks: ThreadHooks
    """The user's hooks."""
    extensions: ExtensionRegistry
    goals: Goals
    usage: UsageRecorder
    tasks: anyio.abc.TaskGroup
    """Owns everything that the thread does."""
    server: ServerContext
    """Context that all loaded threads share."""
    tool_offer: KeptOffer = field(default_factory=KeptOffer)
    """Of the tools that turns have; a review of code has others."""

    def tool_basis(self) -> tuple[object, ...]:
        """Return what a request's offer of tools follows from besides the model, to be compared.

        The settings of the configuration are those of the loading, and not in it.
        """
        servers, plugins = self.servers.live(), self.server.plugins
        return (
            self.log.state.in_force,
            self.server.environments.elsewhere,
            servers.settings,
            [(server, server.config) for server in servers.servers.values()],
            servers.tools(),
            is_active(self.goals.goal),
            plugins.offers.has_any(self.servers.config.document),
        )

    def instructions(self) -> list[str]:
        """Collect what extensions say of the tools that MCP servers have now."""
        tools = self.servers.live().tools()
        return self.extensions.in_turns.instructions(self.servers.context(), tools.raw_names)


def thread_context(
    log: LiveThread,
    config: Config,
    mcp: McpSettings,
    settings: SessionSettings,
    server: ServerContext,
    tasks: anyio.abc.TaskGroup,
) -> ThreadContext:
    """Join the parts of a thread that has just been loaded; `mcp` was read from `config`."""
    clock, slot, timeouts = server.clock, TurnSlot(), PausableTimeouts()
    clients = ThreadClients(server.clients, log.id)
    status = SessionStatus(slot, clients, clock)
    hooks = ThreadHooks(log, clients, server)
    budgets = ThreadBudgets(log, clients, clock, server.configuration, server.budgets)
    usage = UsageRecorder(log, clients, clock, status, budgets)
    assessments = AssessmentRequests(log, server.model_client, settings.model.providers, usage)
    questions = ThreadQuestions(
        log=log,
        clients=clients,
        status=status,
        hooks=hooks,
        reviewer=Reviewer(slot, log, assessments, clients, clock),
        clock=clock,
        timeout_s=settings.approval_timeout_s,
    )
    approvals = ThreadApprovals(
        questions=questions,
        tools=ToolApprovals(questions, server.lasting_approvals),
        commands=CommandApprovals(questions, server.rules, config),
        files=FileApprovals(questions),
        permissions=PermissionApprovals(questions),
        network=NetworkApprovals(questions, server.rules, slot, timeouts),
    )
    servers = ThreadServers(log, clients, config, mcp, server, Elicitations(questions))
    machine = ThreadMachine(
        local=server.commands,
        environments=server.environments,
        settings=settings.commands,
        environ=os.environ,
        own_credentials=server.credentials
        | credential_variables(settings.model.providers.values()),
        servers=servers,
    )
    return ThreadContext(
        log=log,
        clients=clients,
        clock=clock,
        settings=settings,
        slot=slot,
        status=status,
        model=ThreadModel(log, settings.model, server.model_lists),
        servers=servers,
        machine=machine,
        commands=ThreadCommands(machine, tasks),
        timeouts=timeouts,
        approvals=approvals,
        hooks=hooks,
        extensions=server.extensions,
        goals=Goals(log, clients, clock),
        usage=usage,
        tasks=tasks,
        server=server,
    )
