"""Signing in and out as a client of ACP asks for it.

Source: https://agentclientprotocol.com/protocol/v1/authentication; docs/acp.md, "Signing in".
"""

import asyncio
from contextlib import suppress

import anyio

from app_server.acp.conversation import AcpConversation
from app_server.acp.questions import ELICITATION_METHOD
from app_server.acp.requests import AuthenticateRequest
from app_server.rpc.in_process import AppClient
from protocol.jsonrpc.envelope import RequestId
from protocol.jsonrpc.errors import RpcError, invalid_member
from protocol.model import JsonObject

AUTH_REQUIRED = -32000

API_KEY: JsonObject = {
    "id": "api-key",
    "name": "API key",
    "description": "A key of OpenAI, in `_meta` of the request as `api-key.apiKey`.",
    "_meta": {"api-key": {"provider": "openai"}},
}
CHATGPT: JsonObject = {
    "id": "chatgpt",
    "name": "ChatGPT",
    "description": "Sign in to ChatGPT in a browser.",
}


class SignIn:
    """The account, for one client."""

    def __init__(self, conversation: AcpConversation, app: AppClient) -> None:
        self._conversation = conversation
        self._app = app
        self._completed: dict[str, asyncio.Future[JsonObject]] = {}
        """By their ids, of sign-ins that wait for the user."""

    def methods(self, *, shows_addresses: bool) -> list[JsonObject]:
        """Return the ways to sign in; one needs a client that shows the user an address."""
        return [API_KEY, CHATGPT] if shows_addresses else [API_KEY]

    async def sign_in(
        self, request_id: RequestId, request: AuthenticateRequest, *, shows_addresses: bool
    ) -> None:
        """Sign in by one of `methods`; cancelling gives it up.

        `request_id` is that of the client's request: what the user is shown belongs to it.

        Raises:
            RpcError: there is no such method, or it failed.
        """
        if request.method_id == API_KEY["id"]:
            given = (request.meta or {}).get("api-key")
            key = given.get("apiKey") if isinstance(given, dict) else None
            if not isinstance(key, str) or not key:
                raise invalid_member("_meta.api-key.apiKey", "is missing")
            await self._app.call("account/login/start", {"type": "apiKey", "apiKey": key})
        elif request.method_id == CHATGPT["id"] and shows_addresses:
            await self._in_browser(request_id)
        else:
            raise invalid_member("methodId", f"is no method of `initialize`: {request.method_id!r}")

    def login_completed(self, params: JsonObject) -> None:
        """Take the end of a sign-in, of this client or another."""
        completed = self._completed.get(params.get("loginId") or "")
        if completed is not None and not completed.done():
            completed.set_result(params)

    async def _in_browser(self, request_id: RequestId) -> None:
        completed: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        started = await self._app.call(
            "account/login/start",
            {"type": "chatgpt"},
            lambda answer: self._completed.__setitem__(answer["loginId"], completed),
        )
        login_id = started["loginId"]
        try:
            question = {
                "requestId": request_id,
                "mode": "url",
                "message": "Sign in to ChatGPT.",
                "url": started["authUrl"],
                "elicitationId": login_id,
            }
            shown = (await self._conversation.ask(ELICITATION_METHOD, question)).result
            if not isinstance(shown, dict) or shown.get("action") != "accept":
                raise RpcError(AUTH_REQUIRED, "The sign-in was given up", "signInGivenUp")
            ended = await completed
            self._conversation.notify("elicitation/complete", {"elicitationId": login_id})
            if not ended["success"]:
                raise RpcError(AUTH_REQUIRED, ended.get("error") or "The sign-in failed")
        finally:
            del self._completed[login_id]
            if not completed.done():
                with anyio.CancelScope(shield=True), suppress(RpcError):
                    await self._app.call("account/login/cancel", {"loginId": login_id})
