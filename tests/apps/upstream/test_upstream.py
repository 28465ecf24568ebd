"""Apps: the hosted endpoint's address, what requests carry, bounds of its list, its questions."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from app_server.apps.inventory.fetch import (
    FETCH_S,
    MAX_BYTES,
    MAX_PAGES,
    MAX_TOOLS,
    FetchFailed,
    FetchLimits,
    Page,
    collect_tools,
)
from app_server.apps.upstream.endpoint import (
    BadDebugToken,
    apps_endpoint,
    debug_token,
    upstream_target,
)
from app_server.apps.upstream.hosted_session import ElicitationBridge
from app_server.mcp_wire.errors import BadQuestion
from protocol.model import JsonObject
from tests.support.harness import WAIT_S, claim

TOKEN = SecretStr("token-of-the-account")

# The endpoint.


@claim("apps:t-01")
@pytest.mark.parametrize(
    ("base_url", "endpoint"),
    [
        ("https://chatgpt.com", "https://chatgpt.com/backend-api/ps/mcp"),
        ("https://chatgpt.com//", "https://chatgpt.com/backend-api/ps/mcp"),
        ("https://chat.openai.com/backend-api/", "https://chat.openai.com/backend-api/ps/mcp"),
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234/api/codex/ps/mcp"),
        ("https://example.com/api/codex", "https://example.com/api/codex/ps/mcp"),
        ("https://example.com/backend-api", "https://example.com/backend-api/ps/mcp"),
    ],
)
def test_the_endpoint_follows_from_the_address_of_chatgpt(base_url: str, endpoint: str) -> None:
    assert apps_endpoint(base_url) == endpoint


def revealed(headers: Any) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in headers.items()}


@claim("apps:t-02")
@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({}, {}),
        ({"account_id": "account-1"}, {"ChatGPT-Account-ID": "account-1"}),
        ({"account_id": "", "sku": " "}, {}),
        ({"sku": " codex "}, {"X-OpenAI-Product-Sku": "codex"}),
    ],
    ids=["token", "account", "blank", "sku"],
)
def test_requests_carry_the_account_and_the_product_if_they_are_known(
    given: dict[str, str], more: dict[str, str]
) -> None:
    target = upstream_target("https://chatgpt.com", TOKEN, **given)  # type: ignore[arg-type]
    assert target.url == "https://chatgpt.com/backend-api/ps/mcp"
    assert revealed(target.headers) == {"Authorization": "Bearer token-of-the-account", **more}


def test_a_target_does_not_show_its_token() -> None:
    target = upstream_target("https://chatgpt.com", TOKEN)
    assert TOKEN.get_secret_value() not in repr(target) + repr(target.headers)


@claim("apps:t-05")
def test_a_debug_token_that_is_set_is_read() -> None:
    token = debug_token({"CODEX_CONNECTORS_TOKEN": " debug \n"})
    assert token is not None
    assert token.get_secret_value() == "debug"
    assert debug_token({"CODEX_CONNECTORS_TOKEN": " "}) is None
    assert debug_token({}) is None


@claim("apps:t-05")
def test_a_debug_token_that_is_no_unicode_is_an_error_that_does_not_repeat_it() -> None:
    bad = b"secret\xff".decode(errors="surrogateescape")
    with pytest.raises(BadDebugToken) as caught:
        debug_token({"CODEX_CONNECTORS_TOKEN": bad})
    assert str(caught.value) == "CODEX_CONNECTORS_TOKEN is not valid Unicode"


# Bounds of the list.


@dataclass
class Pages:
    """A list that is given page by page; cursors are the numbers of pages."""

    pages: list[list[Any]]
    cursors: list[str | None] = field(default_factory=list)
    """What was asked for."""
    deadlines: list[float] = field(default_factory=list)
    """Until when each page could have come."""

    async def __call__(self, cursor: str | None) -> JsonObject:
        self.cursors.append(cursor)
        self.deadlines.append(anyio.current_effective_deadline())
        number = int(cursor or 0)
        more = {"nextCursor": str(number + 1)} if number + 1 < len(self.pages) else {}
        return {"tools": self.pages[number], **more}


def tools(count: int) -> list[Any]:
    return [{"name": f"tool {number}"} for number in range(count)]


async def refusal_of(page: Page, limits: FetchLimits | None = None) -> str:
    with pytest.raises(FetchFailed) as caught:
        await collect_tools(page, limits)
    return str(caught.value)


async def test_all_pages_make_one_list_in_their_order() -> None:
    listed = tools(5)
    pages = Pages([listed[:2], [], listed[2:]])
    assert await collect_tools(pages) == listed
    assert pages.cursors == [None, "1", "2"]


@claim("apps:t-06")
async def test_a_list_of_128_pages_is_read_and_a_129th_is_not_asked_for() -> None:
    assert MAX_PAGES == 128
    at_the_limit, above = Pages([[]] * 128), Pages([[]] * 129)
    assert await collect_tools(at_the_limit) == []
    assert await refusal_of(above) == "the list of tools has more than 128 pages"
    assert len(above.cursors) == 128


@claim("apps:t-07")
async def test_a_list_of_4096_tools_is_read_and_one_more_is_too_many() -> None:
    assert MAX_TOOLS == 4096
    assert len(await collect_tools(Pages([tools(4000), tools(96)]))) == 4096
    above = Pages([tools(4000), tools(97), []])
    assert await refusal_of(above) == "the list has more than 4096 tools"
    assert len(above.cursors) == 2


@claim("apps:t-07")
async def test_elements_that_are_no_tools_count_and_are_left_out() -> None:
    assert await collect_tools(Pages([[1, {"name": "tool"}, None]])) == [{"name": "tool"}]
    limits = FetchLimits(tools=2)
    assert await refusal_of(Pages([[1, 2, 3]]), limits) == "the list has more than 2 tools"


@claim("apps:t-08")
async def test_a_list_of_eight_mebibytes_is_read_and_one_byte_more_is_too_much() -> None:
    assert MAX_BYTES == 8 * 1024 * 1024
    # Brackets, a comma, and `{"name":"é"}` twice with what fills it up.
    frame = len('[{"name":""},{"name":""}]')
    filler = "é" * 1000 + "x" * (MAX_BYTES - frame - 2000 - 1)
    at_the_limit = Pages([[{"name": filler}], [{"name": "x"}]])
    above = Pages([[{"name": filler}], [{"name": "xx"}], []])
    assert len(await collect_tools(at_the_limit)) == 2
    assert await refusal_of(above) == f"the list of tools has more than {MAX_BYTES} bytes"
    assert len(above.cursors) == 2


@claim("apps:t-09")
async def test_a_cursor_that_comes_twice_ends_the_fetch() -> None:
    answers = {None: "a", "a": "b", "b": "a"}
    asked: list[str | None] = []

    async def page(cursor: str | None) -> JsonObject:
        asked.append(cursor)
        return {"tools": [], "nextCursor": answers[cursor]}

    assert await refusal_of(page) == "the list of tools goes round in circles"
    assert asked == [None, "a", "b"]


@claim("apps:t-10")
async def test_all_pages_have_one_deadline() -> None:
    pages = Pages([[], [], []])
    now = anyio.current_time()
    await collect_tools(pages)
    (deadline,) = set(pages.deadlines)
    assert FETCH_S == 30
    assert now + 30 <= deadline <= anyio.current_time() + 30


@claim("apps:t-10")
async def test_a_list_that_takes_too_long_is_given_up() -> None:
    async def page(cursor: str | None) -> JsonObject:
        if cursor is not None:
            await anyio.sleep_forever()
        return {"tools": [], "nextCursor": "more"}

    limits = FetchLimits(time_s=0.05)
    with anyio.fail_after(WAIT_S):
        assert await refusal_of(page, limits) == "the list of tools took more than 0.05 s"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "a page of the list of tools has no tools"),
        ({"tools": {}}, "a page of the list of tools has no tools"),
        (
            {"tools": [], "nextCursor": 1},
            "a page of the list of tools has a cursor that is no text",
        ),
    ],
    ids=["none", "object", "cursor"],
)
async def test_a_page_that_makes_no_sense_ends_the_fetch(answer: JsonObject, text: str) -> None:
    async def page(cursor: str | None) -> JsonObject:
        return answer

    assert await refusal_of(page) == text


# Questions.

FORM: JsonObject = {
    "message": "Which?",
    "requestedSchema": {"type": "object", "properties": {"day": {"enum": [1, None]}}},
    "_meta": {"kept": {"as": [None]}},
}
LINK: JsonObject = {
    "mode": "url",
    "message": "Go there.",
    "url": "https://example.com/?a=b",
    "elicitationId": "e-1",
}
OPENAI_FORM: JsonObject = {**FORM, "mode": "openai/form"}
ANSWER: JsonObject = {"action": "accept", "content": {"day": None}, "_meta": {"by": "hand"}}


@dataclass
class Client:
    """A client that answers."""

    asked: list[JsonObject] = field(default_factory=list)

    async def elicit(self, params: JsonObject) -> JsonObject:
        self.asked.append(params)
        return ANSWER


@claim("apps:t-31")
@pytest.mark.parametrize(
    ("method", "params", "reaches"),
    [
        ("elicitation/create", FORM, FORM),
        ("elicitation/create", {**FORM, "mode": "form"}, {**FORM, "mode": "form"}),
        ("elicitation/create", LINK, LINK),
        ("openai/form", FORM, OPENAI_FORM),
        ("elicitation/create", OPENAI_FORM, OPENAI_FORM),
    ],
    ids=["form", "named-form", "url", "openai", "openai-mode"],
)
async def test_a_question_and_its_answer_pass_unchanged(
    method: str, params: JsonObject, reaches: JsonObject
) -> None:
    bridge = ElicitationBridge()
    client = Client()
    with bridge.held_by(client):
        assert await bridge.ask(method, params) == ANSWER
    assert client.asked == [reaches]


@claim("apps:t-31")
async def test_without_a_call_nobody_is_asked() -> None:
    bridge = ElicitationBridge()
    client = Client()
    assert await bridge.ask("elicitation/create", FORM) == {"action": "cancel"}
    with bridge.held_by(client):
        pass
    assert await bridge.ask("elicitation/create", FORM) == {"action": "cancel"}
    assert client.asked == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("openai/form", {**FORM, "_meta": []}),
        ("elicitation/create", {**FORM, "_meta": None}),
        ("elicitation/create", {**FORM, "mode": "of tomorrow"}),
        ("elicitation/create", {**FORM, "mode": None}),
    ],
    ids=["meta", "null-meta", "mode", "null-mode"],
)
async def test_a_question_that_makes_no_sense_is_refused(method: str, params: JsonObject) -> None:
    bridge = ElicitationBridge()
    client = Client()
    with bridge.held_by(client), pytest.raises(BadQuestion):
        await bridge.ask(method, params)
    assert client.asked == []
