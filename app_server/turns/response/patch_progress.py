"""Patches of one response, shown to clients while the model writes them.

Source: docs/tools.md, "Patches".
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from app_server.models.interface import CallInputDelta
from app_server.patch.streamed import StreamedPatch
from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject
from protocol.turns.items import FileChangePatchUpdatedNotification

INTERVAL_S = 0.5
"""Between two notifications of one patch; the last one does not wait."""


@dataclass(slots=True)
class PatchProgress:
    """Shows each patch with its first file, then at intervals, and when it is complete."""

    recorder: TurnRecorder
    clock: Callable[[], float] = anyio.current_time
    _open: "dict[str | None, _Open]" = field(default_factory=dict, init=False)
    """By the id of the model's item."""

    def begin(self, item_id: str | None, item: JsonObject) -> None:
        """Begin a call of a tool that takes plain text; calls of other tools are passed over."""
        call_id = item.get("call_id")
        if item.get("name") == "apply_patch" and isinstance(call_id, str) and call_id:
            self._open[item_id] = _Open(call_id)

    def take(self, event: CallInputDelta) -> None:
        """Take more of a call's text."""
        call = self._open.get(event.item_id)
        if call is None or not call.patch.feed(event.delta):
            return
        call.is_shown = False
        if self.clock() >= call.not_before:
            self._show(call)

    def finish(self, item_id: str | None) -> None:
        """Show what clients have not seen of a call that is complete."""
        call = self._open.pop(item_id, None)
        if call is not None and not call.is_shown:
            self._show(call)

    def _show(self, call: "_Open") -> None:
        call.is_shown = True
        call.not_before = self.clock() + INTERVAL_S
        self.recorder.emit(
            FileChangePatchUpdatedNotification(
                **self.recorder.ids, item_id=call.id, changes=call.patch.changes()
            )
        )


@dataclass(slots=True)
class _Open:
    id: str
    patch: StreamedPatch = field(default_factory=StreamedPatch)
    is_shown: bool = True
    not_before: float = float("-inf")
