"""The apps' contributions to turns: texts for the model, and the app of a call's item.

Source: docs/apps.md, "Turns".
"""

from collections.abc import Callable, Collection

from app_server.apps.presentation import app_context
from app_server.apps.published import Published
from app_server.apps.settings import AppsSettings
from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.turns import Presentation, ToolCall, TurnExtension

INSTRUCTIONS = """\
<apps_instructions>
The user has installed apps. A user names one as [$name](app://id) in a message; use its tools \
then. Use the tools of an app unasked, too, where they fit what the user wants. Every app is a \
namespace of its own among your tools, or is found with the tool search. Listing resources tells \
nothing about apps.
</apps_instructions>"""


class AppsInTurns(TurnExtension):
    """The TurnExtension of the service."""

    def __init__(self, shown_to: Callable[[str], Published | None]) -> None:
        """`shown_to` says what the servers of a thread were last made of."""
        self._shown_to = shown_to

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """Return what the model is shown of apps, if it has a tool of one."""
        published = None if context.thread_id is None else self._shown_to(context.thread_id)
        if published is None or not any(server in published.made.routes for server, _ in tools):
            return None
        wanted = AppsSettings.read(context.config).includes_instructions
        return INSTRUCTIONS if wanted else None

    def present(self, call: ToolCall) -> Presentation | None:
        """Name the app that a call goes to."""
        published = self._shown_to(call.thread_id)
        route = None if published is None else published.made.routes.get(call.server)
        tool = None if route is None else route.tools.get(call.tool)
        if route is None or tool is None:
            return None
        uri = tool.resources[0] if tool.resources else None
        return Presentation(app_context(route.connector, tool), uri)
