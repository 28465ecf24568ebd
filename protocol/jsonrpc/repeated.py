"""Notifications that thread after thread is sent alike, so that they are rendered once.

Source: docs/wire.md, "Framing".
"""

from collections.abc import Sequence

from pydantic_core import to_json

from protocol.contract.methods import METHOD_OF
from protocol.jsonrpc.envelope import render_notification
from protocol.model import WireModel

_NO_THREAD = '"threadId":""'
"""The first member of the parameters; no text in JSON has this in it, as quotes are escaped."""


class RepeatedNotifications:
    """Notifications of one type that differ between threads in the thread's id alone."""

    def __init__(self, *events: WireModel) -> None:
        """Take events, one at least, whose first member is their thread, here the empty text."""
        self.method = METHOD_OF[type(events[0]).__name__]
        self._events = events
        self._around: dict[tuple[bool, bool], list[tuple[str, str]]] = {}
        """What stands before and behind the thread's id, by `experimental` and `jsonrpc`."""

    def __len__(self) -> int:
        return len(self._events)

    def render(
        self,
        thread_id: str,
        emitted_at_ms: int,
        *,
        jsonrpc: bool = False,
        experimental: bool = True,
        seqs: Sequence[int] | None = None,
    ) -> list[str]:
        """Write them for a thread, as `render_notification` does; `seqs` has a number for each."""
        around = self._around.get((experimental, jsonrpc))
        if around is None:
            texts = (
                render_notification(
                    self.method, event, 0, jsonrpc=jsonrpc, experimental=experimental
                )
                for event in self._events
            )
            around = self._around[experimental, jsonrpc] = [_split(text) for text in texts]
        thread = to_json(thread_id).decode()
        if seqs is None:
            return [f"{head}{thread}{tail}{emitted_at_ms}}}" for head, tail in around]
        return [
            f'{head}{thread}{tail}{emitted_at_ms},"seq":{seq}}}'
            for (head, tail), seq in zip(around, seqs, strict=True)
        ]


def _split(text: str) -> tuple[str, str]:
    head, _, tail = text.partition(_NO_THREAD)
    return head + _NO_THREAD[:-2], tail.removesuffix("0}")
