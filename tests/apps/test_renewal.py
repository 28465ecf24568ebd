"""Tokens that run out while apps are used: renewed once, by the accounts, without a new sign-in."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr
from starlette.responses import Response

from app_server.accounts.accounts import LOOK_MS
from app_server.apps.account import AppsUnavailable
from app_server.apps.files.upload import Content, UploadFailed, Uploads, UploadTarget
from app_server.apps.routes.backing import OUTDATED
from app_server.apps.upstream.backend import AppsBackend
from app_server.apps.upstream.bearer import Bearer
from app_server.apps.upstream.outbound import Backend, BackendFailed, account_of
from app_server.server.core import PAUSE_S, AppsAccount
from tests.support.accounts.account import NOW_MS, accounts, keep
from tests.support.accounts.issuer_peer import IssuerPeer, make_jwt
from tests.support.apps.chatgpt_peer import ChatgptPeer
from tests.support.apps.files.peer import FileStore
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.peer import connect
from tests.support.apps.renewal import published
from tests.support.apps.service import BOTH, Auth, State, Who, open_apps, runs
from tests.support.harness import WAIT_S, claim, serve

LIST = "connectors/directory/list"
WORN = State(Who("worn"), 1)


@claim("apps:renewal")
async def test_a_refused_token_is_renewed_once_and_what_is_served_stays(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        apps.auth.state = WORN
        apps.auth.others = [apps.hosted.endpoint.token.get_secret_value()]
        place = await published(apps)
        assert apps.auth.refused == ["worn"]
        revision = apps.service.revision()
        # A session that is open already, and the next fetch, go on with the new token.
        async with connect(*place) as client:
            assert (await client.call("_look"))["content"][0]["text"] == "did"
            apps.hosted.endpoint.token = SecretStr("newer")
            apps.auth.others = ["newer"]
            assert (await client.call("_look"))["content"][0]["text"] == "did"
        snapshot = await apps.service.refresh_snapshot(apps.config)
        assert snapshot is not None
        snapshot.release()
        assert len(apps.auth.refused) == 2
        assert (await published(apps), apps.service.revision()) == (place, revision)
        assert apps.contribute("current") == BOTH


@claim("apps:renewal")
async def test_a_token_that_is_refused_again_fails_what_was_asked(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        apps.auth.state = WORN
        apps.auth.others = ["also worn"]
        with pytest.raises(AppsUnavailable, match=r"HTTP status 401$"):
            await apps.service.refresh_snapshot(apps.config)
        # The second try of the fetch has its own renewal, which gives nothing.
        assert apps.auth.refused == ["worn", "also worn"]


@claim("apps:renewal", "apps:r4")
async def test_a_sign_out_elsewhere_is_found_before_a_call_is_forwarded(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        place = await published(apps)
        async with connect(*place) as client:
            await client.call("_look")
            apps.auth.on_fresh.append(lambda: apps.auth.change(None))
            refusal = await client.refusal("tools/call", {"name": "_look"})
            assert refusal[:2] == (-32603, OUTDATED)
        assert apps.hosted.script.names().count("tools/call") == 1


@claim("apps:renewal")
async def test_directory_and_files_are_asked_for_again_with_another_token(tmp_path: Path) -> None:
    auth = Auth(WORN, others=["new"])
    account = account_of(auth)
    assert account is not None
    async with ChatgptPeer({LIST: [401, {"apps": []}, 401, 401]}).serve() as peer:
        backend = AppsBackend(tmp_path)
        asked = Backend(peer.url, account)
        assert await backend.directory(asked, refetch=True) == []
        with pytest.raises(BackendFailed, match=r"^HTTP status 401$"):
            await backend.directory(asked, refetch=True)
        sent = [one.headers["authorization"] for one in peer.asked]
        assert sent == ["Bearer worn", "Bearer new", "Bearer new"]
        auth.change(Who("another's", account_id="other"))
        with pytest.raises(BackendFailed, match=r"^the sign-in has changed$"):
            await backend.directory(asked, refetch=True)
        assert len(peer.asked) == 3

    auth = Auth(WORN, others=["new"])
    async with FileStore(answers={"files": [Response(status_code=401)]}).serve() as store:
        uploads = Uploads(UploadTarget(store.api, {}, Bearer(auth, 1)))
        await uploads.upload(Content("a.txt", 5, hello))
        assert [sent.headers.get("authorization") for sent in store.requests] == [
            "Bearer worn",
            "Bearer new",
            None,
            "Bearer new",
        ]
        auth.change(None)
        with pytest.raises(UploadFailed, match=r"^the sign-in has changed$"):
            await uploads.upload(Content("a.txt", 5, hello))
        assert len(store.requests) == 4


async def hello() -> AsyncIterator[bytes]:
    yield b"hello"


@asynccontextmanager
async def signed_in(home: Path) -> AsyncIterator[tuple[IssuerPeer, AppsAccount, list[float]]]:
    """Have an account at an issuer, as apps see it, and a clock in seconds."""
    now_s = [1000.0]
    async with IssuerPeer().serve() as issuer:
        keep(home, issuer)
        mine = accounts(home, now_ms=lambda: NOW_MS + int(now_s[0] * 1000))
        await mine.load()
        yield issuer, AppsAccount(mine, lambda: now_s[0]), now_s


def token_of(state: Any) -> str:
    assert state.credentials is not None
    return str(state.credentials.token)


@claim("apps:renewal")
async def test_many_that_were_refused_a_token_share_one_renewal_and_one_pause(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (issuer, account, now_s):
        worn = token_of(account.current())
        found: list[str] = []

        async def ask() -> None:
            found.append(token_of(await account.renewed(worn)))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask)
        [new] = set(found)
        assert new == token_of(account.current()) != worn
        assert account.current().revision == 1
        # A server that refuses this one too has the issuer left alone for a while.
        assert token_of(await account.renewed(new)) == new
        assert len(issuer.posts("/oauth/token")) == 1
        now_s[0] += PAUSE_S
        assert token_of(await account.renewed(new)) != new
        assert len(issuer.posts("/oauth/token")) == 2


@claim("apps:renewal")
async def test_a_token_that_cannot_be_renewed_stays_and_the_issuer_is_left_alone(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (issuer, account, _):
        issuer.answers["/oauth/token"] = (500, {})
        worn = token_of(account.current())
        for _ in range(3):
            assert token_of(await account.renewed(worn)) == worn
        assert len(issuer.posts("/oauth/token")) == 1


@claim("apps:renewal")
async def test_a_worn_token_is_renewed_before_it_is_used_and_other_sign_ins_are_seen(
    tmp_path: Path,
) -> None:
    async with signed_in(tmp_path) as (issuer, account, now_s):
        told: list[int] = []
        account.subscribe(lambda state: told.append(state.revision))
        issuer.account = "acct-2"
        keep(tmp_path, issuer, access_token=make_jwt(exp=(NOW_MS // 1000) + 1001))
        document = json.loads((tmp_path / "auth.json").read_text())
        document["tokens"]["account_id"] = "acct-2"
        (tmp_path / "auth.json").write_text(json.dumps(document))
        now_s[0] += LOOK_MS / 1000
        seen = await account.look()
        assert (seen.revision, seen.credentials and seen.credentials.account_id) == (2, "acct-2")
        fresh = await account.fresh()
        assert token_of(fresh) != token_of(seen)
        assert (fresh.revision, told) == (2, [2, 2])


@claim("apps:renewal")
async def test_a_whole_server_renews_what_its_apps_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with IssuerPeer().serve() as issuer, serve_hosted([connector(*runs("look"))]) as hosted:
        issuer.use(monkeypatch)
        keep(tmp_path, issuer)
        # What the issuer will give next is what the endpoint wants.
        next_token = make_jwt(number=issuer.given + 1, **issuer.access_claims)
        hosted.endpoint.token = SecretStr(next_token)
        hosted.endpoint.account_id = "acct-1"
        config = f'chatgpt_base_url = "{hosted.endpoint.base_url}"\n'
        with anyio.fail_after(3 * WAIT_S):
            async with (
                serve(tmp_path, config=config, with_apps=True) as served,
                served.client() as client,
            ):
                served.services.accounts.look_ms = 0
                apps = (await client.call("app/list", {}))["data"]
                assert [(app["id"], app["isAccessible"]) for app in apps] == [
                    ("test", True),
                    ("demo_notes", False),
                ]
                read = await client.call("app/read", {"appIds": ["test"]})
                assert [app["id"] for app in read["apps"]] == ["test"]
                assert len(issuer.posts("/oauth/token")) == 1
                # Another process signs out: the next question finds nobody.
                (tmp_path / "auth.json").unlink()
                assert (await client.call("app/list", {}))["data"] == []
