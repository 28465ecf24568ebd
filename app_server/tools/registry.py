"""The table of tools that a turn has: which there are, and in which order they are declared.

Source: docs/tools.md.
"""

from collections.abc import Sequence

from app_server.tools.apply_patch import ApplyPatch, TurnChanges
from app_server.tools.dynamic_tools import ClientTools, DynamicTools
from app_server.tools.environments import TurnEnvironments
from app_server.tools.exec_command import ExecCommand, WriteStdin
from app_server.tools.goal import GoalTool
from app_server.tools.install_plugin import PluginInstall
from app_server.tools.mcp.model_calls import McpCalls
from app_server.tools.mcp.resources import McpResources
from app_server.tools.mcp.skills import ServerSkills
from app_server.tools.request_permissions import RequestPermissions
from app_server.tools.request_user_input import RequestUserInput
from app_server.tools.tool_search import ToolSearch
from app_server.tools.update_plan import UpdatePlan
from app_server.tools.view_image import ViewImage
from app_server.tools.wait_until import WaitUntil
from app_server.tools.web_search import WebSearch
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import ToolTable, TurnTool

NONE_OF_CLIENTS = DynamicTools()


def tool_table(context: ThreadContext, turn: RunningTurn) -> ToolTable:
    """Make the table of one turn."""
    settings, servers = context.settings, context.servers.live()
    environments = TurnEnvironments(context, turn)
    patches = ApplyPatch(context, turn, environments, TurnChanges())
    specs = context.log.state.created.dynamic_tools
    of_clients = DynamicTools(specs) if specs else NONE_OF_CLIENTS
    tools: Sequence[TurnTool] = (
        ExecCommand(context, turn, patches, environments),
        WriteStdin(context, turn),
        GoalTool(context.goals, turn.id),
        *(
            [RequestPermissions(context, turn, environments)]
            if settings.requests_permissions
            else []
        ),
        RequestUserInput(context, turn),
        PluginInstall(context, turn, context.server.plugins.offers),
        *([patches] if settings.offers_patches else []),
        ViewImage(context, turn, environments),
        *([WaitUntil(context, turn)] if settings.offers_wakes else []),
        *([UpdatePlan(turn)] if settings.offers_plans else []),
        McpResources(context, turn, servers),
        *([ServerSkills(servers, turn.recorder.turn_id)] if settings.reads_server_skills else []),
        ToolSearch(servers, of_clients),
        McpCalls(context, turn, servers, environments),
        *([ClientTools(context, turn, of_clients)] if specs else []),
        WebSearch(settings.web_search, turn),
    )
    return ToolTable(tools, context.hooks, turn.recorder, context.tool_offer)


def review_table(context: ThreadContext, turn: RunningTurn) -> ToolTable:
    """Make the table for a review of code: commands, and nothing that changes the thread."""
    environments = TurnEnvironments(context, turn)
    patches = ApplyPatch(context, turn, environments, TurnChanges())
    tools: Sequence[TurnTool] = (
        ExecCommand(context, turn, patches, environments),
        WriteStdin(context, turn),
    )
    return ToolTable(tools, context.hooks, turn.recorder)
