"""How often clients are shown a patch that a model still writes."""

from types import SimpleNamespace
from typing import Any, cast

from app_server.models.interface import CallInputDelta
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response import INTERVAL_S, PatchProgress


class Shown:
    """Progress with a clock that a test sets, and what was shown by it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.events: list[Any] = []
        ids = {"thread_id": "t", "turn_id": "u"}
        recorder = SimpleNamespace(ids=ids, clients=SimpleNamespace(emit=self.events.append))
        self.progress = PatchProgress(cast(TurnRecorder, recorder), lambda: self.now)

    def begin(self, item_id: str, name: str = "apply_patch") -> None:
        self.progress.begin(item_id, {"name": name, "call_id": f"call_{item_id}"})

    def take(self, item_id: str, *lines: str) -> None:
        self.progress.take(CallInputDelta(item_id, "".join(f"{line}\n" for line in lines)))

    def take_shown(self) -> list[tuple[str, list[str]]]:
        told = [(event.item_id, [change.diff for change in event.changes]) for event in self.events]
        self.events.clear()
        return told


def test_a_patch_is_shown_at_intervals_and_at_its_end() -> None:
    shown = Shown()
    shown.begin("1")
    shown.take("1", "*** Begin Patch")
    assert shown.take_shown() == []
    shown.take("1", "*** Add File: a")
    assert shown.take_shown() == [("call_1", [""])]
    shown.now += INTERVAL_S - 0.1
    shown.take("1", "+one")
    assert shown.take_shown() == []
    shown.now += 0.1
    shown.take("1", "+two")
    assert shown.take_shown() == [("call_1", ["one\ntwo\n"])]
    shown.take("1", "+three")
    shown.progress.finish("1")
    assert shown.take_shown() == [("call_1", ["one\ntwo\nthree\n"])]


def test_what_was_shown_is_not_shown_again() -> None:
    shown = Shown()
    shown.begin("1")
    shown.take("1", "*** Begin Patch", "*** Delete File: a")
    shown.take_shown()
    shown.now += 10
    shown.take("1", "*** End Patch")
    shown.progress.finish("1")
    shown.take("1", "*** Begin Patch", "*** Delete File: b")
    assert shown.take_shown() == []


def test_patches_are_apart_and_other_tools_are_passed_over() -> None:
    shown = Shown()
    shown.begin("1")
    shown.begin("2")
    shown.begin("3", "another_tool")
    for item in "123":
        shown.take(item, "*** Begin Patch", f"*** Add File: {item}", f"+{item}")
    assert shown.take_shown() == [("call_1", ["1\n"]), ("call_2", ["2\n"])]
