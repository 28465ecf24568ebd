"""threads: what the records of a log add up to, each kind of record alone. No disk."""

from typing import Any

import pytest

from app_server.threads.log import state as queueing
from app_server.threads.log.state import (
    AcceptedInput,
    AcceptedInputs,
    KeptItems,
    QueueRefusal,
    QueueState,
    Remembered,
    SignalState,
    SignalStates,
    ThreadMetadata,
    ThreadState,
    adding,
    begin,
    changing,
    digest,
    initial_read_state,
    removing,
    reordering,
    size_of,
    unread_from,
)
from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    MetadataRecord,
    ProjectChanged,
    SectionChanged,
)
from protocol.log.rollout import (
    ArchivedChanged,
    ChangingFile,
    FilesChanging,
    HistoryAppended,
    HistoryCompacted,
    InputAccepted,
    InputQueued,
    InputTaken,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    NameChanged,
    QueuePaused,
    QueueReordered,
    Record,
    SettingsChanged,
    SignalMark,
    SignalRecalled,
    SubmissionChanged,
    SubmissionQueued,
    SubmissionRemoved,
    SubmissionTaken,
    TokensUsed,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    render_record,
)
from protocol.threads.thread import GitInfo, ThreadAttachment, TurnThreadUnreadPosition
from protocol.turns.items import (
    CommandExecutionThreadItem,
    TextUserInput,
    UserInput,
)
from protocol.turns.turn import ThreadTokenUsage
from tests.support.threads.stores import SETTINGS, USAGE, created, raw, user_message

COMMAND = CommandExecutionThreadItem(
    id="c",
    command="sleep 9",
    cwd="/work",
    status="inProgress",
    command_actions=[],
    started_at_ms=1,
    completed_at_ms=None,
)
SAID: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}


def state_of(*records: Record) -> ThreadState:
    state = begin(created())
    for record in records:
        state.apply(record)
    return state


def started(turn_id: str, at_ms: int = 2000) -> TurnStarted:
    return TurnStarted(at_ms=at_ms, turn_id=turn_id)


def ended(turn_id: str, status: Any = "completed", at_ms: int = 3000) -> TurnCompleted:
    return TurnCompleted(at_ms=at_ms, turn_id=turn_id, status=status, duration_ms=7)


# The thread.


def test_settings_name_and_archive_are_those_said_last() -> None:
    other = SETTINGS.model_copy(update={"model": "other"})
    state = state_of(
        SettingsChanged(at_ms=1001, settings=other),
        NameChanged(at_ms=1005, name="n"),
        ArchivedChanged(at_ms=1002, archived=True),
    )
    assert (state.settings, state.name, state.archived) == (other, "n", True)
    assert (state.updated_at_ms, state.recency_at_ms) == (1005, 1000)
    state.apply(ArchivedChanged(at_ms=1006, archived=False))
    assert not state.archived
    state.turn_settings = SETTINGS
    assert state.in_force == SETTINGS
    state.turn_settings = None
    assert state.in_force == other


def test_a_turn_has_its_times_items_and_end() -> None:
    state = state_of(started("t"), ItemCompleted(at_ms=2001, turn_id="t", item=user_message("a")))
    assert state.open_turn is state.turns[0]
    assert (state.updated_at_ms, state.recency_at_ms) == (2001, 2000)
    state.apply(ended("other"))
    assert state.open_turn is state.turns[0]
    state.apply(ended("t", "failed"))
    (turn,) = state.turns
    assert (turn.status, turn.started_at_ms, turn.completed_at_ms, turn.duration_ms) == (
        *("failed", 2000, 3000, 7),
    )
    assert turn.items == [user_message("a")]
    assert (state.preview, state.recency_at_ms) == ("a", 2000)
    assert not any(each.status == "inProgress" for each in state.turns)


def test_a_thread_has_content_once_anything_was_said_or_named() -> None:
    assert not state_of().has_content
    for record in (
        started("t"),
        HistoryAppended(at_ms=1, items=[raw("x")]),
        NameChanged(at_ms=1, name="n"),
        submission("a"),
        SectionChanged(at_ms=1, section_id="s", rank="r"),
    ):
        assert state_of(record).has_content


def test_tokens_cover_the_history_up_to_then() -> None:
    usage = ThreadTokenUsage(total=USAGE, last=USAGE, model_context_window=None)
    state = state_of(
        HistoryAppended(at_ms=1, items=[raw("a"), raw("b")]), TokensUsed(at_ms=2, usage=usage)
    )
    state.apply(HistoryAppended(at_ms=3, items=[raw("c")]))
    assert (state.usage, state.measured, len(state.history)) == (usage, 2, 3)
    state.apply(HistoryCompacted(at_ms=4, turn_id="t", items=[raw("sum")]))
    assert (state.measured, state.history) == (0, [raw("sum")])


def test_a_patch_is_half_written_until_its_item_is_there() -> None:
    record = FilesChanging(
        at_ms=1,
        turn_id="t",
        item_id="u",
        files=[ChangingFile(path="/a", before=None, after=None)],
    )
    state = state_of(started("t"), record)
    assert state.half_written == {"u": record}
    state.apply(ItemCompleted(at_ms=2, turn_id="t", item=user_message("x", item_id="other")))
    assert state.half_written == {"u": record}
    state.apply(ItemCompleted(at_ms=2, turn_id="t", item=user_message("x", item_id="u")))
    assert state.half_written == {}


def test_the_preview_is_the_first_message_cut_at_1024_characters() -> None:
    for length, shown in ((1024, 1024), (1025, 1024)):
        item = user_message("x" * length)
        state = state_of(started("t"), ItemCompleted(at_ms=1, turn_id="t", item=item))
        state.apply(ItemCompleted(at_ms=1, turn_id="t", item=user_message("second")))
        assert state.preview == "x" * shown


def test_32_turns_stay_in_memory() -> None:
    state = state_of(*(started(str(number)) for number in range(32)))
    assert (len(state.turns), state.older_turns, state.is_whole) == (32, 0, True)
    state.apply(started("32"))
    assert (len(state.turns), state.older_turns, state.is_whole) == (32, 1, False)
    assert [turn.id for turn in state.turns] == [str(number) for number in range(1, 33)]


def complete(state: ThreadState, *texts: str, size: int) -> None:
    turn_id = state.turns[-1].id
    for text in texts:
        state.apply(ItemCompleted(at_ms=1, turn_id=turn_id, item=user_message(text)), size)


def texts(state: ThreadState) -> list[list[str]]:
    return [[item.content[0].text for item in turn.items] for turn in state.turns]  # type: ignore[union-attr]


def test_256_kib_of_items_stay_in_memory_the_newest_ones() -> None:
    quarter = 64 * 1024
    state = state_of(started("1"))
    complete(state, "a", "b", size=quarter)
    state.apply(started("2"))
    complete(state, "c", "d", size=quarter)
    assert (texts(state), state.is_whole) == ([["a", "b"], ["c", "d"]], True)
    complete(state, "e", size=1)
    assert (texts(state), state.is_whole) == ([["b"], ["c", "d", "e"]], False)
    assert [turn.items.left_out for turn in state.turns] == [1, 0]
    complete(state, "f", size=2 * quarter)
    assert texts(state) == [[], ["d", "e", "f"]]
    # The end of an item that was left running may be larger than its beginning.
    state = state_of(started("1"))
    complete(state, "a", size=quarter)
    state.apply(ItemLeftRunning(at_ms=1, turn_id="1", item=COMMAND), quarter)
    assert (len(state.turns[0].items), state.is_whole) == (2, True)
    state.apply(ItemEnded(at_ms=1, turn_id="1", item=COMMAND), 4 * quarter)
    assert (len(state.turns[0].items), state.is_whole) == (1, False)
    # What leaves with its turn makes room.
    state = state_of(started("1"))
    state.kept_turns = 1
    complete(state, "a", size=3 * quarter)
    state.apply(started("2"))
    complete(state, "b", size=3 * quarter)
    assert texts(state) == [["b"]]


# Input.


def test_queued_input_is_history_and_items_once_it_is_taken() -> None:
    queued = InputQueued(at_ms=1, input_id="1", items=[raw("late")], message=user_message("late"))
    silent = InputQueued(at_ms=1, input_id="2", items=[raw("silent")])
    state = state_of(started("t"), queued, silent)
    assert (state.history, state.pending_input, len(state.turns[0].items)) == (
        [],
        [queued, silent],
        0,
    )
    state.apply(InputTaken(at_ms=2))
    assert (state.history, state.pending_input) == ([raw("late"), raw("silent")], [])
    assert state.turns[0].items == [user_message("late")]


def test_an_entry_leaves_the_queue_with_the_line_that_makes_it_a_message() -> None:
    state = state_of(submission("a"), submission("b"), QueuePaused(at_ms=1))
    assert state.queue.next is None
    state.apply(InputQueued(at_ms=1, input_id="1", items=[raw("x")], submission_id="a"))
    assert [entry.submission_id for entry in state.queue.entries] == ["b"]
    assert state.queue.paused
    state.apply(started("t"))
    assert not state.queue.paused
    assert state.queue.next == state.queue.entries[0]


def accepted(name: str, turn_id: str = "t") -> InputAccepted:
    return InputAccepted(at_ms=1, client_id=name, digest=f"digest {name}", turn_id=turn_id)


def test_a_named_input_knows_the_turn_that_took_it_and_its_end() -> None:
    state = state_of(started("1"), accepted("a", "1"), accepted("b", "1"))
    assert state.accepted.find("a") == AcceptedInput("digest a", "1", "inProgress")
    state.apply(ended("1", "failed"))
    for record in (started("2"), accepted("c", "2"), ended("2", "interrupted")):
        state.apply(record)
    assert [state.accepted.find(name) for name in ("a", "b", "c", "d", None)] == [
        AcceptedInput("digest a", "1", "failed"),
        AcceptedInput("digest b", "1", "failed"),
        AcceptedInput("digest c", "2", "interrupted"),
        None,
        None,
    ]


def test_the_newest_1024_named_inputs_are_remembered() -> None:
    inputs = AcceptedInputs()
    for number in range(1024):
        inputs.note(accepted(str(number)))
    assert inputs.find("0") is not None
    inputs.note(accepted("1024"))
    assert inputs.find("0") is None
    assert None not in [inputs.find(str(number)) for number in range(1, 1025)]


# The items of a turn.


def test_items_are_parsed_at_the_first_read() -> None:
    kept = KeptItems()
    whole = user_message("line")
    kept.add(render_record(ItemCompleted(at_ms=1, turn_id="t", item=whole)), 10)
    kept.add(b"damaged", 5)
    kept.add(user_message("object"), 3)
    assert (len(kept), kept.size, kept.left_out) == (3, 18, 0)
    assert list(kept) == [whole, user_message("object")]
    assert (len(kept), kept.size, kept.left_out) == (2, 13, 0)
    assert kept.drop_oldest() == 10
    assert (list(kept), kept.size, kept.left_out) == ([user_message("object")], 3, 1)


def test_an_item_is_replaced_in_its_place() -> None:
    kept = KeptItems()
    for name in ("a", "b", "c"):
        kept.add(user_message(name, item_id=name), 10)
    assert kept.replace(user_message("new", item_id="b"), 4) == -6
    assert kept.replace(user_message("new", item_id="none"), 4) == 0
    assert [getattr(item, "id", None) for item in kept] == ["a", "b", "c"]
    assert list(kept)[1] == user_message("new", item_id="b")
    assert kept.size == 24


def test_kept_items_equal_a_list_and_others_that_left_out_as_many() -> None:
    one, other = KeptItems(), KeptItems()
    for kept in (one, other):
        kept.add(user_message("a"), 1)
    assert one == other
    assert one == [user_message("a")]
    assert one != [user_message("b")]
    assert one != "a"
    other.add(user_message("a"), 1)
    other.drop_oldest()
    assert list(one) == list(other)
    assert one != other


# The queue.


def words(text: str) -> list[UserInput]:
    return [TextUserInput(type="text", text=text)]


def submission(name: str, text: str = "x", client: str = "", **more: Any) -> SubmissionQueued:
    return SubmissionQueued(
        at_ms=1, submission_id=name, client_user_message_id=client, input=words(text), **more
    )


def queue_of(*records: Any) -> QueueState:
    queue = QueueState()
    for record in records:
        queue.apply(record)
    return queue


def names(queue: QueueState) -> list[str]:
    return [entry.submission_id for entry in queue.entries]


def test_each_record_changes_the_queue_in_its_way() -> None:
    a, b, c = submission("a", client="ca"), submission("b"), submission("c", client="cc")
    queue = queue_of(a, b, c)
    assert (queue.entries, queue.next) == ([a, b, c], a)
    assert queue.sizes == {"a": size_of(a), "b": size_of(b), "c": size_of(c)}
    queue.apply(QueueReordered(at_ms=1, submission_ids=["c", "a"]))
    # What is not named goes to the end.
    assert names(queue) == ["c", "a", "b"]
    change = SubmissionChanged(
        at_ms=1, submission_id="a", input=words("long"), responsesapi_client_metadata={"k": "v"}
    )
    queue.apply(change)
    changed = a.model_copy(
        update={"input": words("long"), "responsesapi_client_metadata": {"k": "v"}}
    )
    assert (queue.entries, queue.sizes["a"]) == ([c, changed, b], size_of(changed))
    queue.apply(SubmissionRemoved(at_ms=1, submission_id="c"))
    assert (names(queue), sorted(queue.sizes), queue.taken) == (["a", "b"], ["a", "b"], {})
    queue.apply(SubmissionTaken(at_ms=1, submission_id="a"))
    queue.apply(SubmissionTaken(at_ms=1, submission_id="b"))
    # Only what a client named can be asked for again.
    assert queue.taken == {"ca": Remembered("a", digest(words("long")))}
    assert (names(queue), queue.sizes, queue.next) == ([], {}, None)
    before = queue_of(a)
    for record in (
        SubmissionRemoved(at_ms=1, submission_id="none"),
        SubmissionTaken(at_ms=1, submission_id="none"),
        change.model_copy(update={"submission_id": "none"}),
    ):
        before.apply(record)
    assert before == queue_of(a)


def test_a_paused_queue_has_no_next_entry() -> None:
    queue = queue_of(submission("a"), QueuePaused(at_ms=1))
    assert (queue.paused, queue.next) == (True, None)
    assert queue.find("a") == submission("a")
    with pytest.raises(QueueRefusal, match=r"^queued submission not found: b$") as refused:
        queue.find("b")
    assert (refused.value.word, refused.value.facts) == (
        *("queuedSubmissionNotFound", {"queuedSubmissionId": "b"}),
    )


def test_1024_entries_that_became_turns_are_remembered() -> None:
    queue = QueueState()
    for number in range(1025):
        assert "c0" in queue.taken or number == 0
        queue.apply(submission(str(number), client=f"c{number}"))
        queue.apply(SubmissionTaken(at_ms=1, submission_id=str(number)))
    assert list(queue.taken) == [f"c{number}" for number in range(1, 1025)]


def test_an_entry_that_is_sent_again_is_the_one_that_is_there() -> None:
    first = submission("a", client="c")
    again = submission("b", client="c")
    assert adding(first, QueueState()) == ((first,), first)
    assert adding(again, queue_of(first)) == ((), first)
    taken = queue_of(first, SubmissionTaken(at_ms=1, submission_id="a"))
    assert adding(again, taken) == ((), again.model_copy(update={"submission_id": "a"}))
    for queue in (queue_of(first), taken):
        with pytest.raises(
            QueueRefusal, match=r"^clientUserMessageId c is taken by another input$"
        ) as refused:
            adding(submission("b", "other", client="c"), queue)
        assert (refused.value.word, refused.value.facts) == (
            "clientUserMessageIdTaken",
            {"clientUserMessageId": "c", "queuedSubmissionId": "a"},
        )
    # Without a name each is another one.
    unnamed = submission("b")
    assert adding(unnamed, queue_of(submission("a"))) == ((unnamed,), unnamed)


def test_the_queue_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queueing.MAX_QUEUE_BYTES == 16 * 1024 * 1024
    full = queue_of(*(submission(str(number)) for number in range(100)))
    with pytest.raises(QueueRefusal, match="more than 100 submissions") as refused:
        adding(submission("more"), full)
    assert (refused.value.word, refused.value.facts) == ("queueFull", {"maxSubmissions": 100})
    full.entries.pop()
    assert adding(submission("more"), full)[1] == submission("more")
    room = 900_000 - size_of(submission("a", ""))
    large = submission("a", "x" * room)
    assert adding(large, QueueState()) == ((large,), large)
    with pytest.raises(QueueRefusal, match="more than 900000 bytes") as refused:
        adding(submission("a", "x" * (room + 1)), QueueState())
    assert (refused.value.word, refused.value.facts) == (
        *("queuedSubmissionTooLarge", {"maxBytes": 900_000}),
    )
    two = queue_of(submission("a"), submission("b"))
    size = size_of(submission("a"))
    monkeypatch.setattr(queueing, "MAX_QUEUE_BYTES", 3 * size)
    assert adding(submission("c"), two)[1] == submission("c")
    with pytest.raises(QueueRefusal, match=f"^queue cannot have more than {3 * size} bytes$"):
        adding(submission("c", "xx"), two)
    # An entry that changes leaves its own room.
    change = SubmissionChanged(at_ms=1, submission_id="a", input=words("x" * (size + 1)))
    assert changing(change, two)[0] == (change,)
    monkeypatch.setattr(queueing, "MAX_QUEUE_BYTES", 3 * size - 1)
    with pytest.raises(QueueRefusal, match=r"^queue cannot have more than") as refused:
        changing(change, two)
    assert (refused.value.word, refused.value.facts) == ("queueFull", {"maxBytes": 3 * size - 1})


def test_an_entry_keeps_its_metadata_where_a_change_has_none() -> None:
    entry = submission("a", responsesapi_client_metadata={"k": "v"})
    for given, kept in ((None, {"k": "v"}), ({}, {"k": "v"}), ({"n": "w"}, {"n": "w"})):
        change = SubmissionChanged(
            at_ms=1, submission_id="a", input=words("y"), responsesapi_client_metadata=given
        )
        (record,), changed = changing(change, queue_of(entry))
        assert isinstance(record, SubmissionChanged)
        assert record.responsesapi_client_metadata == kept
        assert (changed.input, changed.responsesapi_client_metadata) == (words("y"), kept)
    with pytest.raises(QueueRefusal, match="not found"):
        changing(change, QueueState())


def test_removals_and_orders_are_planned() -> None:
    queue = queue_of(submission("a"), submission("b"))
    removal = SubmissionRemoved(at_ms=1, submission_id="a")
    assert removing(removal, queue) == ((removal,), True)
    assert removing(removal, queue_of(submission("b"))) == ((), False)
    assert removing(removal, QueueState()) == ((), False)
    order = QueueReordered(at_ms=1, submission_ids=["b", "a"])
    assert reordering(order, queue) == ((order,), None)
    for wrong in (["a"], ["a", "b", "c"], ["a", "a"], ["a", "b", "b"]):
        with pytest.raises(QueueRefusal) as refused:
            reordering(QueueReordered(at_ms=1, submission_ids=wrong), queue)
        assert refused.value.word == "queueOrderIncomplete"


# Signals.


def mark(name: str, *, woke: bool = False) -> SignalMark:
    return SignalMark(source="s", id=name, item_id=f"item {name}", woke=woke)


def signals(state: ThreadState) -> dict[str, tuple[str, str | None, str | None]]:
    return {key[1]: (place.stage, place.turn_id, place.trouble) for key, place in state.signals}


def heard(name: str, *, woke: bool = False) -> HistoryAppended:
    return HistoryAppended(at_ms=1, items=[raw(name)], signals=[mark(name, woke=woke)])


def said(*items: dict[str, Any]) -> HistoryAppended:
    return HistoryAppended(at_ms=1, items=list(items))


def test_a_signal_goes_through_its_stages() -> None:
    queued = InputQueued(at_ms=1, input_id="1", items=[raw("q")], signal=mark("q"))
    state = state_of(started("t"), heard("w", woke=True), heard("v"), queued)
    assert signals(state) == {
        "w": ("visible", "t", None),
        "v": ("visible", None, None),
        "q": ("queued", None, None),
    }
    assert state.signals.find(("s", "v")) == SignalState("item v", False, "visible", raw("v"))
    assert state.signals.find(("other", "v")) is None
    state.apply(said(SAID))
    seen = ("seen", "t", None)
    assert signals(state) == {"w": seen, "v": seen, "q": ("queued", None, None)}
    assert state.signals.find(("s", "v")) == SignalState("item v", False, "seen", None, "t")
    state.apply(InputTaken(at_ms=2))
    assert signals(state)["q"] == ("visible", None, None)
    state.apply(ended("t"))
    answered = ("answered", "t", None)
    assert signals(state) == {"w": answered, "v": answered, "q": ("visible", None, None)}
    # Those that are over are not in the book of a shorter thread any more.
    assert state.signals.missing_in(SignalStates()) == [mark("q")]
    assert state.signals.missing_in(state.signals) == []


@pytest.mark.parametrize(
    ("items", "stage"),
    [
        ([SAID], "seen"),
        ([raw("user")], "visible"),
        ([{"type": "function_call", "name": "f"}], "seen"),
        ([{"type": "reasoning"}], "seen"),
        ([{"type": "function_call_output", "output": "x"}], "visible"),
        ([{"role": "assistant"}], "seen"),
        ([{"role": "user"}], "visible"),
        ([raw("user"), SAID], "seen"),
    ],
)
def test_output_of_a_model_shows_that_it_saw_a_signal(items: list[Any], stage: str) -> None:
    state = state_of(started("t"), heard("v"), said(*items))
    assert signals(state)["v"][0] == stage
    # Without a turn nobody was asked.
    assert signals(state_of(heard("v"), said(*items)))["v"][0] == "visible"


@pytest.mark.parametrize(
    ("end", "trouble"), [("failed", "turnFailed"), ("interrupted", "turnInterrupted")]
)
def test_a_turn_that_does_not_complete_troubles_its_signals_until_they_are_seen_again(
    end: str, trouble: str
) -> None:
    state = state_of(started("1"), heard("w", woke=True), heard("v"), ended("1", end))
    assert signals(state) == {"w": ("visible", "1", trouble), "v": ("visible", None, None)}
    for record in (started("2"), said(SAID), ended("2", end)):
        state.apply(record)
    assert signals(state) == {"w": ("seen", "2", trouble), "v": ("seen", "2", trouble)}
    for record in (started("3"), said(SAID), ended("3")):
        state.apply(record)
    assert signals(state) == {"w": ("answered", "3", None), "v": ("answered", "3", None)}
    for record in (started("4"), ended("4", end)):
        state.apply(record)
    assert signals(state)["w"] == ("answered", "3", None)


def test_what_a_summary_leaves_out_was_seen_by_the_model_that_wrote_it() -> None:
    state = state_of(started("t"), heard("gone"), heard("kept"))
    state.apply(HistoryCompacted(at_ms=2, turn_id="c", items=[raw("sum"), raw("kept")]))
    assert signals(state) == {"gone": ("seen", "c", None), "kept": ("visible", None, None)}
    gone, kept = (state.signals.find(("s", name)) for name in ("gone", "kept"))
    assert gone is not None
    assert kept is not None
    assert (gone.item, kept.item) == (None, raw("kept"))


def test_a_signal_that_is_taken_back_leaves_history_and_queue() -> None:
    queued = InputQueued(at_ms=1, input_id="1", items=[raw("q"), raw("more")], signal=mark("q"))
    other = InputQueued(at_ms=1, input_id="2", items=[raw("other")])
    state = state_of(started("t"), said(raw("v")), heard("v"), queued, other)
    for name in ("v", "q", "none"):
        state.apply(SignalRecalled(at_ms=2, source="s", id=name))
    # The same words that somebody else said stay.
    assert (state.history, state.pending_input) == ([raw("v")], [other])
    assert signals(state) == {"v": ("recalled", None, None), "q": ("recalled", None, None)}
    assert state.signals.missing_in(SignalStates()) == []


def test_signals_that_were_dropped_with_their_turns_are_over() -> None:
    state = state_of(TurnsReverted(at_ms=1, before_turn_id="t", signals=[mark("a", woke=True)]))
    assert state.signals.find(("s", "a")) == SignalState("item a", True, "recalled", None)


def test_1024_signals_are_remembered_and_those_that_are_not_over_longer() -> None:
    state = state_of(heard("open"))
    state.signals.dropped([mark(str(number)) for number in range(1023)])
    assert len(signals(state)) == 1024
    state.signals.dropped([mark("more")])
    assert len(signals(state)) == 1024
    assert {"open", "1", "more"} <= signals(state).keys()
    assert "0" not in signals(state)
    waiting = SignalStates()
    for number in range(1030):
        waiting.queued(mark(str(number)), raw("x"))
    assert len(list(waiting)) == 1030


# Metadata.

GIT = GitInfo(sha="a", branch="b", origin_url=None)


def attachment(name: str) -> ThreadAttachment:
    return ThreadAttachment(
        id=name, attachment_type="type", identity_key=f"key {name}", payload=None, created_at=1
    )


def test_metadata_is_what_was_said_last() -> None:
    metadata = ThreadMetadata()
    records: list[MetadataRecord] = [
        GitInfoChanged(at_ms=1, git_info=GIT),
        DaybreakChanged(at_ms=1, enabled=True),
        ProjectChanged(at_ms=1, project_id="p"),
        MemoryModeChanged(at_ms=1, mode="disabled"),
        unread_from(None, "t", 1).model_copy(update={"revision": "r"}),
        GoalChanged(at_ms=1, goal=None),
        *(AttachmentAdded(at_ms=1, attachment=attachment(name)) for name in "abc"),
        AttachmentRemoved(at_ms=1, attachment_id="b"),
    ]
    for record in records:
        metadata.apply(record)
    state = metadata.read_state
    assert state is not None
    assert (state.first_unread, state.revision) == (TurnThreadUnreadPosition(turn_id="t"), "r")
    assert metadata == ThreadMetadata(
        git_info=GIT,
        daybreak_enabled=True,
        project_id="p",
        memory_mode="disabled",
        read_state=state,
        attachments=[attachment("a"), attachment("c")],
    )
    assert metadata.attachment("type", "key c") == attachment("c")
    assert metadata.attachment("type", "key b") is None
    assert metadata.attachment("other", "key c") is None
    # What was unread before stays so.
    assert unread_from(state, "later", 2).first_unread == state.first_unread
    assert initial_read_state("x").model_dump() == {"firstUnread": None, "revision": "initial:x"}


def test_a_thread_enters_a_section_when_it_comes_from_another_one() -> None:
    metadata = ThreadMetadata()
    entered = []
    for at_ms, section, rank in (
        (1, "s", "a"),
        (2, "s", "b"),
        (3, "t", "c"),
        (4, None, None),
        (5, "t", "d"),
    ):
        metadata.apply(SectionChanged(at_ms=at_ms, section_id=section, rank=rank))
        entered.append((metadata.section_id, metadata.section_rank, metadata.section_entered_at_ms))
    assert entered == [
        *(("s", "a", 1), ("s", "b", 1), ("t", "c", 3)),
        *((None, None, None), ("t", "d", 5)),
    ]


def test_metadata_is_no_work_and_the_queue_is() -> None:
    state = state_of(ProjectChanged(at_ms=5000, project_id="p"))
    assert (state.updated_at_ms, state.metadata.project_id) == (1000, "p")
    state.apply(QueuePaused(at_ms=6000))
    assert state.updated_at_ms == 6000
