"""Joins what one turn needs: its recorder, its tools, its model."""

from app_server.sessions.goals.goals import Goals
from app_server.sessions.goals.tool import GoalTool
from app_server.sessions.mcp_servers import ThreadServers
from app_server.sessions.ports import SessionPorts
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.status import SessionStatus
from app_server.threads.log.live import LiveThread
from app_server.tools.commands.terminals import Terminals
from app_server.tools.dynamic_specs import DynamicTools
from app_server.tools.registry import ThreadTools, tool_table
from app_server.turns.approval.gates import ThreadApprovals
from app_server.turns.hooks import ThreadHooks
from app_server.turns.model.thread_model import ThreadModel
from app_server.turns.recorder import TurnRecorder
from app_server.turns.run import SessionSettings, TurnOptions, TurnRun
from app_server.turns.tools.metadata import turn_metadata
from app_server.turns.tools.turn import TurnContext
from protocol.model import JsonObject


class TurnFactory:
    """Makes the turns of one loaded thread."""

    def __init__(
        self,
        *,
        thread: LiveThread,
        slot: TurnSlot,
        status: SessionStatus,
        servers: ThreadServers,
        approvals: ThreadApprovals,
        user_hooks: ThreadHooks,
        terminals: Terminals,
        goals: Goals,
        model: ThreadModel,
        settings: SessionSettings,
        ports: SessionPorts,
    ) -> None:
        self._thread = thread
        self._slot = slot
        self._status = status
        self._servers = servers
        self._approvals = approvals
        self._user_hooks = user_hooks
        self._terminals = terminals
        self._goals = goals
        self._model = model
        self._settings = settings
        self._ports = ports
        self._of_clients = DynamicTools(thread.state.created.dynamic_tools or ())

    def make(self, turn_id: str, options: TurnOptions, *, compacts: bool = False) -> TurnRun:
        """Make a turn that is in the log; `compacts` makes it begin with a compaction."""
        ports = self._ports
        recorder = TurnRecorder(self._thread, turn_id, ports.clients, ports.clock)
        turn = TurnContext(
            recorder=recorder,
            clients=ports.clients,
            waiting_on_approval=self._status.waiting_on_approval,
            waiting_on_user_input=self._status.waiting_on_user_input,
            interrupt=lambda: self._slot.interrupt(turn_id),
            features=lambda: self._model.features,
            mcp_meta=options.mcp_meta,
            metadata=self._turn_metadata,
            output_limit_bytes=self._settings.output_limit_bytes,
        )
        thread = ThreadTools(
            servers=self._servers.set,
            approvals=self._approvals,
            user_hooks=self._user_hooks,
            terminals=self._terminals,
            hooks=ports.extensions.hooks,
            contribution=self._servers.context,
            asks_in_every_mode=self._settings.asks_in_every_mode,
            places=self._terminals.place.places,
            patches=ports.patches,
            requests_permissions=self._settings.requests_permissions,
            of_clients=self._of_clients,
        )
        table = tool_table(turn, thread, GoalTool(self._goals, turn_id))
        return TurnRun(
            recorder,
            ports.model,
            self._model,
            table,
            options,
            self._settings,
            compacts=compacts,
        )

    def _turn_metadata(self) -> JsonObject:
        run = self._slot.run
        assert run is not None, "only a turn makes calls"
        return turn_metadata(
            self._thread.state,
            user_was_asked=run.user_was_asked,
            trigger=run.options.trigger,
            parent_turn_id=run.options.parent_turn_id,
        )
