"""An issuer of ChatGPT accounts for tests: one real listener on loopback.

Every secret that it hands out contains MARK, so that a test can look for it in what leaves.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.http_peer import HttpRequest, answering
from tests.support.model import Gate

MARK = "mArKeD"

AUTH = "https://api.openai.com/auth"


def make_jwt(**claims: Any) -> str:
    """Make a JWT with these claims, signed by nobody."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.{MARK}"


def make_id_token(
    account: str = "acct-1", plan: str = "plus", user: str = "user-1", email: str = "a@example.com"
) -> str:
    """Make an ID token as the issuer does."""
    auth = {"chatgpt_account_id": account, "chatgpt_plan_type": plan, "chatgpt_user_id": user}
    return make_jwt(email=email, **{AUTH: auth})


@dataclass
class IssuerPeer:
    """What it does can be changed at any time."""

    url: str = ""
    account: str = "acct-1"
    plan: str = "plus"
    email: str = "a@example.com"
    given: int = 0
    access_claims: dict[str, Any] = field(default_factory=lambda: {"exp": 4_000_000_000})
    codes: dict[str, str | None] = field(default_factory=dict)
    """Code to the challenge that it was given for; None: none is checked."""
    refresh_tokens: set[str] = field(default_factory=set)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Path to what is answered there instead, as long as it stands here."""
    pending: int = 0
    """How often a device code is not entered yet."""
    gates: dict[str, Gate] = field(default_factory=dict)
    """Path to where its next request waits."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of every POST."""

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the issuer of this process."""
        monkeypatch.setenv("CODEX_APP_SERVER_LOGIN_ISSUER", self.url)

    def agree(self, auth_url: str) -> dict[str, str]:
        """Give a code, as if the user had agreed; returns the query for the callback."""
        query = dict(parse_qsl(urlsplit(auth_url).query))
        code = f"code-{MARK}-{len(self.codes)}"
        self.codes[code] = query["code_challenge"]
        return {"code": code, "state": query["state"]}

    def give(self) -> dict[str, str]:
        """Make tokens that hold."""
        self.given += 1
        refresh = f"refresh-{MARK}-{self.given}"
        self.refresh_tokens.add(refresh)
        return {
            "id_token": make_id_token(self.account, self.plan, email=self.email),
            "access_token": make_jwt(number=self.given, **self.access_claims),
            "refresh_token": refresh,
        }

    def posts(self, path: str) -> list[Any]:
        """Return the bodies of all POSTs to a path."""
        return [body for found, body in self.requests if found == path]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["IssuerPeer"]:
        """Listen while the context lasts."""
        async with answering(self._serve_one) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _serve_one(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        path, content = request.target, request.body
        is_json = request.headers["content-type"] == "application/json"
        body = json.loads(content) if is_json else dict(parse_qsl(content.decode()))
        self.requests.append((path, body))
        if (gate := self.gates.pop(path, None)) is not None:
            gate.reached.set()
            await gate.opened.wait()
        status, answer = self.answers.get(path) or self._answer(path, body)
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n"
            f"content-length: {len(text)}\r\n\r\n".encode()
            + text
        )
        return True

    def _answer(self, path: str, body: Any) -> tuple[int, Any]:
        match path:
            case "/oauth/token":
                return self._token(body)
            case "/oauth/revoke":
                self.refresh_tokens.discard(body["token"])
                return 200, {}
            case "/api/accounts/deviceauth/usercode":
                return 200, {
                    "device_auth_id": f"device-{MARK}",
                    "user_code": "ABCD-1234",
                    "interval": "5",
                }
            case "/api/accounts/deviceauth/token":
                if self.pending:
                    self.pending -= 1
                    return 403, {}
                self.codes[f"device-code-{MARK}"] = None
                return 200, {
                    "authorization_code": f"device-code-{MARK}",
                    "code_challenge": "unused",
                    "code_verifier": f"verifier-{MARK}",
                }
        return 404, {}

    def _token(self, form: Any) -> tuple[int, Any]:
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if self.codes.pop(form["code"], "") in (None, proof):
                return 200, self.give()
            return 400, {"error": "invalid_grant", "error_description": "bad code"}
        if form["refresh_token"] in self.refresh_tokens:
            # A refresh token works once.
            self.refresh_tokens.remove(form["refresh_token"])
            return 200, self.give()
        return 401, {"error": {"code": "refresh_token_reused", "message": MARK}}
