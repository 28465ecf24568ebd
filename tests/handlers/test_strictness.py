"""What clients write in other forms, wrongly or not at all is taken as the reference takes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.transport.address import StdioAddress
from protocol.contract.methods import METHODS
from protocol.contract.specs import Takes
from protocol.jsonrpc.envelope import Request
from protocol.server.lifecycle import WarningNotification
from protocol.thread_ids import usual_form
from tests.support.harness import WireClient, claim, serve
from tests.support.wire.conversations import session, stdio_pipes

ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"
FORMS = [ID.upper(), ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}"]
NO_FORMS = ["", "nonsense", ID[:-1], f"{ID}0", f"{{{ID}", f"{ID}}}", ID.replace("a", "g"), f" {ID}"]


def about_threads() -> list[str]:
    return [
        method
        for method, spec in METHODS.items()
        if method != "thread/start" and "thread_id" in getattr(spec.params, "model_fields", {})
    ]


async def answer(method: str, params: Any) -> Any:
    """Let a server without a domain answer, that takes what has the right form."""

    async def handler(context: RequestContext[Any], parsed: Any) -> Any:
        return WarningNotification(message=getattr(parsed, "thread_id", None) or "taken")

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler).get)
    context = RequestContext(1, method, False, session(), None)
    return json.loads(await dispatcher.dispatch(context, Request(1, method, params)))


# Ids of threads.


@pytest.mark.parametrize("text", [ID, *FORMS])
def test_any_form_of_an_id_is_read_as_the_usual_one(text: str) -> None:
    assert usual_form(text) == ID


@pytest.mark.parametrize("text", NO_FORMS)
def test_what_is_no_id_stays_as_it_is(text: str) -> None:
    assert usual_form(text) == text


@claim("threads:id-invalid")
@pytest.mark.parametrize("method", about_threads())
async def test_an_id_that_is_none_is_refused_by_every_method(method: str) -> None:
    refused = await answer(method, {"threadId": "nonsense"})
    if refused["error"]["data"]["code"] == "invalidParams":
        # Another member that is missing is named first.
        assert refused["error"]["data"]["field"] != "threadId"
        return
    assert refused["error"] == {
        "code": -32600,
        "message": "invalid thread id: nonsense",
        "data": {"code": "invalidThreadId", "threadId": "nonsense"},
    }
    assert (await answer(method, {"threadId": ID.upper()}))["result"]["message"] == ID


@claim("threads:id-invalid", "threads:id-forms")
async def test_a_thread_is_found_by_any_form_of_its_id(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        other_form = {"threadId": thread_id.upper()}
        text = [{"type": "text", "text": "hi"}]
        await client.call("turn/start", {**other_form, "input": text})
        ended = await client.wait_for("turn/completed")
        assert ended["params"]["threadId"] == thread_id
        thread = (await client.call("thread/read", other_form))["thread"]
        assert thread["id"] == thread_id
        await client.call("thread/name/set", {**other_form, "name": "n"})
        named = await client.wait_for("thread/name/updated")
        assert named["params"]["threadId"] == thread_id
        listed = await client.call("thread/list", {"excludedThreadIds": [thread_id.upper()]})
        assert listed["data"] == []
        assert await client.call("thread/unsubscribe", other_form) == {"status": "unsubscribed"}
        assert await client.call("thread/unsubscribe", other_form) == {"status": "notSubscribed"}
        assert await client.call("thread/unsubscribe", {"threadId": ID}) == {"status": "notLoaded"}
        refused = await client.refusal("thread/unsubscribe", {"threadId": "nonsense"})
        assert refused.data == {"code": "invalidThreadId", "threadId": "nonsense"}


# Params.


@claim("params:missing")
@pytest.mark.parametrize("form", [{}, {"params": None}], ids=["absent", "null"])
async def test_params_may_be_left_out_only_where_the_contract_says_so(form: Any) -> None:
    for method, spec in METHODS.items():
        said = await answer(method, form.get("params"))
        if spec.takes is Takes.OBJECT:
            rule = "missing field `params`"
            assert said["error"] == {
                "code": -32602,
                "message": f"Invalid params: {rule}",
                "data": {"code": "invalidParams", "field": "params", "rule": rule},
            }, method
        else:
            assert said["result"]["message"] == "taken", method


@claim("params:none")
@pytest.mark.parametrize("params", [{"more": 1}, [], [1], "x", 5, True])
async def test_methods_without_params_take_none(params: Any) -> None:
    methods = [method for method, spec in METHODS.items() if spec.takes is Takes.NOTHING]
    assert methods == [
        "account/logout",
        "config/mcpServer/reload",
        "configRequirements/read",
        "externalAgentConfig/import/readHistories",
        "memory/reset",
        "remoteControl/status/read",
        "windowsSandbox/readiness",
    ]
    for method in methods:
        refused = (await answer(method, params))["error"]
        assert (refused["code"], refused["data"]["code"]) == (-32602, "invalidParams")
        assert (await answer(method, {}))["result"]["message"] == "taken"


@claim("params:absolute")
@pytest.mark.parametrize(
    ("method", "field", "params"),
    [
        ("plugin/list", "cwds.1", {"cwds": ["/", "rel"]}),
        ("plugin/installed", "cwds.0", {"cwds": [""]}),
        ("plugin/read", "marketplacePath", {"marketplacePath": "rel", "pluginName": "p"}),
        ("thread/start", "runtimeWorkspaceRoots.0", {"runtimeWorkspaceRoots": ["~/x"]}),
        ("thread/start", "environments.0.cwd", {"environments": [ENVIRONMENT := {
            "environmentId": "local", "cwd": "rel"}]}),
        ("turn/start", "environments.0.cwd", {
            "threadId": ID, "input": [], "environments": [ENVIRONMENT]}),
        ("turn/start", "sandboxPolicy.writableRoots.0", {"threadId": ID, "input": [],
            "sandboxPolicy": {"type": "workspaceWrite", "writableRoots": ["rel"]}}),
        ("thread/start", "selectedCapabilityRoots.0.location.path", {"selectedCapabilityRoots": [
            {"id": "a", "location": {"type": "environment", "environmentId": "local",
                                     "path": "rel"}}]}),
    ],
)  # fmt: skip
async def test_paths_are_absolute_where_the_contract_says_so(
    method: str, field: str, params: Any
) -> None:
    rule = "must be an absolute path"
    assert (await answer(method, params))["error"] == {
        "code": -32602,
        "message": f"Invalid params: `{field}`: {rule}",
        "data": {"code": "invalidParams", "field": field, "rule": rule},
    }


# Threads that run, and archived ones.


@claim("threads:resume-source")
async def test_a_thread_is_resumed_from_its_own_log_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        here = {"threadId": thread_id}
        path = (await client.call("thread/read", here))["thread"]["path"]
        item = {"type": "message", "role": "user", "content": []}
        for history in ([], [item]):
            refused = await client.refusal("thread/resume", {**here, "history": history})
            assert refused.data == {"code": "threadRunning", **here}
            assert refused.message == (
                f"cannot resume thread {thread_id} with history while it is already running"
            )
        refused = await client.refusal("thread/resume", {**here, "path": "/other.jsonl"})
        assert refused.data == {"code": "threadRunning", **here}
        assert refused.message == (
            f"cannot resume running thread {thread_id} with stale path: requested "
            f"`/other.jsonl`, active `{path}`"
        )
        for own in (path, "", None):
            resumed = await client.call("thread/resume", {**here, "path": own})
            assert resumed["thread"]["id"] == thread_id
        assert (await client.call("thread/unsubscribe", {**here, "unload": True}))["unloaded"]
        for member, value in (("history", [item]), ("path", "/other.jsonl")):
            refused = await client.refusal("thread/resume", {**here, member: value})
            assert (refused.code, refused.data["field"]) == (-32602, member)
        assert await client.call("thread/resume", {**here, "path": path})


@claim("threads:archived-again")
async def test_an_archived_thread_is_neither_archived_again_nor_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(name="first")
        await client.turn(thread_id, "hi")
        here = {"threadId": thread_id}
        await client.call("thread/name/set", {**here, "name": "before"})
        await client.call("thread/archive", here)
        for method, params in (
            ("thread/archive", here),
            ("thread/name/set", {**here, "name": "after"}),
            ("thread/memoryMode/set", {**here, "mode": "disabled"}),
        ):
            refused = await client.refusal(method, params)
            assert refused.message == f"no rollout found for thread id {thread_id}"
            assert refused.data == {"code": "threadNotFound", **here}
        thread = (await client.call("thread/unarchive", here))["thread"]
        assert thread["name"] == "before"
        await client.call("thread/archive", here)


# Lists and settings.


@claim("models:cursor")
async def test_models_are_paged_by_numbers(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        whole = await client.call("model/list", {})
        count = len(whole["data"])
        assert (count > 2, whole["nextCursor"]) == (True, None)
        for same in ({"cursor": "0"}, {"limit": 100}, {"cursor": None}):
            assert await client.call("model/list", same) == whole
        for limit in (0, 1):
            page = {"data": whole["data"][:1], "nextCursor": "1"}
            assert await client.call("model/list", {"limit": limit}) == page
        rest = {"data": whole["data"][2:], "nextCursor": None}
        assert await client.call("model/list", {"cursor": "2"}) == rest
        end = await client.call("model/list", {"cursor": str(count)})
        assert end == {"data": [], "nextCursor": None}
        for cursor in ("bad", "-1", "", "+1", " 0", "²", "1" * 100):
            refused = await client.refusal("model/list", {"cursor": cursor})
            assert (refused.code, refused.message) == (-32600, f"invalid cursor: {cursor}")
            assert refused.data == {"code": "invalidCursor", "cursor": cursor}
        refused = await client.refusal("model/list", {"cursor": "999"})
        assert refused.message == f"cursor 999 exceeds total models {count}"


@claim("config:layers-absent")
async def test_layers_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert "layers" not in await client.call("config/read", {})
        assert "layers" not in await client.call("config/read", {"includeLayers": False})
        assert isinstance(
            (await client.call("config/read", {"includeLayers": True}))["layers"], list
        )


# Bytes.

BROKEN = b'{"id":5,"method":"thread/loaded/list","params":{"cursor":"\xff"}}'
NOT_UTF8 = {
    "id": None,
    "error": {
        "code": -32700,
        "message": "Parse error: not UTF-8",
        "data": {"code": "parseError", "reason": "not UTF-8"},
    },
}


@claim("framing:utf-8")
async def test_a_binary_frame_that_is_no_utf8_is_refused_not_repaired(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe() as pipe:
        for frame in (BROKEN, b"\xff", BROKEN + b" " * 100_000):
            await pipe.socket.send(frame)
            assert json.loads(await pipe.receive()) == NOT_UTF8
        client = WireClient(pipe)
        await client.initialize()


@claim("framing:utf-8")
async def test_a_line_that_is_no_utf8_is_refused_not_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stdio_pipes(monkeypatch) as pipe, serve(tmp_path, listen=[StdioAddress()]):
        pipe.writer.write(BROKEN + b"\n")
        assert json.loads(await pipe.receive()) == NOT_UTF8
        await WireClient(pipe).initialize()
