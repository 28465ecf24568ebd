"""Signing in with a browser on this machine: authorization code with PKCE, and a loopback port.

Importing this module imports httpx; nobody does before somebody signs in.
Source: RFC 6749, section 4.1; RFC 7636; RFC 8252, section 7.3; docs/accounts.md, "Browser".
"""

import base64
import errno
import hashlib
import hmac
import secrets
from http import HTTPStatus
from urllib.parse import urlencode

import anyio

from app_server.accounts.errors import AccountError, LoginFailed
from app_server.accounts.grants import exchange_code
from app_server.accounts.issuer import Issuer
from app_server.accounts.login.attempt import BrowserWishes, Keep
from app_server.accounts.record import Tokens
from app_server.accounts.web import open_issuer_web
from app_server.runtime.http.callback_port import LoopbackListener, Page, Visit
from protocol.jsonrpc.errors import internal_error
from protocol.server.account import (
    SIGN_IN_SCOPE,
    ChatgptLoginAccountResponse,
    LoginAccountResponse,
)

PORTS = (1455, 1457)
"""Ports that the issuer sends browsers back to."""

TRIES = 10
TRY_PAUSE_S = 0.2
"""How often, and how far apart, a port that somebody holds is tried."""

CANCEL_S = 2.0
"""For asking the holder of a port to give its sign-in up."""

MAX_WAIT_S = 10 * 60.0
"""How long the user may take."""

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
            return cls(Issuer.for_sign_in(), wishes, await _listen())
        except LoginFailed as exc:
            raise internal_error(f"failed to start login server: {exc}", "loginFailed") from exc

    def response(self, login_id: str) -> LoginAccountResponse:
        """Name the address for the browser."""
        return ChatgptLoginAccountResponse(login_id=login_id, auth_url=self.url)

    async def run(self, keep: Keep) -> None:
        """Wait for the browser and sign in.

        Raises:
            LoginFailed: the user or the issuer refused, or MAX_WAIT_S went by.
            AccountError: what `keep` raised.
        """
        self._keep = keep
        try:
            with anyio.fail_after(MAX_WAIT_S):
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


async def _listen() -> LoopbackListener:
    for port in PORTS:
        for number in range(TRIES):
            try:
                return await LoopbackListener.open(port)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise LoginFailed(f"cannot listen on port {port}: {exc.strerror}") from exc
                if number == 0:
                    await _ask_for_port(port)
                await anyio.sleep(TRY_PAUSE_S)
    raise LoginFailed(f"Port 127.0.0.1:{PORTS[-1]} is already in use")


async def _ask_for_port(port: int) -> None:
    """Ask whoever listens there to give its sign-in up, as Codex does."""
    request = f"GET /cancel HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    try:
        with anyio.move_on_after(CANCEL_S):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(request.encode())
                await stream.receive()
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        # Whoever it is, it does not answer; the port may become free all the same.
        return
