"""Apps: questions of a hosted endpoint."""

import anyio
import anyio.lowlevel
import pytest

from app_server.clients.demo.hosted.endpoint import QUESTIONS, Call, text_result
from protocol.model import JsonObject
from tests.support.apps.hosted import connector
from tests.support.apps.hosted_stage import ANSWER, Client, answering, done, stage
from tests.support.harness import claim


@claim("apps:t-31")
@pytest.mark.parametrize("mode", QUESTIONS)
async def test_questions_and_answers_of_each_mode_pass_unchanged(mode: str) -> None:
    method, params = QUESTIONS[mode]
    params = {**params, "_meta": {"kept": {"as": "it is"}}}

    async def ask(call: Call) -> JsonObject:
        return text_result("answered", await call.caller.ask(method, params))

    client = answering()
    async with stage([connector(("ask", ask))]) as on:
        result = await on.call("test_ask", client=client)
    assert result["structuredContent"] == ANSWER
    assert client.asked == [{**params, "mode": mode} if mode == "openai/form" else params]


@claim("apps:t-31")
async def test_a_question_is_asked_of_the_client_whose_call_it_belongs_to() -> None:
    clients = {key: answering() for key in "abc"}
    async with stage() as on, anyio.create_task_group() as tasks:
        for key, client in clients.items():
            tasks.start_soon(on.call, "survey_ask_by_form", key, client)
    assert [len(client.asked) for client in clients.values()] == [1, 1, 1]


@claim("apps:b5")
async def test_a_question_that_nobody_answers_holds_up_no_other_call() -> None:
    thinking = Client()
    async with stage() as on, anyio.create_task_group() as tasks:
        tasks.start_soon(on.call, "survey_ask_by_form", "slow", thinking)
        await thinking.is_asked.wait()
        for number in range(5):
            result = await on.call("calendar_list_events", f"key {number}")
            assert not result["isError"]
        thinking.let_go.set()


@claim("apps:t-31", "apps:t-35")
async def test_a_call_that_is_given_up_cancels_its_question_and_itself_and_keeps_the_session() -> (
    None
):
    heard: list[JsonObject] = []
    ended = anyio.Event()

    async def ask(call: Call) -> JsonObject:
        try:
            heard.append(await call.caller.ask(*QUESTIONS["form"]))
            await anyio.sleep_forever()
        finally:
            ended.set()
        return text_result("never")

    client = Client()
    async with stage([connector(("ask", ask), ("look", done))]) as on:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(on.call, "test_ask", "key", client)
            await client.is_asked.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()
        assert await on.call("test_look") == text_result("done")
        assert on.pool.counters.opened == 1
    (cancelled,) = on.hosted.script.messages("notifications/cancelled")
    asked = on.hosted.script.messages("tools/call")[0]
    assert cancelled["params"]["requestId"] == asked["id"]
    assert heard in ([], [{"action": "cancel"}])
