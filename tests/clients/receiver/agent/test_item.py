"""receiver: the item of a signal, and how it is found in a log."""

import json
from pathlib import Path

import pytest

from app_server.clients.receiver.agent.item import Presence, find_in_log, line_holds, render_item
from tests.support.receiver.peer import envelope


@pytest.mark.parametrize("signal_id", ["s1", 'quo"ted', "grüße 🎈", "back\\slash"])
def test_an_item_is_found_in_the_lines_of_both_servers_and_only_there(signal_id: str) -> None:
    item = render_item(envelope(signal_id))
    ours = json.dumps({"type": "historyAppended", "atMs": 1, "items": [item]})
    theirs = json.dumps({"type": "response_item", "payload": item}, ensure_ascii=False)
    said = {"role": "user", "content": item["content"]}
    other = render_item(envelope("other", payload=f"id: {signal_id}"))

    assert line_holds(ours.encode(), signal_id)
    assert line_holds(theirs.encode(), signal_id)
    assert not line_holds(json.dumps({"payload": said}).encode(), signal_id)
    assert not line_holds(json.dumps({"payload": other}).encode(), signal_id)
    assert not line_holds(theirs.encode()[:-5], signal_id)
    old = {"role": "developer", "content": [{"type": "input_text", "text": f"id: {signal_id}\n"}]}
    assert line_holds(json.dumps({"payload": old}).encode(), signal_id)


async def test_a_log_that_is_not_there_says_nothing_unless_it_never_was(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    assert await find_in_log(str(log), "s1", was_there=True) is Presence.UNKNOWN
    assert await find_in_log(str(log), "s1", was_there=False) is Presence.ABSENT
    assert await find_in_log(None, "s1", was_there=False) is Presence.UNKNOWN
    assert await find_in_log(str(tmp_path), "s1", was_there=False) is Presence.UNKNOWN
    log.write_text("{}\n" + json.dumps({"payload": render_item(envelope("s1"))}) + "\n")
    assert await find_in_log(str(log), "s1", was_there=True) is Presence.PRESENT
    assert await find_in_log(str(log), "s2", was_there=True) is Presence.ABSENT
