"""Requests of ACP clients: their parameters, and what the app-server is asked for them. No I/O.

Source: https://agentclientprotocol.com/protocol/v1/schema; docs/acp.md, "Methods".
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from app_server.rpc.dispatch import first_problem
from protocol.jsonrpc.errors import invalid_member
from protocol.model import Json, JsonObject, NonEmptyStr, WireModel

MAX_MCP_SERVERS = 64
"""Of one session."""
MAX_PROMPT_BLOCKS = 1024
"""Of one prompt."""
MAX_DIRECTORIES = 64
"""Of one session, besides its folder."""

Request = TypeVar("Request", bound=WireModel)


class Implementation(WireModel):
    """Who is calling."""

    name: str = "acp-client"
    title: str | None = None
    version: str = ""


class InitializeRequest(WireModel):
    """The first request of a connection."""

    protocol_version: int
    client_capabilities: JsonObject | None = None
    client_info: Implementation | None = None


class AuthenticateRequest(WireModel):
    """Sign in, by a method that `initialize` has named."""

    method_id: str
    meta: JsonObject | None = Field(default=None, alias="_meta")


class NamedValue(WireModel):
    """A variable of the environment, or a header."""

    name: str
    value: str


class McpServer(WireModel):
    """A server of the editor, to be used in one session."""

    type: Literal["stdio", "http"] = "stdio"
    name: NonEmptyStr
    command: str | None = None
    args: list[str] = []
    env: list[NamedValue] = []
    url: str | None = None
    headers: list[NamedValue] = []


class SessionPlace(WireModel):
    """Where a session works, and with which servers."""

    cwd: str
    additional_directories: list[str] | None = Field(default=None, max_length=MAX_DIRECTORIES)
    mcp_servers: list[McpServer] = Field(default=[], max_length=MAX_MCP_SERVERS)

    def check(self) -> None:
        """Look at what is no matter of types.

        Raises:
            RpcError: a path is not absolute, or a server is named twice or lacks its address.
        """
        _check_absolute("cwd", self.cwd)
        for number, folder in enumerate(self.additional_directories or ()):
            _check_absolute(f"additionalDirectories.{number}", folder)
        names: set[str] = set()
        for number, server in enumerate(self.mcp_servers):
            needed = "command" if server.type == "stdio" else "url"
            if getattr(server, needed) is None:
                raise invalid_member(f"mcpServers.{number}.{needed}", "is missing")
            name = server_name(server)
            if name in names:
                raise invalid_member(f"mcpServers.{number}.name", f"is a second {name!r}")
            names.add(name)

    @property
    def roots(self) -> Sequence[str]:
        """Folders that the session may write to in a mode that lets it write to its folder."""
        return [self.cwd, *(self.additional_directories or ())]

    @property
    def server_settings(self) -> dict[str, JsonObject]:
        """Tables of `[mcp_servers.NAME]`, by name."""
        return {server_name(server): _server_table(server) for server in self.mcp_servers}


class NewSessionRequest(SessionPlace):
    """Begin a session."""


class StoredSessionRequest(SessionPlace):
    """Come back to a session, or copy it into a new one."""

    session_id: str


class ListSessionsRequest(WireModel):
    """Page through sessions."""

    cwd: str | None = None
    cursor: str | None = None


class SessionRequest(WireModel):
    """What is about one session and has nothing else to say."""

    session_id: str


class SetModeRequest(SessionRequest):
    """Choose a mode."""

    mode_id: str


class SetConfigOptionRequest(SessionRequest):
    """Choose a value of an option."""

    config_id: str
    value: str


class TextBlock(WireModel):
    """Text of the user."""

    type: Literal["text"]
    text: str


class ImageBlock(WireModel):
    """An image in the prompt."""

    type: Literal["image"]
    data: str
    mime_type: str
    uri: str | None = None


class ResourceLinkBlock(WireModel):
    """A file, or something else, that the user mentions."""

    type: Literal["resource_link"]
    name: str
    uri: str


class EmbeddedResource(WireModel):
    """A resource with its content."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class ResourceBlock(WireModel):
    """A file, or something else, that the user mentions, as it is in the editor."""

    type: Literal["resource"]
    resource: EmbeddedResource


ContentBlock: TypeAlias = Annotated[
    TextBlock | ImageBlock | ResourceLinkBlock | ResourceBlock, Field(discriminator="type")
]


class PromptRequest(SessionRequest):
    """Give the session something to do."""

    prompt: list[ContentBlock] = Field(min_length=1, max_length=MAX_PROMPT_BLOCKS)


def read(kind: type[Request], params: Json) -> Request:
    """Read the parameters of a request.

    Raises:
        RpcError: they do not fit; the text names the field and the rule.
    """
    value = {} if params is None else params
    try:
        request = kind.model_validate(value)
    except ValidationError as exc:
        raise first_problem(exc, value) from None
    if isinstance(request, SessionPlace):
        request.check()
    return request


def user_input(prompt: Sequence[ContentBlock]) -> list[JsonObject]:
    """Return a prompt as the input of a turn; texts and mentions in a row are one text.

    What is embedded stands behind the text, each under the address that the text mentions.
    """
    parts: list[JsonObject] = []
    text: list[str] = []
    context: list[str] = []

    def end_text() -> None:
        if text:
            parts.append({"type": "text", "text": "".join(text)})
            text.clear()

    for block in prompt:
        match block:
            case TextBlock():
                text.append(block.text)
            case ImageBlock():
                end_text()
                url = f"data:{block.mime_type};base64,{block.data}"
                parts.append({"type": "image", "url": url if block.data else block.uri or url})
            case ResourceLinkBlock():
                text.append(_mention(block.name, block.uri))
            case ResourceBlock(resource=resource):
                text.append(_mention(PurePath(resource.uri).name or resource.uri, resource.uri))
                if resource.text is not None:
                    context.append(f'\n<context ref="{resource.uri}">\n{resource.text}\n</context>')
                elif resource.blob is not None and (resource.mime_type or "").startswith("image/"):
                    end_text()
                    url = f"data:{resource.mime_type};base64,{resource.blob}"
                    parts.append({"type": "image", "url": url})
    text += context
    end_text()
    return parts


def command_of(prompt: Sequence[ContentBlock]) -> tuple[str, str] | None:
    """Return name and words of the command that a prompt begins with; None for other prompts."""
    first = prompt[0]
    if not isinstance(first, TextBlock):
        return None
    found = re.match(r"/([a-z-]+)(?:\s+|$)", first.text)
    if found is None:
        return None
    return found[1], "".join(_words(first.text[found.end() :], prompt[1:])).strip()


def _words(rest: str, blocks: Sequence[ContentBlock]) -> Iterator[str]:
    yield rest
    for block in blocks:
        if isinstance(block, TextBlock):
            yield block.text
        elif isinstance(block, ResourceLinkBlock):
            yield _mention(block.name, block.uri)


def server_name(server: McpServer) -> str:
    """Return the name of a server as it can stand in config.toml: a tool has it in its own."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", server.name)


def _server_table(server: McpServer) -> JsonObject:
    if server.type == "http":
        headers = {header.name: header.value for header in server.headers}
        return {"url": server.url, **({"http_headers": headers} if headers else {})}
    env = {variable.name: variable.value for variable in server.env}
    return {
        "command": server.command,
        "args": server.args,
        **({"env": env} if env else {}),
    }


def _mention(name: str, uri: str) -> str:
    return f"[@{name}]({uri})"


def _check_absolute(field: str, path: str) -> None:
    if not PurePath(path).is_absolute():
        raise invalid_member(field, "must be an absolute path")
