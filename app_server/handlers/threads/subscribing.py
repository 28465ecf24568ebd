"""How a client subscribes to a loaded thread: from which event on, and what it is shown before.

Source: docs/wire.md, "Replay", "Joining a running turn".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app_server.handlers.views.turns import (
    turn_of_state,
    turns_of_state,
    turns_with_items,
    turns_with_log,
)
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub.hub import Hub
from app_server.rpc.hub.replay_buffer import Position
from app_server.sessions.session import ThreadSession
from protocol.jsonrpc.errors import invalid_params
from protocol.threads.start import ThreadResumeParams, TurnsPage
from protocol.turns.items import ThreadItem
from protocol.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Joining:
    """One client's way in; it is sent nothing before `Hub.release`."""

    position: Position
    """What comes after it follows the answer."""
    turns: list[Turn]
    resync_required: bool | None
    """None if the client did not ask for what it missed."""
    page: TurnsPage | None = None
    """The page of turns that was asked for."""

    @property
    def is_replay(self) -> bool:
        """Whether the client is sent what it missed."""
        return self.resync_required is False

    @property
    def members(self) -> dict[str, Any]:
        """The members of the answer that say so."""
        return {
            "stream_id": self.position.stream_id,
            "seq": self.position.seq,
            "resync_required": self.resync_required,
        }


def known_position(params: ThreadResumeParams) -> Position | None:
    """Read how far a client knows the stream; None if it does not say.

    Raises:
        RpcError: the number is there, and what it counts in is not.
    """
    if params.after_seq is None:
        return None
    if params.stream_id is None:
        rule = "`afterSeq` needs the `streamId` that it counts in"
        raise invalid_params(f"Invalid params: {rule}", field="streamId", rule=rule)
    return Position(params.stream_id, params.after_seq)


def join(
    hub: Hub,
    connection_id: ConnectionId,
    session: ThreadSession,
    known: Position | None,
    logged: Sequence[Turn],
    *,
    with_turns: bool,
    page: TurnsPage | None = None,
) -> Joining:
    """Subscribe a client, held, so that what it is shown and what it is sent later fit together.

    Never waits: what is shown is the state at the position, to the event. `logged` are the turns
    that the log had a moment ago, where memory does not have them all, and `page` is some of them.
    """
    stream = hub.streams.find(session.thread.id)
    assert stream is not None, "a loaded thread has a stream"
    if known is not None and stream.can_go_on(known):
        joining = Joining(known, [], resync_required=False, page=page)
    else:
        resync = None if known is None else True
        turns: list[Turn] = []
        # Before the position: it may tell others what has been printed.
        running = session.terminals.snapshot() if with_turns or resync or page else {}
        if with_turns or resync:
            turns = turns_with_items(_shown_turns(session, logged), running)
        if page is not None:
            page = _page_now(session, page, running)
        joining = Joining(stream.position, turns, resync, page)
    hub.hold(connection_id, session.thread.id, joining.position)
    return joining


def _page_now(
    session: ThreadSession, page: TurnsPage, running: Mapping[str, ThreadItem]
) -> TurnsPage:
    """Put what is not in the log yet into a page of it: items that are not complete, and output."""
    state, begun = session.thread.state, session.thread.open_items.snapshot()
    data = []
    for turn in page.data:
        now = turn
        if state.open_turn is not None and turn.id == state.turns[-1].id:
            (now,) = turns_with_log([turn_of_state(state.turns[-1], begun)], [turn])
        (now,) = turns_with_items([now], running)
        data.append(now if turn.items_view == "full" else turn)
    return page.model_copy(update={"data": data})


def _shown_turns(session: ThreadSession, logged: Sequence[Turn]) -> list[Turn]:
    """Show the turns that were announced to clients, and what there is of the running one."""
    turns = turns_of_state(session.thread.state, session.thread.open_items.snapshot())
    if logged:
        turns = turns_with_log(turns, logged)
    # A turn that was accepted a moment ago is published from its beginning.
    return [turn for turn in turns if turn.id != session.slot.unpublished_turn_id]
