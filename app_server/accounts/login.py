"""Sign-in to an account: one attempt at a time, in a browser or with a device code.

Source: docs/accounts.md.
"""

import base64
import errno
import hashlib
import hmac
import logging
import math
import secrets
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlencode

import anyio
import anyio.abc

from app_server.accounts.account_errors import AccountError, DeviceCodeNotOffered, LoginFailed
from app_server.accounts.grants import exchange_code
from app_server.accounts.issuer import Issuer
from app_server.accounts.store import Tokens
from app_server.accounts.web import AccountWeb, open_issuer_web
from app_server.config.values import ConfigError
from app_server.observability.log_context import start_apart
from app_server.runtime.http.callback_port import LoopbackListener, Page, Visit
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.server.account import (
    SIGN_IN_SCOPE,
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountResponse,
    LoginAccountResponse,
)

logger = logging.getLogger(__name__)

NOT_COMPLETED = "Login was not completed"


Keep: TypeAlias = Callable[[Tokens, Issuer], Awaitable[None]]
"""Signs in with tokens; raises AccountError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackPorts:
    """Ports that the issuer sends browsers back to, and the waits for one that is busy."""

    ports: tuple[int, ...] = (1455, 1457)
    pause_s: float = 0.2
    """Between attempts to bind it."""
    cancel_s: float = 2.0
    """For asking its holder to give its sign-in up."""


@dataclass(frozen=True, slots=True)
class BrowserWishes:
    """Options of one browser sign-in."""

    originator: str
    """Originator that the issuer is sent."""
    workspaces: tuple[str, ...] = ()
    """Workspaces that may be signed in to; none means any."""
    hosted_page: str | None = None
    """Brand of the page of the service that the browser ends on; None: a page of ours."""
    callback: CallbackPorts = field(default_factory=CallbackPorts)


class Flow(Protocol):
    """One way to sign in that waits for the user."""

    prefix: str
    """Begins the text that clients get about a failure."""

    def response(self, login_id: str) -> LoginAccountResponse:
        """Return the instructions for the user."""

    async def run(self, keep: Keep) -> None:
        """Wait for the user and sign in; raises AccountError."""

    async def aclose(self) -> None:
        """Close ports and connections."""


@dataclass(slots=True)
class Attempt:
    """One sign-in."""

    flow: Flow
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    has_tokens: bool = False
    """From here on the sign-in is carried through, and cannot be given up."""


class LoginAttempts:
    """Runs attempts, and reports how they ended."""

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        sign_in: Keep,
        report: Callable[[str, str | None], None],
    ) -> None:
        """`report` takes the id of a sign-in and why it failed."""
        self._tasks = tasks
        self._sign_in = sign_in
        self._report = report
        self._active: Attempt | None = None
        self._starting = anyio.Lock()

    async def give_up(self) -> None:
        """End the sign-in that waits, if there is one; returns when it has ended."""
        if (active := self._active) is not None:
            if not active.has_tokens:
                active.scope.cancel()
            await active.ended.wait()

    async def cancel(
        self, login_id: str, after_answer: Callable[[Callable[[], None]], None]
    ) -> bool:
        """End one sign-in; False when it does not wait for its user any more.

        How it ended is announced once the answer is on its way.
        """
        active = self._active
        if active is None or active.id != login_id or active.has_tokens:
            return False
        active.answered = anyio.Event()
        after_answer(active.answered.set)
        active.scope.cancel()
        await active.ended.wait()
        return True

    async def start(self, open_flow: Callable[[], Awaitable[Flow]]) -> Attempt:
        """Start a sign-in in the place of an older one, and wait for it in a task.

        How it ends is announced once `answered` is set. Raises what `open_flow` does.
        """
        async with self._starting:
            await self.give_up()
            attempt = self._active = Attempt(await open_flow())
            start_apart(self._tasks, self._run, attempt)
        return attempt

    async def _run(self, attempt: Attempt) -> None:
        error: str | None = attempt.flow.prefix + NOT_COMPLETED

        async def keep(tokens: Tokens, issuer: Issuer) -> None:
            nonlocal error
            attempt.has_tokens = True
            with anyio.CancelScope(shield=True):
                await self._sign_in(tokens, issuer)
                error = None

        try:
            with attempt.scope:
                try:
                    await attempt.flow.run(keep)
                finally:
                    with anyio.CancelScope(shield=True):
                        await attempt.flow.aclose()
        except (AccountError, ConfigError) as exc:
            error = f"{attempt.flow.prefix}{exc}"
        except Exception as exc:  # noqa: BLE001
            # Its text might hold what the issuer said.
            logger.error("a sign-in broke: %s", type(exc).__name__)
            error = f"{attempt.flow.prefix}the sign-in broke"
        finally:
            if self._active is attempt:
                self._active = None
            attempt.ended.set()
        await attempt.answered.wait()
        self._report(attempt.id, error)


TRIES = 10
"""Attempts to bind a busy port."""

MAX_BROWSER_WAIT_S = 10 * 60.0
"""Seconds for the user to sign in."""

CALLBACK_PATH = "/auth/callback"
HOSTED_PAGE = "https://chatgpt.com/codex/open-app"

NO_CODE = "Missing authorization code. Sign-in could not be completed."
NOT_ENTITLED = (
    "Codex is not enabled for your workspace."
    " Contact your workspace administrator to request access to Codex."
)
MAX_DETAIL = 300
"""Characters of what the issuer says that are shown."""


class BrowserLogin:
    """A Flow with a browser on this machine; `url` is where that begins."""

    prefix = "Login server error: "

    def __init__(self, issuer: Issuer, wishes: BrowserWishes, listener: LoopbackListener) -> None:
        self._issuer = issuer
        self._wishes = wishes
        self._listener = listener
        self._verifier = secrets.token_urlsafe(64)
        self._state = secrets.token_urlsafe(32)
        self._keep: Keep | None = None
        self._busy = False
        self._settled = anyio.Event()
        self._failure: AccountError | None = None
        self._redirect_uri = f"http://127.0.0.1:{listener.port}{CALLBACK_PATH}"
        query = {
            "response_type": "code",
            "client_id": issuer.client_id,
            "redirect_uri": self._redirect_uri,
            "code_challenge": _challenge(self._verifier),
            "code_challenge_method": "S256",
            "state": self._state,
            "scope": SIGN_IN_SCOPE,
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "originator": wishes.originator,
            **({"allowed_workspace_id": ",".join(wishes.workspaces)} if wishes.workspaces else {}),
        }
        self.url = f"{issuer.authorize_url}?{urlencode(query)}"

    @classmethod
    async def open(cls, wishes: BrowserWishes) -> "BrowserLogin":
        """Listen for the browser.

        Raises:
            RpcError: no port is free.
        """
        try:
            return cls(Issuer.for_sign_in(), wishes, await _listen(wishes.callback))
        except LoginFailed as exc:
            raise internal_error(f"failed to start login server: {exc}", "loginFailed") from exc

    def response(self, login_id: str) -> LoginAccountResponse:
        """Name the address for the browser."""
        return ChatgptLoginAccountResponse(login_id=login_id, auth_url=self.url)

    async def run(self, keep: Keep) -> None:
        """Wait for the browser and sign in.

        Raises:
            LoginFailed: the user or the issuer refused, or MAX_BROWSER_WAIT_S went by.
            AccountError: what `keep` raised.
        """
        self._keep = keep
        try:
            with anyio.fail_after(MAX_BROWSER_WAIT_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listener.serve, self._host)
                    await self._settled.wait()
                    tasks.cancel_scope.cancel()
        except TimeoutError:
            raise LoginFailed("Login timed out") from None
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """Give the port back."""
        await self._listener.aclose()

    async def _host(self, visit: Visit) -> Page:
        if visit.method != "GET":
            return Page(HTTPStatus.METHOD_NOT_ALLOWED, "This is for browsers.")
        if visit.path == "/cancel":
            # How another program on this machine asks for the port.
            return self._fail(LoginFailed("Login cancelled"), "Login cancelled")
        if visit.path != CALLBACK_PATH:
            return Page(HTTPStatus.NOT_FOUND, "Not Found")
        if not hmac.compare_digest(visit.query.get("state", "").encode(), self._state.encode()):
            return Page(HTTPStatus.BAD_REQUEST, "State mismatch")
        if self._busy:
            return Page(HTTPStatus.CONFLICT, "This sign-in has been used.")
        self._busy = True
        if (error := visit.query.get("error")) is not None:
            return self._refuse(_refusal(error, visit.query.get("error_description", "")))
        code = visit.query.get("code")
        if code is None:
            return self._refuse(LoginFailed(NO_CODE))
        return await self._sign_in(code)

    async def _sign_in(self, code: str) -> Page:
        assert self._keep is not None
        try:
            await self._keep(await self._exchange(code), self._issuer)
        except AccountError as exc:
            return self._refuse(exc)
        brand = self._wishes.hosted_page
        if brand is None:
            return Page(HTTPStatus.OK, "You are signed in.", then=self._settled.set)
        there = f"{HOSTED_PAGE}?{urlencode({'source': 'login', 'app_brand': brand})}"
        return Page(HTTPStatus.FOUND, "You are signed in.", there, self._settled.set)

    async def _exchange(self, code: str) -> Tokens:
        place, verifier = self._redirect_uri, self._verifier
        try:
            async with open_issuer_web() as web:
                return await exchange_code(web, self._issuer, code, place, verifier)
        except AccountError as exc:
            raise LoginFailed(f"Token exchange failed: {exc}") from exc

    def _refuse(self, failure: AccountError) -> Page:
        return self._fail(failure, "Sign-in could not be completed.")

    def _fail(self, failure: AccountError, title: str) -> Page:
        if self._failure is None:
            self._failure = failure
        return Page(HTTPStatus.OK, title, then=self._settled.set)


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _refusal(error: str, description: str) -> LoginFailed:
    if error == "access_denied" and "missing_codex_entitlement" in description.lower():
        return LoginFailed(NOT_ENTITLED)
    return LoginFailed(f"Sign-in failed: {(description.strip() or error)[:MAX_DETAIL]}")


async def _listen(callback: CallbackPorts) -> LoopbackListener:
    for port in callback.ports:
        for number in range(TRIES):
            try:
                return await LoopbackListener.open(port)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise LoginFailed(f"cannot listen on port {port}: {exc.strerror}") from exc
                if number == 0:
                    await _ask_for_port(port, callback.cancel_s)
                await anyio.sleep(callback.pause_s)
    raise LoginFailed(f"Port 127.0.0.1:{callback.ports[-1]} is already in use")


async def _ask_for_port(port: int, bound_s: float) -> None:
    """Ask the listener on the port to cancel its sign-in, as Codex does."""
    request = f"GET /cancel HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    try:
        with anyio.move_on_after(bound_s):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(request.encode())
                await stream.receive()
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        # Whoever it is, it does not answer; the port may become free all the same.
        return


MAX_DEVICE_WAIT_S = 15 * 60.0
"""Seconds for the user to sign in."""

DEFAULT_INTERVAL_S = 5.0
MIN_INTERVAL_S = 1.0
MAX_INTERVAL_S = 60.0
"""Bounds of the pause between questions, whatever the issuer wants."""

PENDING = (403, 404)
"""Statuses that say: not yet."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A code, good for one sign-in."""

    user_code: str
    device_auth_id: str = field(repr=False)
    interval_s: float


async def request_device_code(web: AccountWeb, issuer: Issuer) -> DeviceCode:
    """Ask for a code.

    Raises:
        DeviceCodeNotOffered: the issuer has none.
        LoginFailed: it gives none.
        AccountError: see `AccountWeb.ask`.
    """
    answer = await web.ask(f"{issuer.device_api}/usercode", {"client_id": issuer.client_id})
    if answer.status == 404:
        raise DeviceCodeNotOffered(
            "device code login is not enabled for this Codex server."
            " Use the browser login or verify the server URL."
        )
    if not answer.ok:
        raise LoginFailed(f"device code request failed with status {answer.shown_status}")
    body = answer.parse()
    user_code = body.get("user_code", body.get("usercode"))
    device_auth_id = body.get("device_auth_id")
    if not isinstance(user_code, str) or not isinstance(device_auth_id, str):
        raise LoginFailed("the answer with the device code makes no sense")
    return DeviceCode(user_code, device_auth_id, _interval_s(body.get("interval")))


async def await_tokens(
    web: AccountWeb,
    issuer: Issuer,
    code: DeviceCode,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    *,
    max_wait_s: float = MAX_DEVICE_WAIT_S,
) -> Tokens:
    """Wait until the user has entered the code, and fetch the tokens.

    Raises:
        LoginFailed: the issuer refuses, or the user took longer than `max_wait_s`.
        AccountError: see `AccountWeb.ask`.
    """
    question = {"device_auth_id": code.device_auth_id, "user_code": code.user_code}
    url = f"{issuer.device_api}/token"
    try:
        with anyio.fail_after(max_wait_s):
            while True:
                answer = await web.ask(url, question)
                if answer.status not in PENDING:
                    break
                await sleep(code.interval_s)
    except TimeoutError:
        raise LoginFailed(f"device auth timed out after {round(max_wait_s / 60)} minutes") from None
    if not answer.ok:
        raise LoginFailed(f"device auth failed with status {answer.shown_status}")
    body = answer.parse()
    grant, verifier = body.get("authorization_code"), body.get("code_verifier")
    if not isinstance(grant, str) or not isinstance(verifier, str):
        raise LoginFailed("the answer to the device code makes no sense")
    try:
        return await exchange_code(web, issuer, grant, issuer.device_redirect_url, verifier)
    except LoginFailed as exc:
        raise LoginFailed(f"device code exchange failed: {exc}") from exc


def _interval_s(value: Any) -> float:
    try:
        wanted = float(value)
    except (TypeError, ValueError):
        wanted = DEFAULT_INTERVAL_S
    if math.isnan(wanted):
        wanted = DEFAULT_INTERVAL_S
    return min(max(wanted, MIN_INTERVAL_S), MAX_INTERVAL_S)


@dataclass(slots=True)
class DeviceLogin:
    """A Flow with a browser on any machine."""

    issuer: Issuer
    web: AccountWeb
    code: DeviceCode
    stack: AsyncExitStack
    """Closes the connections."""
    prefix: str = ""

    @classmethod
    async def open(cls) -> "DeviceLogin":
        """Ask for a code.

        Raises:
            RpcError: there is none.
        """
        issuer = Issuer.for_sign_in()
        async with AsyncExitStack() as stack:
            web = await stack.enter_async_context(open_issuer_web())
            try:
                code = await request_device_code(web, issuer)
            except DeviceCodeNotOffered as exc:
                raise invalid_request(str(exc), "loginNotOffered") from exc
            except AccountError as exc:
                raise internal_error(
                    f"failed to request device code: {exc}", "loginFailed"
                ) from exc
            return cls(issuer, web, code, stack.pop_all())

    def response(self, login_id: str) -> LoginAccountResponse:
        """Name the address and the code."""
        return ChatgptDeviceCodeLoginAccountResponse(
            login_id=login_id,
            verification_url=self.issuer.device_url,
            user_code=self.code.user_code,
        )

    async def run(self, keep: Keep) -> None:
        """Wait until the code was entered and sign in."""
        await keep(await await_tokens(self.web, self.issuer, self.code), self.issuer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.stack.aclose()
