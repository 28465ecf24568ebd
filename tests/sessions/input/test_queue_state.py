"""The queue that the log of a thread adds up to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.threads.files.store import FileStore
from app_server.threads.log.state import (
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_QUEUE_BYTES,
    MAX_REMEMBERED,
    QueueRefusal,
    QueueState,
    adding,
    changing,
    removing,
    reordering,
    replay,
    size_of,
)
from protocol.log.rollout import (
    InputQueued,
    InputTaken,
    QueueReordered,
    SubmissionChanged,
    SubmissionQueued,
    SubmissionRemoved,
    parse_record,
)
from protocol.turns.items import TextUserInput, UserMessageThreadItem
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.threads.queue import busy, entry, taken, text


def change(name: str) -> SubmissionChanged:
    return SubmissionChanged(
        at_ms=0, submission_id=name, input=[], responsesapi_client_metadata={"k": "v"}
    )


def test_the_bytes_of_a_queue_are_bounded() -> None:
    queue = QueueState()
    size = MAX_ENTRY_BYTES - 1000
    number = 0
    with pytest.raises(QueueRefusal, match=f"more than {MAX_QUEUE_BYTES} bytes") as caught:
        for number in range(MAX_ENTRIES):
            records, _ = adding(entry(number, "l" * size), queue)
            for record in records:
                queue.apply(record)
    assert (caught.value.word, number) == ("queueFull", MAX_QUEUE_BYTES // size)


def test_only_so_many_ids_of_clients_are_remembered() -> None:
    queue = QueueState()
    for number in range(MAX_REMEMBERED + 2):
        queue.apply(entry(number))
        queue.apply(taken(number))
    assert (len(queue.taken), queue.entries) == (MAX_REMEMBERED, [])
    assert adding(entry(0), queue)[0] != ()
    assert adding(entry(2), queue)[0] == ()


@given(st.lists(st.tuples(st.sampled_from("atdur"), st.integers(0, 5)), max_size=40))
def test_an_entry_is_in_the_queue_or_taken_or_removed_and_never_two_of_them(
    steps: list[tuple[str, int]],
) -> None:
    queue, model, gone = QueueState(), list[str](), set[str]()
    for verb, number in steps:
        name = f"s{number}"
        records: Any = ()
        match verb:
            case "a" if name not in model and name not in gone:
                records, _ = adding(entry(number), queue)
                model.append(name)
            case "t" if name in model:
                records = [taken(number)]
                model.remove(name)
                gone.add(name)
            case "d":
                records, was_there = removing(SubmissionRemoved(at_ms=0, submission_id=name), queue)
                assert was_there == (name in model)
                if was_there:
                    model.remove(name)
                    gone.add(name)
            case "u" if name in model:
                records, changed = changing(change(name), queue)
                assert (changed.input, changed.client_user_message_id) == ([], f"c{number}")
            case "r":
                model.reverse()
                records, _ = reordering(QueueReordered(at_ms=0, submission_ids=list(model)), queue)
        for record in records:
            queue.apply(record)
        assert [e.submission_id for e in queue.entries] == model
        assert queue.sizes == {e.submission_id: size_of(e) for e in queue.entries}


async def test_what_waits_is_the_same_after_it_was_read_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, turn_id = await busy(served, client)
        kept = await queue.add("kept")
        await queue.call("reorder", queuedSubmissionIds=[await queue.add("first"), kept])
        await queue.call("update", queuedSubmissionId=kept, input=text("KEPT"))
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
        await queue.turn()
        gate.opened.set()
        store = FileStore(tmp_path)
        state = await store.read(queue.thread_id)
        assert [e.input[0] for e in state.queue.entries] == [
            TextUserInput(type="text", text="first"),
            TextUserInput(type="text", text="KEPT"),
        ]
        assert state.queue.paused


@claim("queue:kill")
async def test_every_beginning_of_a_log_has_an_entry_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        for words in ("two", "three"):
            await queue.add(words)
        gate.opened.set()
        for _ in range(3):
            await queue.turn()
        path = Path(FileStore(tmp_path).shown_path(queue.thread_id))
        lines = path.read_bytes().splitlines()
    records = [record for line in lines if (record := parse_record(line)) is not None]
    assert len(records) == len(lines)
    for length in range(1, len(records) + 1):
        state = replay(records[:length])
        state.give_up_open_turn(0)
        waiting = [e.client_user_message_id for e in state.queue.entries]
        said = [
            item.client_id
            for turn in state.turns
            for item in turn.items
            if isinstance(item, UserMessageThreadItem) and item.client_id is not None
        ]
        added = [
            record.client_user_message_id
            for record in records[:length]
            if isinstance(record, SubmissionQueued)
        ]
        assert said + waiting == added
    # What dropped the turns would not bring their input back.
    kept = [r for r in records if not isinstance(r, InputQueued | InputTaken)]
    state = replay(kept)
    assert (state.queue.entries, len(state.queue.taken)) == ([], 2)
