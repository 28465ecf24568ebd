"""The table of tools that a turn has: which there are, and in which order they are declared.

Source: docs/tools.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app_server.extensions.contract.hooks import Hooks
from app_server.extensions.contract.plugins import PluginOffers
from app_server.extensions.contract.registration import ContributionContext
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.declare import deferred_lines, deferred_note
from app_server.permissions.shell.grammar import ShellGrammar
from app_server.tools.apply_patch import ApplyPatch
from app_server.tools.commands.terminals import Terminals
from app_server.tools.dynamic.client_tools import ClientTools
from app_server.tools.dynamic.specs import DynamicTools
from app_server.tools.environments import TurnEnvironments
from app_server.tools.exec_command import ExecCommand
from app_server.tools.hooked import HookedCalls
from app_server.tools.install_plugin import PluginInstall
from app_server.tools.mcp.calls import McpCalls
from app_server.tools.mcp.resources import McpResources
from app_server.tools.mcp.skills import ServerSkills
from app_server.tools.request_permissions import RequestPermissions
from app_server.tools.request_user_input import RequestUserInput
from app_server.tools.tool_search import ToolSearch
from app_server.tools.update_plan import UpdatePlan
from app_server.tools.view_image import ViewImage
from app_server.tools.web_search import WebSearch
from app_server.tools.write_stdin import WriteStdin
from app_server.turns.approval.approvals import ThreadApprovals
from app_server.turns.hooks import ThreadHooks
from app_server.turns.session_settings import SessionSettings
from app_server.turns.tools.table import ToolTable, TurnTool
from app_server.turns.tools.turn import TurnContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTools:
    """What the tools of one loaded thread share over its turns."""

    servers: ServerSet
    approvals: ThreadApprovals
    user_hooks: ThreadHooks
    """Commands of the user's that run before and after calls."""
    terminals: Terminals
    hooks: Hooks
    contribution: Callable[[], ContributionContext]
    """The thread, as extensions see it."""
    grammar: ShellGrammar
    settings: SessionSettings
    plugin_offers: PluginOffers
    """What the model may suggest to install."""
    of_clients: DynamicTools
    """What a client declared for the thread."""


def tool_table(turn: TurnContext, thread: ThreadTools, *own: TurnTool) -> ToolTable:
    """Make the table of one turn; `own` are tools about the thread itself."""
    environments = _environments(turn, thread)
    patches = ApplyPatch(turn, thread.approvals, thread.grammar, environments)
    permissions = RequestPermissions(turn, thread.approvals.permissions, environments)
    tools: Sequence[TurnTool] = (
        ExecCommand(turn, thread.terminals, thread.approvals, patches, environments),
        WriteStdin(turn, thread.terminals),
        *own,
        *([permissions] if thread.settings.requests_permissions else []),
        RequestUserInput(turn, in_every_mode=thread.settings.asks_in_every_mode),
        PluginInstall(turn, thread.plugin_offers, thread.contribution),
        *([patches] if thread.settings.offers_patches else []),
        ViewImage(turn, environments),
        *([UpdatePlan(turn)] if thread.settings.offers_plans else []),
        McpResources(turn, thread.servers),
        *([ServerSkills(thread.servers)] if thread.settings.reads_server_skills else []),
        ToolSearch(thread.servers, thread.of_clients),
        McpCalls(
            turn,
            thread.servers,
            thread.approvals,
            thread.hooks,
            environments,
        ),
        ClientTools(turn, thread.of_clients),
        WebSearch(thread.settings.web_search, partial(_is_unconfined, turn)),
    )
    around = HookedCalls(thread.user_hooks, turn).run
    return ToolTable(tools, turn.features, lambda: _notes(thread), around)


def review_table(turn: TurnContext, thread: ThreadTools) -> ToolTable:
    """Make the table for a review of code: commands, and nothing that changes the thread."""
    environments = _environments(turn, thread)
    patches = ApplyPatch(turn, thread.approvals, thread.grammar, environments)
    tools: Sequence[TurnTool] = (
        ExecCommand(turn, thread.terminals, thread.approvals, patches, environments),
        WriteStdin(turn, thread.terminals),
    )
    return ToolTable(tools, turn.features, list, HookedCalls(thread.user_hooks, turn).run)


def _is_unconfined(turn: TurnContext) -> bool:
    return turn.settings.sandbox_policy.type == "dangerFullAccess"


def _environments(turn: TurnContext, thread: ThreadTools) -> TurnEnvironments:
    place, proxy = thread.terminals.place, thread.settings.network_proxy
    permissions = thread.approvals.permissions
    return TurnEnvironments(turn, place.environments, permissions, place.places, proxy)


def _notes(thread: ThreadTools) -> list[str]:
    """Say which tools could be searched, and what extensions say of their tools."""
    table = thread.servers.tools()
    notes = thread.hooks.instructions(thread.contribution(), table.raw_names)
    lines = thread.of_clients.deferred_lines()
    if thread.servers.surface == "deferred" and table.tools:
        lines = [*deferred_lines(table), *lines]
    if lines:
        notes.insert(0, deferred_note(lines))
    return notes
