"""accounts: the revision of credentials, and renewing their tokens."""

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.accounts.account_errors import (
    OTHER_ACCOUNT,
    REFUSED,
    AccountError,
    IssuerUnavailable,
    RefreshFailed,
)

# Imported here so that no test waits for them.
from app_server.accounts.accounts import LOOK_MS
from app_server.accounts.credentials import AuthState, Credentials
from app_server.accounts.grants import Grants
from app_server.accounts.issuer import Issuer
from app_server.accounts.store import AuthRecord, AuthStore, Tokens, external_credentials
from app_server.accounts.web import open_issuer_web
from tests.support.accounts.account import (
    NOW_MS,
    accounts,
    keep,
    stored,
)
from tests.support.accounts.issuer_peer import MARK, IssuerPeer, make_id_token, make_jwt
from tests.support.harness import WAIT_S, claim
from tests.support.model import Gate


@claim("account:revision")
async def test_every_change_of_the_credentials_and_nothing_else_grows_the_revision(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        told: list[AuthState] = []

        def broken(state: AuthState) -> None:
            raise RuntimeError("a listener's own fault")

        mine.subscribe(broken)
        stop = mine.subscribe(told.append)
        assert mine.current() == AuthState(None, 0)

        async def supply(previous: str | None) -> Credentials:
            return external_credentials(make_jwt(n=2), "acct-9", None)

        async def again() -> None:
            await mine.load()

        async def supplied() -> None:
            credentials = external_credentials(make_jwt(n=1), "acct-9", "pro")
            await mine.use_supplied(credentials, supply)

        async def refused() -> None:
            credentials = mine.current().credentials
            assert credentials is not None
            await mine.replace(credentials)

        steps: list[tuple[Any, int, str | None]] = [
            (mine.load, 1, "chatgpt"),
            (again, 1, "chatgpt"),
            (mine.fresh, 1, "chatgpt"),
            (mine.refresh, 2, "chatgpt"),
            (lambda: mine.sign_in_with_key("sk-1"), 3, "apikey"),
            (lambda: mine.sign_in_with_key("sk-1"), 3, "apikey"),
            (mine.refresh, 3, "apikey"),
            (lambda: mine.sign_in_with_key("sk-2"), 4, "apikey"),
            (supplied, 5, "chatgptAuthTokens"),
            (mine.refresh, 5, "chatgptAuthTokens"),
            (refused, 6, "chatgptAuthTokens"),
            (mine.sign_out, 7, None),
            (mine.sign_out, 7, None),
        ]
        for number, (step, revision, kind) in enumerate(steps):
            await step()
            state = mine.current()
            found = None if state.credentials is None else state.credentials.kind
            assert (number, state.revision, found) == (number, revision, kind)
        assert [state.revision for state in told] == [1, 2, 3, 4, 5, 6, 7]
        assert told[-1] is mine.current()
        stop()
        await mine.sign_in_with_key("sk-3")
        assert len(told) == 7


@claim("account:sign-ins")
async def test_another_token_of_an_account_is_no_other_sign_in(tmp_path: Path) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        seen: list[tuple[int, int]] = []
        mine.subscribe(lambda state: seen.append((state.revision, state.sign_in)))
        await mine.load()
        await mine.refresh()
        given, was = issuer.give(), Issuer(issuer.url, "client-1")
        await mine.sign_in_with_tokens(Tokens(**given), was)
        issuer.account = "acct-2"
        await mine.sign_in_with_tokens(Tokens(**issuer.give()), was)
        await mine.sign_out()
        assert seen == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4)]


async def test_a_clock_that_was_set_back_hides_no_other_account(tmp_path: Path) -> None:
    now_ms = [NOW_MS]
    async with IssuerPeer().serve() as issuer:
        mine = accounts(tmp_path, now_ms=lambda: now_ms[0])
        assert (await mine.look()).credentials is None
        keep(tmp_path, issuer)
        assert (await mine.look()).credentials is None
        now_ms[0] -= 3_600_000
        assert (await mine.look()).credentials is not None


@claim("account:other-process")
async def test_what_another_process_stored_is_taken_over_when_the_account_is_used(
    tmp_path: Path,
) -> None:
    now_ms = [NOW_MS]
    file = tmp_path / "auth.json"

    async with IssuerPeer().serve() as issuer:
        mine, other = (accounts(tmp_path, now_ms=lambda: now_ms[0]) for _ in range(2))

        async def seen() -> tuple[str | None, str | None, int, int]:
            now_ms[0] += LOOK_MS
            state = await mine.fresh()
            assert state is mine.current()
            who = state.credentials
            known = (None, None) if who is None else (who.kind, who.account_id)
            return *known, state.revision, state.sign_in

        assert await seen() == (None, None, 0, 0)
        keep(tmp_path, issuer)
        assert await seen() == ("chatgpt", "acct-1", 1, 1)
        await other.refresh()
        assert await seen() == ("chatgpt", "acct-1", 2, 1)
        assert mine.current().credentials == other.current().credentials
        # What this process has written itself is nothing new.
        await mine.refresh()
        assert await seen() == ("chatgpt", "acct-1", 3, 1)
        issuer.account = "acct-2"
        await other.sign_in_with_tokens(Tokens(**issuer.give()), Issuer(issuer.url, "client-1"))
        # Nobody else's token is taken for the one that was worn out.
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.refresh()
        # Not at once: the file is looked at once in a while.
        assert (await mine.fresh()).revision == 3
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9])
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        file.write_bytes(b"")
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        file.write_bytes(whole)
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        await other.sign_in_with_key("sk-1")
        assert await seen() == ("apikey", None, 5, 3)
        await other.sign_out()
        assert await seen() == (None, None, 6, 4)

        async def supply(previous: str | None) -> Credentials:
            raise AssertionError("nobody refused the token")

        supplied = external_credentials(make_jwt(n=1), "acct-9", "pro")
        await mine.use_supplied(supplied, supply)
        keep(tmp_path, issuer)
        assert await seen() == ("chatgptAuthTokens", "acct-9", 7, 5)


@claim("account:early")
async def test_a_token_is_renewed_before_it_expires_and_used_while_that_does_not_work(
    tmp_path: Path,
) -> None:
    now_ms = [NOW_MS]
    async with IssuerPeer().serve() as issuer:
        issuer.access_claims = {"exp": NOW_MS // 1000 + 3600}
        keep(tmp_path, issuer)
        mine = accounts(tmp_path, now_ms=lambda: now_ms[0])
        await mine.fresh()
        assert issuer.requests == []
        now_ms[0] += 3_540_000
        issuer.answers["/oauth/token"] = (500, {})
        before = await mine.fresh()
        assert before.revision == 1
        # It is left alone for a minute: nobody waits for a broken issuer at every request.
        assert (await mine.fresh()).revision == 1
        assert len(issuer.requests) == 1
        issuer.answers.clear()
        now_ms[0] += 60_000
        assert (await mine.fresh()).revision == 2
        assert [body["refresh_reason"] for body in issuer.posts("/oauth/token")] == [
            "proactive",
            "proactive",
        ]
        # Without an expiry its age counts.
        issuer.access_claims = {}
        document = keep(tmp_path, issuer, access_token="opaque")
        for days, requests in ((7, 2), (9, 3)):
            now_ms[0] = AuthRecord(document).last_refresh_ms or 0
            now_ms[0] += days * 24 * 3_600_000
            mine = accounts(tmp_path, now_ms=lambda: now_ms[0])
            await mine.fresh()
            assert len(issuer.requests) == requests


@claim("account:serialised")
async def test_a_refresh_token_is_shown_once_however_many_want_a_new_token(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        issuer.requests.clear()
        # As two processes: they share nothing but the files.
        both = [accounts(tmp_path), accounts(tmp_path)]
        worn = [(await one.load()).credentials for one in both]
        gate = issuer.gates["/oauth/token"] = Gate()
        states: list[AuthState] = []

        async def replace_worn(number: int) -> None:
            credentials = worn[number]
            assert credentials is not None
            states.append(await both[number].replace(credentials))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                for number in (0, 0, 1, 1):
                    tasks.start_soon(replace_worn, number)
                await gate.wait_until_reached()
                gate.opened.set()
        assert len(issuer.requests) == 1
        assert {state.credentials for state in states} == {both[0].current().credentials}
        assert [state.revision for state in states] == [2, 2, 2, 2]


async def test_the_tokens_of_a_cancelled_refresh_are_kept(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        await mine.load()
        gate = issuer.gates["/oauth/token"] = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.refresh)
            await gate.wait_until_reached()
            tasks.cancel_scope.cancel()
            gate.opened.set()
        assert stored(tmp_path)["tokens"]["refresh_token"] == f"refresh-{MARK}-2"
        assert mine.current().revision == 2


async def test_others_that_hold_the_credentials_are_waited_for_with_a_bound(
    tmp_path: Path,
) -> None:
    store = AuthStore(tmp_path, "file", lock_wait_s=0.01, write_wait_s=0)
    with (tmp_path / "auth.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccountError, match=r"^another process has held the credentials for"):
            async with store.alone():
                pass
    with (tmp_path / "auth.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccountError, match=r"auth.json.lock: another process has held it"):
            await store.save(AuthRecord.of_api_key("sk"))
    (tmp_path / "auth.lock").unlink()
    (tmp_path / "auth.lock").mkdir()
    mine = accounts(tmp_path)
    with pytest.raises(AccountError, match=r"auth\.lock"):
        await mine.sign_in_with_key("sk")
    assert mine.current() == AuthState(None, 0)
    assert not (tmp_path / "auth.json").exists()


@claim("account:other-process")
async def test_what_another_process_signed_in_is_taken_over_only_for_the_same_account(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        worn = (await mine.load()).credentials
        assert worn is not None
        document = keep(tmp_path, issuer)
        issuer.requests.clear()
        taken = (await mine.replace(worn)).credentials
        assert taken is not None
        assert taken.token == document["tokens"]["access_token"]
        document["tokens"]["account_id"] = "acct-2"
        (tmp_path / "auth.json").write_text(json.dumps(document))
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.replace(taken)
        (tmp_path / "auth.json").unlink()
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.refresh()
        keep(tmp_path, issuer, access_token=taken.token, refresh_token="")
        with pytest.raises(RefreshFailed, match=f"^{REFUSED}$"):
            await mine.refresh()
        assert mine.refusal == REFUSED
        assert issuer.requests == []


async def test_what_an_issuer_answers_to_a_refresh_decides_whether_it_is_asked_again(
    tmp_path: Path,
) -> None:
    again = "Please log out and sign in again."
    cases: tuple[tuple[tuple[int, Any], type[AccountError], str], ...] = (
        ((401, {}), RefreshFailed, f"refreshed. {again}"),
        ((400, {"error": "refresh_token_expired"}), RefreshFailed, f"has expired. {again}"),
        ((400, {"code": "Refresh_Token_Invalidated"}), RefreshFailed, f"was revoked. {again}"),
        ((400, {"error": "odd"}), IssuerUnavailable, "Failed to refresh token: 400 Bad Request"),
        ((200, {}), IssuerUnavailable, "the issuer's answer to a refresh makes no sense"),
        ((200, b"["), IssuerUnavailable, "the issuer's answer to a refresh makes no sense"),
    )
    async with IssuerPeer().serve() as issuer:
        record = AuthRecord(keep(tmp_path, issuer))
        for answer, kind, text in cases:
            issuer.answers["/oauth/token"] = answer
            with pytest.raises(AccountError) as caught:
                await Grants().renew(record, "forced")
            assert (type(caught.value), str(caught.value).endswith(text)) == (kind, True)
        issuer.answers["/oauth/token"] = (200, {"access_token": "new", "id_token": "no token"})
        mine = accounts(tmp_path)
        await mine.load()
        await mine.refresh()
        tokens = stored(tmp_path)["tokens"]
        assert tokens == {**record.document["tokens"], "access_token": "new"}


async def test_an_issuer_that_cannot_be_reached_is_named_without_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = AuthRecord.of_tokens(
        Tokens(make_id_token(), "a", "r"), Issuer("http://127.0.0.1:1", "c"), NOW_MS
    )
    with pytest.raises(IssuerUnavailable, match=r"^cannot reach the issuer: ConnectError$"):
        await Grants().renew(record, "forced")
    monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", "http://example.com/token")
    with pytest.raises(AccountError, match="neither https nor on this machine"):
        await Grants().renew(record, "forced")
    for nonsense in ("http://[x", "https://[::1/"):
        monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", nonsense)
        for question in (Grants().renew(record, "forced"), Grants().revoke(record)):
            with pytest.raises(AccountError, match="makes no sense"):
                await question
    monkeypatch.delenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE")
    async with IssuerPeer().serve() as issuer, open_issuer_web() as web:
        gate = issuer.gates["/oauth/token"] = Gate()
        with pytest.raises(IssuerUnavailable, match="did not answer in time"):
            await replace(web, request_s=0.01).ask(f"{issuer.url}/oauth/token", {})
        gate.opened.set()
