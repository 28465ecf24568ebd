"""Modules of the page by themselves, run in a browser: rows, the log, forms, values."""

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from app_server.peer.address import ServerAddress
from tests.support.clients.inspector import inspector_page

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(name="page", scope="module", loop_scope="module")
async def _page() -> AsyncIterator["Page"]:
    async with inspector_page(ServerAddress("ws://127.0.0.1:9")) as page:
        yield page


async def run(page: "Page", module: str, body: str, *values: Any) -> Any:
    """Run JavaScript with a module as `m` and values as `v`, and return its result."""
    return await page.evaluate(
        f"async (v) => {{ const m = await import('/js/{module}.js'); {body} }}", values
    )


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.26, "0.3 ms"),
        (12.4, "12 ms"),
        (1200, "1.20 s"),
        (125_000, "2 min 5 s"),
        (7_260_000, "2 h 1 min"),
    ],
)
async def test_durations(page: "Page", ms: float, text: str) -> None:
    assert await run(page, "core/format", "return m.duration(v[0])", ms) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.2 kB"), (64_000_000, "64.0 MB")]
)
async def test_sizes(page: "Page", count: int, text: str) -> None:
    assert await run(page, "core/format", "return m.bytes(v[0])", count) == text


async def test_waits_between_tries_to_connect_grow_to_a_bound(page: "Page") -> None:
    waits = await run(
        page, "core/backoff", "return [1, 2, 3, 5, 6, 1000].map((n) => m.backoffMs(n))"
    )
    assert waits == [250, 500, 1000, 4000, 4000, 4000]


LOG = """
const log = new m.WireLog({ maxEntries: 100, maxCharacters: 1000 });
let dropped = 0;
log.on("dropped", () => dropped++);
"""


async def test_the_log_is_bounded_in_messages(page: "Page") -> None:
    body = """
    for (let n = 1; n <= 1000; n++) log.add("in", { method: "x", params: { threadId: "t" } }, 1);
    return [log.entries.length, log.entries[0].seq, log.ofThread("t").length, dropped];
    """
    length, first, of_thread, dropped = await run(page, "core/wire_log", LOG + body)
    assert length <= 100
    assert first == 1001 - length
    assert of_thread == length
    # A tenth at a time: cutting costs as much as the whole log.
    assert dropped <= 100


async def test_the_log_is_bounded_in_characters_and_keeps_the_newest(page: "Page") -> None:
    body = """
    for (let n = 0; n < 50; n++) log.add("in", { method: "x" }, 60);
    const sum = log.entries.reduce((total, entry) => total + entry.size, 0);
    log.add("in", { method: "huge" }, 100_000);
    return [sum, log.entries.length, log.entries[0].method];
    """
    total, length, method = await run(page, "core/wire_log", LOG + body)
    assert total <= 1000
    assert (length, method) == (1, "huge")


async def test_an_answer_has_method_thread_and_time_of_its_request(page: "Page") -> None:
    body = """
    log.add("out", { id: 1, method: "turn/start", params: { threadId: "t" } }, 1, true);
    log.add("in", { id: 1, method: "ask", params: { threadId: "u" } }, 1);
    log.add("in", { id: 1, result: {} }, 1);
    log.add("out", { id: 1, result: {} }, 1);
    return log.entries.map(({ kind, method, threadId, quiet }) => [kind, method, threadId, quiet]);
    """
    assert await run(page, "core/wire_log", LOG + body) == [
        ["request", "turn/start", "t", True],
        ["request", "ask", "u", False],
        ["answer", "turn/start", "t", True],
        ["answer", "ask", "u", False],
    ]


ROWS = """
const { WireLog } = await import("/js/core/wire_log.js");
const log = new WireLog();
const delta = (itemId, delta) => {
  const params = { threadId: "t", itemId, delta };
  log.add("in", { method: "item/agentMessage/delta", params }, 10);
};
delta("a", "one "); delta("a", "two"); delta("b", "three");
log.add("in", { method: "turn/completed", params: { threadId: "t" } }, 10);
delta("b", "four");
const show = (rows) =>
  rows.rebuild(log.entries).map(({ entry, count, text }) => [entry.method, count, text]);
"""


async def test_deltas_of_one_text_are_one_row(page: "Page") -> None:
    method = "item/agentMessage/delta"
    assert await run(page, "threads/rows", ROWS + "return show(new m.Rows())") == [
        [method, 2, "one two"],
        [method, 1, "three"],
        ["turn/completed", 1, ""],
        [method, 1, "four"],
    ]
    rows = await run(page, "threads/rows", ROWS + "return show(new m.Rows({ folds: false }))")
    assert len(rows) == 5


async def test_the_text_of_folded_deltas_is_bounded(page: "Page") -> None:
    body = """
    for (let n = 0; n < 100; n++) delta("c", "x".repeat(10_000));
    const row = new m.Rows().rebuild(log.entries).at(-1);
    return [row.count, row.text.length - m.MAX_FOLDED_TEXT < 10_000, row.text.length > 200_000];
    """
    assert await run(page, "threads/rows", ROWS + body) == [100, True, True]


async def test_rows_are_filtered_by_method_and_content(page: "Page") -> None:
    for words, count in (("completed", 1), ("THREE", 1), ("nothing", 0)):
        body = ROWS + "return show(new m.Rows({ filter: v[0] })).length"
        assert await run(page, "threads/rows", body, words) == count


async def form(page: "Page", schema: Any) -> Any:
    """Make a form of a schema and return what it holds before anybody typed."""
    body = """
    const form = m.schemaForm(v[0]);
    document.body.append(form.element);
    const value = form.read() ?? null;
    const problems = [...form.element.querySelectorAll(".problem")].map((one) => one.textContent);
    form.element.remove();
    return [value, problems.filter((text) => text !== "")];
    """
    return await run(page, "widgets/schema_form", body, schema)


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("properties", "more", "value", "problems"),
    [
        ({}, {}, {}, []),
        ({"a": {"type": "string"}}, {}, {}, []),
        ({"a": {"type": "string"}}, {"required": ["a"]}, None, ["Fill this in."]),
        ({"a": {"type": "string", "default": "x"}}, {"required": ["a"]}, {"a": "x"}, []),
        (
            {"a": {"type": "string", "default": "xyz", "maxLength": 2}},
            {},
            None,
            ["At most 2 characters."],
        ),
        ({"a": {"type": "string", "default": "x", "pattern": "^y"}}, {}, None, ["Must match ^y"]),
        ({"a": {"type": "string", "default": "x", "pattern": "(("}}, {}, {"a": "x"}, []),
        ({"a": {"type": "integer", "default": 1.5}}, {}, None, ["Must be a whole number."]),
        (
            {"a": {"type": "number", "default": 0, "exclusiveMinimum": 0}},
            {},
            None,
            ["More than 0."],
        ),
        ({"a": {"type": ["number", "null"], "default": 2}}, {}, {"a": 2}, []),
        ({"a": {"type": "boolean"}}, {}, {}, []),
        ({"a": {"type": "boolean"}}, {"required": ["a"]}, {"a": False}, []),
        ({"a": {"enum": [1, 2], "default": 2}}, {}, {"a": 2}, []),
        ({"a": {"const": "only"}}, {"required": ["a"]}, None, ["Choose one."]),
        (
            {"a": {"oneOf": [{"const": "k", "title": "Kay"}], "default": "k"}},
            {},
            {"a": "k"},
            [],
        ),
        (
            {
                "a": {
                    "type": "array",
                    "items": {"enum": ["x", "y"]},
                    "default": ["y"],
                    "minItems": 2,
                }
            },
            {},
            None,
            ["At least 2."],
        ),
        (
            {"a": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]}},
            {},
            {"a": [1, 2]},
            [],
        ),
        ({"a": {"type": "object", "properties": {"b": {"type": "string"}}}}, {}, {}, []),
        (
            {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}},
            {},
            {},
            [],
        ),
        (
            {"a": {"type": "object", "properties": {"b": {"type": "string", "default": "c"}}}},
            {},
            {"a": {"b": "c"}},
            [],
        ),
        (
            {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 3}},
            {},
            {"a": 3},
            [],
        ),
        (
            {"a": {"$ref": "#/$defs/A"}},
            {"$defs": {"A": {"type": "integer", "default": 7}}},
            {"a": 7},
            [],
        ),
        ({"a": {"$ref": "#/$defs/gone"}}, {}, {}, []),
        (
            {"a": {"$ref": "https://example.com/s"}},
            {"required": ["a"]},
            None,
            ["Fill this in, as JSON."],
        ),
    ],
)
async def test_forms_hold_what_schemas_say(
    page: "Page", properties: Any, more: Any, value: Any, problems: list[str]
) -> None:
    assert await form(page, {**OBJECT, "properties": properties, **more}) == [value, problems]


async def test_a_schema_that_refers_to_itself_ends_in_json(page: "Page") -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {**OBJECT, "properties": {"first": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    assert await form(page, schema) == [{}, []]


@pytest.mark.parametrize("schema", [{}, None, {"type": "object"}, {"type": "string"}, True])
async def test_a_schema_without_properties_has_no_fields(page: "Page", schema: Any) -> None:
    assert await form(page, schema) == [{}, []]


async def test_a_form_can_be_filled_in_as_json(page: "Page") -> None:
    body = """
    const properties = { a: { type: "string", default: "x" } };
    const form = m.schemaForm({ type: "object", properties });
    document.body.append(form.element);
    form.toggle.click();
    const area = form.element.querySelector("textarea");
    const before = area.value;
    const reads = ['{"b": [1]}', "[]", "{"].map((text) => {
      area.value = text;
      return [form.read() ?? null, form.element.querySelector(".problem").textContent.slice(0, 16)];
    });
    form.element.remove();
    return [JSON.parse(before), reads];
    """
    assert await run(page, "widgets/schema_form", body) == [
        {"a": "x"},
        [[{"b": [1]}, ""], [None, "Must be a JSON o"], [None, "This is no JSON:"]],
    ]


async def test_a_list_of_ten_thousand_has_few_elements_and_keeps_its_end_in_sight(
    page: "Page",
) -> None:
    body = """
    const { h } = await import("/js/core/dom.js");
    const rows = Array.from({ length: 10_000 }, (_, index) => ({ index, revision: 0 }));
    const list = new m.VirtualList({
      label: "all",
      create: () => h("div", { role: "option" }),
      draw: (element, row) => (element.textContent = row.index),
      onselect: () => {},
    });
    list.element.style.height = "280px";
    document.body.append(list.element);
    list.show(rows);
    const next = () => new Promise(requestAnimationFrame);
    const frame = async () => { await next(); await next(); };
    const seen = () =>
      [...list.all.children].filter((one) => !one.hidden).map((one) => Number(one.textContent));
    await frame();
    const atEnd = Math.max(...seen());
    rows.push({ index: 10_000, revision: 0 });
    list.refresh();
    await frame();
    const followed = Math.max(...seen());
    list.select(0);
    list.follow(false);
    list.select(0);
    await frame();
    const atStart = seen();
    const result = [atEnd, followed, Math.min(...atStart), list.all.childElementCount < 60];
    list.close();
    list.element.remove();
    return result;
    """
    assert await run(page, "widgets/virtual_list", body) == [9_999, 10_000, 0, True]


async def test_long_values_are_shown_in_part(page: "Page") -> None:
    value = {"text": "x" * 10_000, "many": list(range(2000))}
    body = """
    const tree = m.jsonTree(v[0]);
    tree.querySelectorAll("details").forEach((one) => (one.open = true));
    await new Promise(requestAnimationFrame);
    return tree.textContent;
    """
    text = await run(page, "widgets/json_tree", body, value)
    assert len(text) < len(json.dumps(value))
    assert "and 6000 more characters" in text


STORE = """
    const { QuestionStore } = await import("/js/requests/question_store.js");
const { Emitter } = await import("/js/core/emitter.js");
class FakeConnection extends Emitter {
  isReady = true;
  log = { next: 1 };
  calls = [];
  async call(method, params) {
    this.calls.push([method, params.threadId]);
    return { thread: { id: params.threadId ?? "t", turns: [] }, data: [], nextCursor: null };
  }
}
const connection = new FakeConnection();
const tell = (method, params) => connection.emit("notification", { method, params });
"""


async def test_the_page_listens_to_so_many_threads_and_lists_so_many(page: "Page") -> None:
    body = """
    const store = new m.ThreadStore(connection, new QuestionStore(connection));
    for (let n = 0; n < m.MAX_OPEN + 3; n++) await store.listen(`t${n}`);
    const let_go = connection.calls.filter(([method]) => method === "thread/unsubscribe");
    for (let n = 0; n < m.MAX_THREADS + 50; n++) {
      tell("thread/started", { thread: { id: `n${n}` } });
    }
    const listed = [...store.open.keys()].every((id) => store.threads.has(id));
    return [store.open.size, let_go.map(([, id]) => id), store.threads.size, listed];
    """
    # Those that are listened to stay in the list.
    assert await run(page, "threads/thread_store", STORE + body) == [
        64,
        ["t0", "t1", "t2"],
        2000,
        True,
    ]


async def test_items_and_receipts_are_remembered_up_to_a_bound(page: "Page") -> None:
    body = """
    const store = new m.ThreadStore(connection, new QuestionStore(connection));
    await store.listen("t");
    const { MAX_ENTRIES } = await import("/js/transcript/transcript.js");
    tell("turn/started", { threadId: "t", turn: { id: "turn", status: "inProgress" } });
    for (let n = 0; n < MAX_ENTRIES + 5; n++) {
      const item = { id: `i${n}`, type: "plan" };
      tell("item/completed", { threadId: "t", turnId: "turn", item });
    }
    const { SignalStore, MAX_RECEIPTS } = await import("/js/signals/signal_store.js");
    const signals = new SignalStore(connection);
    for (let n = 0; n < MAX_RECEIPTS + 5; n++) {
      tell("signal/updated", { receipt: { source: "s", signalId: `i${n}`, threadId: "t" } });
    }
    const { transcript } = store.open.get("t");
    const has = (id) => transcript.item("turn", id) !== undefined;
    const kept = ["i1999", "i2000", "i20004"].map(has);
    return [kept, transcript.size, transcript.entries.length, signals.receipts.size];
    """
    # The heading of the turn is kept, and of 20,000 entries the oldest tenth goes.
    kept = [False, True, True]
    assert await run(page, "threads/thread_store", STORE + body) == [kept, 18006, 18006, 1000]


VIEW = """
const { element, html } = await import("/js/core/html.js");
const show = (view, props) => element(html`<div><${view} ...${props} /></div>`);
"""


async def test_markdown_that_would_load_or_run_something_stays_text(page: "Page") -> None:
    text = (
        "<img src=x onerror=alert(1)>\n\n[a](javascript:alert(1)) [b](data:text/html,x) "
        "![c](http://127.0.0.1:9/c.png) ![d](data:image/svg+xml,x) [e](https://e.example) &lt;&#65;"
    )
    body = """
    const shown = show(m.Markdown, { text: v[0] });
    const of = (name, attribute) =>
      [...shown.querySelectorAll(name)].map((one) => one.getAttribute(attribute));
    return [of("a", "href"), of("img", "src"), shown.textContent];
    """
    links, images, said = await run(page, "transcript/markdown", VIEW + body, text)
    assert links == ["http://127.0.0.1:9/c.png", "https://e.example"]
    assert images == ["data:image/svg+xml,x"]
    assert said == "<img src=x onerror=alert(1)>a b c  e <A"


async def test_output_has_its_colours_and_no_movements_of_a_cursor(page: "Page") -> None:
    printed = (
        "10 %\r100 %\r\n\x1b[2K\x1b]8;;http://a\x07link\x1b]8;;\x07 \x1b[38;5;208mo\x1b[0m"
        "\x1b[38;2;0;0;250mb\x1b[0m\x1b[41mm\x1b[0m\x07"
    )
    body = """
    const pre = show(m.Terminal, { text: v[0] }).querySelector("pre");
    const spans = [...pre.querySelectorAll("span")].map((one) => [one.className, one.textContent]);
    return [pre.textContent, spans];
    """
    assert await run(page, "transcript/terminal", VIEW + body, printed) == [
        "100 %\nlink obm",
        [["ansi-yellow", "o"], ["ansi-blue", "b"], ["ansi-marked ansi-red-edge", "m"]],
    ]


async def test_a_patch_that_is_no_diff_yet_is_shown_as_it_is(page: "Page") -> None:
    change = {"path": "a", "kind": {"type": "update"}, "diff": "@@ -1,3 +1,1 @@\n-a"}
    body = "return show(m.Patch, { change: v[0] }).querySelector('tbody').textContent"
    assert await run(page, "transcript/patch", VIEW + body, change) == "11@@ -1,3 +1,1 @@22-a"


async def test_the_times_of_a_turn_are_bars_and_the_rest_is_the_models(page: "Page") -> None:
    body = """
    const { Transcript } = await import("/js/transcript/transcript.js");
    const transcript = new Transcript();
    const command = (id, from, to) => ({
      id, type: "commandExecution", command: id, startedAtMs: from, completedAtMs: to });
    transcript.prepend([{ id: "t", status: "completed", durationMs: 10_000, items: [
      { id: "u", type: "userMessage", content: [], startedAtMs: 1000, completedAtMs: 1000 },
      command("a", 2000, 6000), command("b", 4000, 7000),
      { id: "c", type: "contextCompaction", startedAtMs: 8000, completedAtMs: 9000 } ] }]);
    transcript.ask({ key: 1, at: 3000, params: { turnId: "t" } });
    transcript.settle({ key: 1 }, {});
    transcript.entry("question-1").item.settledAt = 3500;
    const { begin, end, lanes } = m.timesOf(transcript.turns[0], 0);
    return [begin, end, lanes.map(({ name, ms, bars }) => [name, ms, bars.length])];
    """
    assert await run(page, "transcript/turn_times", body) == [
        1000,
        11_000,
        # One second before the commands, one before the compaction, two behind it.
        [["model", 4000, 3], ["commands", 5000, 2], ["person", 500, 1], ["compaction", 1000, 1]],
    ]


async def test_values_of_a_day_are_kept_in_as_many_points_as_of_five_minutes(
    page: "Page",
) -> None:
    body = """
    const series = new m.Series();
    for (let second = 0; second < 2 * 86_400; second += 2) series.add(second * 1000, second % 1000);
    series.add(2 * 86_400_000, 7);
    const all = m.WINDOWS.map((_, index) => series.points(index));
    return [series.newest, all.map((points) => points.length <= m.POINTS + 1),
      all.map((points) => (points.at(-1).at - points[0].at) / 1000 > 250),
      Math.max(...all[2].map(({ value }) => value))];
    """
    newest, bounded, long, highest = await run(page, "diagnostics/series", body)
    assert (newest, bounded, long, highest) == (7, [True] * 3, [True] * 3, 998)


async def test_times_are_kept_up_to_a_bound(page: "Page") -> None:
    body = """
    const timings = new m.Timings();
    for (let n = 1; n <= m.KEPT + 100; n++) timings.add("a", n);
    for (let n = 0; n < m.MAX_METHODS + 100; n++) timings.add(`b${n}`, 1);
    const figures = timings.figures();
    return [figures.length, figures[0]];
    """
    count, first = await run(page, "core/timings", body)
    assert count == 200
    assert first == {"method": "a", "count": 500, "p50": 351, "p99": 596, "max": 600}


async def test_a_call_is_refused_without_a_server_and_when_too_many_wait(page: "Page") -> None:
    body = """
    const { WireLog } = await import("/js/core/wire_log.js");
    const { Timings } = await import("/js/core/timings.js");
    const connection = new m.Connection("", new WireLog(), new Timings());
    const refusal = (call) => call.then(() => "answered", (error) => error.message);
    const unready = await refusal(connection.call("a"));
    connection.status.state = "connected";
    const late = refusal(connection.call("a", {}, { timeoutMs: 1 }));
    for (let n = 1; n < 256; n++) connection.call("a").catch(() => {});
    return [unready, await refusal(connection.call("a")), await late];
    """
    assert await run(page, "core/connection", body) == [
        "The server is not connected.",
        "256 calls wait for answers already.",
        "No answer in 0.001 s.",
    ]
