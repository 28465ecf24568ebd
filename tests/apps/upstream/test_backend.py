"""Apps: what ChatGPT says of them beside their tools, over plain HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from app_server.apps.inventory.cache import CacheIdentity
from app_server.apps.inventory.directory import AppDetails
from app_server.apps.upstream.backend import AppsBackend, BackendBounds, KnownDirectory
from app_server.apps.upstream.outbound import Account, Backend, BackendFailed
from protocol.integrations.apps import AppInfo, AppToolSummary, ConnectorMetadata
from tests.support.apps.chatgpt_peer import NEVER, Asked, ChatgptPeer
from tests.support.harness import WAIT_S, claim

TOKEN = "s3cr3t-token"
LIST = "connectors/directory/list"
WORKSPACE_LIST = "connectors/directory/list_workspace"
SETTING = "accounts/acct-1/settings"
BATCH = "ps/apps/batch"
LOGOS = ("external_logos", "true")


def account(id_: str | None = "acct-1", *, workspace: bool = False) -> Account:
    return Account(
        CacheIdentity(id_, None, workspace), {"Authorization": SecretStr(f"Bearer {TOKEN}")}
    )


@dataclass
class Office:
    """A backend with its peer, and a clock that stands still."""

    peer: ChatgptPeer
    home: Path
    bounds: BackendBounds
    now_s: float = 1000.0
    backend: AppsBackend = field(init=False)

    def __post_init__(self) -> None:
        self.backend = AppsBackend(self.home, lambda: self.now_s, self.bounds)

    def of(self, account: Account, sku: str | None = None) -> Backend:
        """Return ChatGPT's interface as an account sees it."""
        return Backend(f"{self.peer.url}/", account, sku)


@asynccontextmanager
async def open_office(
    home: Path, bounds: BackendBounds | None = None, /, **answers: list[Any]
) -> AsyncIterator[Office]:
    async with ChatgptPeer(dict(answers)).serve() as peer:
        with anyio.fail_after(WAIT_S):
            yield Office(peer, home, bounds or BackendBounds())


def entry(id_: str, **members: Any) -> dict[str, Any]:
    return {"id": id_, "name": id_.upper(), **members}


def page(*ids: str, **members: Any) -> dict[str, Any]:
    return {"apps": [entry(id_) for id_ in ids], **members}


def ids_of(apps: Any) -> list[str]:
    return [app.id for app in apps]


async def test_a_directory_is_read_page_by_page(tmp_path: Path) -> None:
    pages = [
        page("a", "b", next_token="t 1"),
        page("c", nextToken="t2"),
        {"apps": [entry("d", visibility="HIDDEN"), entry("e")], "next_token": None},
    ]
    async with open_office(tmp_path, **{LIST: pages}) as office:
        apps = await office.backend.directory(office.of(account()), refetch=False)
        assert ids_of(apps) == ["a", "b", "c", "e"]
        assert office.peer.asked == [
            Asked(f"GET {LIST}", [LOGOS], {}),
            Asked(f"GET {LIST}", [("token", "t 1"), LOGOS], {}),
            Asked(f"GET {LIST}", [("token", "t2"), LOGOS], {}),
        ]
        sent = {asked.headers["authorization"] for asked in office.peer.asked}
        assert sent == {f"Bearer {TOKEN}"}


async def test_a_workspace_has_a_list_of_its_own_which_may_fail(tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {LIST: [page("a")], WORKSPACE_LIST: [page("b"), 500]}
    async with open_office(tmp_path, **answers) as office:
        ours = office.of(account(workspace=True))
        assert ids_of(await office.backend.directory(ours, refetch=True)) == ["a", "b"]
        assert ids_of(await office.backend.directory(ours, refetch=True)) == ["a"]
        await office.backend.directory(office.of(account()), refetch=True)
        assert sorted(office.peer.lines()) == [f"GET {LIST}"] * 3 + [f"GET {WORKSPACE_LIST}"] * 2


async def test_a_directory_is_kept_for_an_hour_and_for_its_account_alone(tmp_path: Path) -> None:
    lists = [page("a"), page("b"), page("c"), page("d")]
    async with open_office(tmp_path, **{LIST: lists}) as office:
        mine, other = office.of(account()), office.of(account("acct-2"))
        assert await office.backend.known_directory(mine) is None
        assert ids_of(await office.backend.directory(mine, refetch=False)) == ["a"]
        office.now_s += 3599
        assert ids_of(await office.backend.directory(mine, refetch=False)) == ["a"]
        known = await office.backend.known_directory(mine)
        assert known == KnownDirectory([AppInfo(id="a", name="A")], True)
        assert await office.backend.known_directory(other) is None
        assert ids_of(await office.backend.directory(other, refetch=False)) == ["b"]
        assert ids_of(await office.backend.directory(mine, refetch=True)) == ["c"]
        office.now_s += 3600
        known = await office.backend.known_directory(mine)
        assert known == KnownDirectory([AppInfo(id="c", name="C")], False)
        assert ids_of(await office.backend.directory(mine, refetch=False)) == ["d"]
        again = AppsBackend(tmp_path, lambda: office.now_s)
        known = await again.known_directory(mine)
        assert known == KnownDirectory([AppInfo(id="d", name="D")], False)


async def test_nothing_is_kept_of_an_account_that_nobody_knows(tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {LIST: [page("a")], BATCH: [page("a")]}
    async with open_office(tmp_path, **answers) as office:
        unknown = office.of(account(None))
        for _ in range(2):
            await office.backend.directory(unknown, refetch=False)
            await office.backend.details(unknown, ["a"], tools=False)
        assert await office.backend.known_directory(unknown) is None
        assert office.peer.lines() == [f"GET {LIST}", f"POST {BATCH}"] * 2
    assert list(tmp_path.iterdir()) == []


async def test_requests_of_one_account_share_what_is_loaded(tmp_path: Path) -> None:
    async with open_office(tmp_path, **{LIST: [page("a")]}) as office:
        found: list[list[str]] = []

        async def ask() -> None:
            apps = await office.backend.directory(office.of(account()), refetch=False)
            found.append(ids_of(apps))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        assert found == [["a"]] * 5
        assert office.peer.lines() == [f"GET {LIST}"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (500, "HTTP status 500"),
        (302, "HTTP status 302"),
        (b"no JSON", "an answer that is not a JSON object"),
        (b"[]", "an answer that is not a JSON object"),
        ({"apps": 5}, "an answer without apps"),
        (page("a", next_token="same"), "a page that comes twice"),
        (page(*map(str, range(11))), "more than 10 apps"),
        (page("a", more="x" * 1000), "more than 1000 bytes"),
        (NEVER, "no answer within 0 s"),
    ],
)
async def test_a_directory_that_cannot_be_used_leaves_what_was_kept(
    tmp_path: Path, answer: Any, text: str
) -> None:
    bounds = BackendBounds(entries=10, directory_bytes=1000)
    async with open_office(tmp_path, bounds, **{LIST: [page("kept"), answer]}) as office:
        ours = office.of(account())
        await office.backend.directory(ours, refetch=False)
        if answer is NEVER:
            office.backend.bounds = replace(bounds, request_s=0)
        with pytest.raises(BackendFailed) as failed:
            await office.backend.directory(ours, refetch=True)
        assert str(failed.value) == text
        assert ids_of(await office.backend.directory(ours, refetch=False)) == ["kept"]


async def test_a_directory_has_at_most_128_pages_and_each_bound_is_inclusive(
    tmp_path: Path,
) -> None:
    pages = [page(f"a{n}", next_token=f"t{n}") for n in range(127)]
    async with open_office(tmp_path, **{LIST: [*pages, page("last")]}) as office:
        sizes = [len(json.dumps(one)) for one in (*pages, page("last"))]
        office.backend.bounds = BackendBounds(entries=128, directory_bytes=sum(sizes))
        apps = await office.backend.directory(office.of(account()), refetch=False)
        assert len(apps) == 128
        office.peer.answers[LIST] = [*pages, page("z", next_token="t127"), page("last")]
        office.peer.asked.clear()
        office.backend.bounds = BackendBounds()
        with pytest.raises(BackendFailed, match=r"^more than 128 pages$"):
            await office.backend.directory(office.of(account()), refetch=True)
        assert len(office.peer.asked) == 128


async def test_a_backend_out_of_reach_says_so_without_its_address(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        closed = Backend("http://127.0.0.1:1", account())
        with pytest.raises(BackendFailed, match=r"^ChatGPT cannot be reached: ConnectError$"):
            await office.backend.directory(closed, refetch=False)
        with pytest.raises(BackendFailed, match=r"^chatgpt_base_url is not a URL$"):
            await office.backend.directory(Backend("http://127.0.0.1:x", account()), refetch=False)
        assert TOKEN not in repr(closed)


@claim("apps:t-55")
async def test_a_workspace_is_asked_once_a_day_whether_it_allows_apps(tmp_path: Path) -> None:
    off, on = ({"beta_settings": {"plugins": value}} for value in (False, True))
    async with open_office(tmp_path, **{SETTING: [off, on, {}]}) as office:
        allows = office.backend.workspace_allows
        assert await allows(office.of(account()))
        assert office.peer.asked == []
        ours = office.of(account(workspace=True))
        assert not await allows(ours)
        office.now_s += 86_399
        assert not await allows(ours)
        office.now_s += 1
        assert await allows(ours)
        office.now_s += 86_400
        assert await allows(ours)
        assert office.peer.asked == [Asked(f"GET {SETTING}", [], {})] * 3


@claim("apps:t-55")
@pytest.mark.parametrize("answer", [500, b"no JSON", NEVER])
async def test_a_setting_that_cannot_be_read_allows_apps_for_a_minute(
    tmp_path: Path, answer: Any
) -> None:
    off = {"beta_settings": {"plugins": False}}
    bounds = BackendBounds(setting_s=0) if answer is NEVER else BackendBounds()
    async with open_office(tmp_path, bounds, **{SETTING: [answer, off]}) as office:
        ours = office.of(account(workspace=True))
        assert await office.backend.workspace_allows(ours)
        office.backend.bounds = BackendBounds()
        office.peer.answers[SETTING] = [off]
        office.now_s += 59
        assert await office.backend.workspace_allows(ours)
        office.now_s += 1
        assert not await office.backend.workspace_allows(ours)


RECORD = {
    "id": "a",
    "name": "A",
    "description": "Does it.",
    "icon_url": "https://icon",
    "icon_dark_url": "https://dark",
    "distribution_channel": "C",
    "install_url": "https://evil",
    "owner_email": "me@example.com",
    "tools": [
        {
            "name": "look",
            "title": "Look",
            "description": "Looks.",
            "is_enabled": False,
            "disabled_reason": "off",
            "is_read_only": True,
            "secret": "x",
        },
        {"name": "plain"},
        {"title": "no name"},
        5,
    ],
}
METADATA = ConnectorMetadata(
    id="a",
    name="A",
    description="Does it.",
    icon_url="https://icon",
    icon_url_dark="https://dark",
    distribution_channel="C",
    install_url="https://chatgpt.com/apps/a/a",
)
SUMMARIES = [
    AppToolSummary(
        name="look",
        title="Look",
        description="Looks.",
        is_enabled=False,
        disabled_reason="off",
        is_read_only=True,
    ),
    AppToolSummary(name="plain", description=""),
]
DETAILED = AppDetails(METADATA.model_copy(update={"tool_summaries": SUMMARIES}), True)


@claim("apps:t-57")
async def test_details_are_asked_for_once_and_hold_nothing_that_has_no_place(
    tmp_path: Path,
) -> None:
    bare = {**RECORD, "tools": None, "icon_dark_url": None, "icon_url_dark": "https://dark"}
    answers = [{"apps": [bare, {"id": "unasked", "name": "U"}, {"id": "c"}]}, {"apps": [RECORD]}]
    async with open_office(tmp_path, **{BATCH: answers}) as office:
        ours = office.of(account(), "a-product")
        for _ in range(2):
            found = await office.backend.details(ours, ["a"], tools=False)
            assert found == {"a": AppDetails(METADATA, False)}
        for tools in (True, False, True):
            assert await office.backend.details(ours, ["a"], tools=tools) == {"a": DETAILED}
        assert office.peer.asked == [
            Asked(f"POST {BATCH}", [], {}, {"app_ids": ["a"], "include_tools": False}),
            Asked(f"POST {BATCH}", [], {}, {"app_ids": ["a"], "include_tools": True}),
        ]
        skus = {asked.headers["oai-product-sku"] for asked in office.peer.asked}
        assert skus == {"a-product"}


@claim("apps:t-57")
async def test_details_are_kept_for_an_hour_by_account_and_only_missing_ones_are_asked_for(
    tmp_path: Path,
) -> None:
    async with open_office(tmp_path, **{BATCH: [page("a", "b", "c")]}) as office:
        mine, other = office.of(account()), office.of(account("acct-2"))
        await office.backend.details(mine, ["a"], tools=False)
        assert list(await office.backend.details(mine, ["b", "a"], tools=False)) == ["a", "b"]
        await office.backend.details(other, ["a"], tools=False)
        office.now_s += 3600
        await office.backend.details(mine, ["a", "x"], tools=False)
        assert [asked.body["app_ids"] for asked in office.peer.asked] == [
            ["a"],
            ["b"],
            ["a"],
            ["a", "x"],
        ]
        skus = {asked.headers["oai-product-sku"] for asked in office.peer.asked}
        assert skus == {"codex"}


@claim("apps:t-57")
async def test_details_that_cannot_be_read_leave_those_that_were(tmp_path: Path) -> None:
    answers = [page("a"), 503, {"apps": None}, page("b", more="x" * 200)]
    async with open_office(tmp_path, **{BATCH: answers}) as office:
        ours = office.of(account())
        await office.backend.details(ours, ["a"], tools=False)
        office.backend.bounds = BackendBounds(answer_bytes=200)
        for text in ("HTTP status 503", "an answer without apps", "an answer above 200 bytes"):
            with pytest.raises(BackendFailed) as failed:
                await office.backend.details(ours, ["a", "b"], tools=False)
            assert str(failed.value) == text
            assert list(await office.backend.details(ours, ["a"], tools=False)) == ["a"]


async def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    async with open_office(tmp_path, BackendBounds(owners=2), **{LIST: [page("a")]}) as office:
        accounts = [office.of(account(f"acct-{n}")) for n in range(3)]
        for one in (*accounts, accounts[1], accounts[2], accounts[0]):
            await office.backend.directory(one, refetch=False)
        assert len(office.peer.asked) == 4
