"""thread/shellCommand: a command of the user in a thread.

Source: docs/tools.md, "Commands of the user".
"""

from collections.abc import Mapping

from app_server.handlers.errors import thread_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from app_server.tools.commands.arguments import MAX_LINE_CHARS
from app_server.tools.commands.user_shell import DEFAULT_S, UserCommand
from protocol.errors import invalid_request
from protocol.host import ThreadShellCommandParams, ThreadShellCommandResponse


class UserCommandHandlers:
    """The method thread/shellCommand."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"thread/shellCommand": self.run}

    async def run(
        self, context: RequestContext, params: ThreadShellCommandParams
    ) -> ThreadShellCommandResponse:
        """Run a line, unconfined, in the turn that runs or in one of its own."""
        line, timeout_ms = params.command.strip(), params.timeout_ms
        if not line:
            raise invalid_request("command must not be empty", "invalidCommand")
        if len(line) > MAX_LINE_CHARS or "\0" in line:
            raise invalid_request(
                f"command must have at most {MAX_LINE_CHARS} characters, and no NUL",
                "invalidCommand",
            )
        if timeout_ms is not None and timeout_ms < 0:
            raise invalid_request("timeoutMs must not be negative", "invalidTimeout")
        with thread_failures(params.thread_id):
            session = self._sessions.get(params.thread_id)
            command = UserCommand(
                line=line,
                timeout_s=DEFAULT_S if timeout_ms is None else timeout_ms / 1000,
                output_limit_bytes=session.output_limit_bytes,
            )
            begin = await session.user_commands.start(command)
        context.after_answer(begin)
        return ThreadShellCommandResponse()
