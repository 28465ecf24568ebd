"""Arguments that carry files: read where the turn's sandbox allows, uploaded, and replaced.

Fails closed: what cannot be read just as it was announced is not uploaded, and a call whose files
are not all uploaded is not made.
Source: docs/apps.md, "Files".
"""

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, Self, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from app_server.apps.files.upload import Content, UploadFailed, Uploads
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from protocol.model import Json, JsonObject

SENTENCE = "The absolute path of a local file, which will be uploaded."


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The bounds on the files of an argument (JSON Schema 2020-12, Validation, 6.4)."""

    min_items: int = 0
    max_items: int | None = None
    unique_items: bool = False

    @classmethod
    def of(cls, definition: JsonObject, name: str) -> Self:
        """Read the bounds of an argument of a tool; a value of another type is no bound."""
        part = _properties(definition).get(name)
        if not isinstance(part, dict) or not _is_array(part):
            return cls()
        unique = part.get("uniqueItems") is True
        return cls(_count(part, "minItems") or 0, _count(part, "maxItems"), unique)

    def shown(self) -> JsonObject:
        """Return the members of a schema that say so."""
        shown: JsonObject = {"minItems": self.min_items} if self.min_items else {}
        if self.max_items is not None:
            shown["maxItems"] = self.max_items
        if self.unique_items:
            shown["uniqueItems"] = True
        return shown


def with_paths(definition: JsonObject, file_params: Sequence[str]) -> JsonObject:
    """Return a tool whose file arguments are texts, or arrays of texts.

    Of what the schema said of them the description stays, with a sentence of ours behind it, and
    how many elements an array has.
    """
    schema, properties = definition.get("inputSchema"), _properties(definition)
    masked = {
        name: _path(properties[name], FileBounds.of(definition, name))
        for name in file_params
        if name in properties
    }
    if not isinstance(schema, dict) or not masked:
        return definition
    return {**definition, "inputSchema": {**schema, "properties": {**properties, **masked}}}


def _properties(definition: JsonObject) -> JsonObject:
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _count(part: JsonObject, key: str) -> int | None:
    value = part.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None


def _path(given: Json, bounds: FileBounds) -> JsonObject:
    part: JsonObject = given if isinstance(given, dict) else {}
    description = _described(part.get("description"))
    if not _is_array(part):
        return {"type": "string", "description": description}
    items: JsonObject = {"type": "array", "items": {"type": "string"}}
    return {**items, **bounds.shown(), "description": description}


def _is_array(part: JsonObject) -> bool:
    kind = part.get("type")
    return "items" in part or kind == "array" or (isinstance(kind, list) and "array" in kind)


def _described(description: Json) -> str:
    if not isinstance(description, str) or not description.strip():
        return SENTENCE
    return description if SENTENCE in description else f"{description} {SENTENCE}"


MAX_FILE_BYTES = 512 * 1024 * 1024
"""Of one file."""

MAX_FILES = 32
"""Of one call; they are on this disk, outside of its memory, until they are uploaded."""

MEMORY_BYTES = 1024 * 1024
"""Of a file that is kept in memory; a larger one goes to a temporary file without a name."""

MAX_SHOWN_CHARS = 300
"""Of a path in an error."""

_CHUNK_BYTES = 256 * 1024


def _folder_of(uri: Json) -> Json:
    if not isinstance(uri, str):
        raise ValueError("not a text")
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ValueError("not a file: URI of this machine")
    folder = url2pathname(parts.path)
    if not Path(folder).is_absolute():
        raise ValueError("not an absolute path")
    return folder


class SandboxState(BaseModel):
    """Environment of a turn and its readable paths, as the core describes them."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=False
    )

    environment_id: str = "local"
    environment_instance_id: str | None = None
    """The instance of the environment with this id; without it no file is read."""
    permission_profile: JsonObject
    codex_linux_sandbox_exe: str | None = None
    sandbox_cwd: Annotated[str, BeforeValidator(_folder_of)]
    """A path; on the wire a `file:` URI."""
    use_legacy_landlock: bool = False

    @classmethod
    def parse(cls, value: Json) -> "SandboxState":
        """Read it from `_meta`.

        Raises:
            PeerError: -32602, it makes no sense.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as exc:
            problem = exc.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "it"
            text = f"the sandbox state makes no sense: {where}: {problem['msg']}"
            raise PeerError(INVALID_PARAMS, text) from None


REPLACED = "the environment is not the one of this turn any more"


class FileRefused(Exception):
    """A file cannot be read; the text is the reason that the model is shown."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The type and the size of the file at a path."""

    is_file: bool
    """Whether it is a regular file."""
    size: int
    """In bytes."""


class PinnedFiles(Protocol):
    """The files of one instance of an environment, behind the sandbox of one turn.

    Every path is resolved inside of the sandbox, links and `..` included: what leads out of what
    the profile allows is refused there, in the opening itself.
    """

    async def metadata(self, path: str) -> FileMetadata:
        """Look at an absolute path.

        Raises:
            FileRefused: it is not there, or the sandbox does not let it be seen.
        """

    def read(self, path: str) -> AsyncGenerator[bytes, None]:
        """Read a file from its beginning, in chunks of at most 1 MiB; bytes, not text.

        Raises:
            FileRefused: while iterating; it cannot be read, or not to its end.
        """


class FilesPort(Protocol):
    """Access to the files of environments."""

    def pin(self, state: SandboxState) -> AbstractAsyncContextManager[PinnedFiles]:
        """Hold on to one instance while the context lasts, so that no other takes its place.

        Its `environment_instance_id` is set. An instance that has been replaced, but is leased,
        is as good as the current one.

        Raises:
            FileRefused: on entering; `environment_id` does not lead to exactly that instance.
        """


@dataclass(frozen=True, slots=True)
class FileSupport:
    """Both halves of an argument with a file: where it is read, and where it is uploaded to."""

    environments: FilesPort
    uploads: Uploads
    max_bytes: int = MAX_FILE_BYTES
    memory_bytes: int = MEMORY_BYTES
    """A larger file is kept on disk until it is uploaded."""


@dataclass(frozen=True, slots=True)
class _FileArgument:
    """One path in the arguments of a call."""

    field: str
    index: int | None
    path: str

    def failed(self, reason: object, code: int = INVALID_PARAMS) -> PeerError:
        where = self.field if self.index is None else f"{self.field}[{self.index}]"
        path = self.path[:MAX_SHOWN_CHARS]
        return PeerError(code, f"upload of `{path}` for `{where}` failed: {reason}")


_Field: TypeAlias = tuple[str, Sequence[_FileArgument]]


async def upload_arguments(
    support: FileSupport,
    arguments: JsonObject,
    file_params: Mapping[str, FileBounds],
    state: SandboxState | None,
    check: Callable[[], None],
) -> JsonObject:
    """Return the arguments with uploads in place of paths; the same object without any.

    Takes one field after the other; all files of a field are read before the first of them is
    uploaded. `check` is called before each field and each upload. Reading has no time limit of its
    own: that of the call ends it. Cancelling stops before the next step; what was uploaded stays.

    Raises:
        PeerError: -32602, an argument has too many or too few files, or one that cannot be read as
            it should; -32603, it cannot be uploaded.
    """
    fields = list(_fields(arguments, file_params))
    named = [argument for _, named in fields for argument in named]
    if not named:
        return arguments
    if len(named) > MAX_FILES:
        raise named[MAX_FILES].failed(f"a call has at most {MAX_FILES} files")
    if state is None:
        raise named[0].failed("the environment of the turn is not known")
    if state.environment_instance_id is None:
        raise named[0].failed("the instance of the environment is not known")
    async with _pinned(support.environments, state, named[0]) as files:
        uploaded = dict(arguments)
        for field, of_field in fields:
            check()
            values = await _upload_field(support, files, state, of_field, check)
            uploaded[field] = values if isinstance(arguments[field], list) else values[0]
    return uploaded


def _fields(arguments: JsonObject, file_params: Mapping[str, FileBounds]) -> Iterator[_Field]:
    for field, bounds in file_params.items():
        value = arguments.get(field)
        if isinstance(value, str):
            _check_bounds(field, [value], bounds)
            yield field, [_FileArgument(field, None, value)]
        elif isinstance(value, list):
            paths = [_path_at(field, index, element) for index, element in enumerate(value)]
            _check_bounds(field, paths, bounds)
            if paths:
                yield field, [_FileArgument(field, index, path) for index, path in enumerate(paths)]


def _path_at(field: str, index: int, element: Json) -> str:
    if not isinstance(element, str):
        raise PeerError(INVALID_PARAMS, f"`{field}[{index}]` must be the path of a file")
    return element


def _check_bounds(field: str, paths: Sequence[str], bounds: FileBounds) -> None:
    if len(paths) < bounds.min_items:
        raise _bad_number(field, f"at least {bounds.min_items}", len(paths))
    if bounds.max_items is not None and len(paths) > bounds.max_items:
        raise _bad_number(field, f"at most {bounds.max_items}", len(paths))
    if bounds.unique_items:
        seen: dict[str, int] = {}
        for index, path in enumerate(paths):
            if (first := seen.setdefault(os.path.normpath(path), index)) != index:
                text = f"`{field}[{index}]` is the same file as `{field}[{first}]`"
                raise PeerError(INVALID_PARAMS, text)


def _bad_number(field: str, rule: str, count: int) -> PeerError:
    return PeerError(INVALID_PARAMS, f"`{field}` must have {rule} files, got {count}")


@asynccontextmanager
async def _pinned(
    environments: FilesPort, state: SandboxState, first: _FileArgument
) -> AsyncIterator[PinnedFiles]:
    async with AsyncExitStack() as stack:
        try:
            files = await stack.enter_async_context(environments.pin(state))
        except FileRefused as exc:
            raise first.failed(exc) from exc
        yield files


async def _upload_field(
    support: FileSupport,
    files: PinnedFiles,
    state: SandboxState,
    named: Sequence[_FileArgument],
    check: Callable[[], None],
) -> list[JsonObject]:
    async with AsyncExitStack() as stack:
        contents = []
        for argument in named:
            if "\0" in argument.path:
                raise argument.failed("it is not a path")
            path = str(Path(state.sandbox_cwd) / argument.path)
            try:
                content = await stack.enter_async_context(_content(files, path, support))
            except FileRefused as exc:
                raise argument.failed(exc) from exc
            contents.append(content)
        values = []
        for argument, content in zip(named, contents, strict=True):
            check()
            try:
                values.append(await support.uploads.upload(content))
            except UploadFailed as exc:
                raise argument.failed(exc, INTERNAL_ERROR) from exc
        return values


@asynccontextmanager
async def _content(files: PinnedFiles, path: str, support: FileSupport) -> AsyncIterator[Content]:
    """Read a whole file, and compare it with its metadata."""
    metadata = await files.metadata(path)
    if not metadata.is_file:
        raise FileRefused("it is not a regular file")
    if metadata.size > support.max_bytes:
        raise FileRefused(f"it is larger than {support.max_bytes} bytes")
    async with anyio.SpooledTemporaryFile(max_size=support.memory_bytes) as kept:
        size = 0
        async with aclosing(files.read(path)) as chunks_read:
            async for chunk in chunks_read:
                size += len(chunk)
                if size > metadata.size:
                    raise FileRefused("it has more bytes than it had before")
                await kept.write(chunk)
        if size < metadata.size:
            raise FileRefused("it has fewer bytes than it had before")

        async def chunks() -> AsyncIterator[bytes]:
            await kept.seek(0)
            while chunk := await kept.read(_CHUNK_BYTES):
                yield chunk

        yield Content(Path(path).name, size, chunks)
