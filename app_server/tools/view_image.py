"""A look at an image file, for models that take images.

Source: docs/tools.md, "Images".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import anyio.to_thread

from app_server.models.catalogue.models import ModelFeatures
from app_server.models.prompt.images import MAX_IMAGE_BYTES, BadImage, image_url
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling, resolved
from app_server.permissions.sandbox.roots import RootChanged
from app_server.runtime.files.reaching import NotReached, open_file
from app_server.tools.environments import (
    FoundEnvironment,
    NoEnvironment,
    TurnEnvironments,
    environment_member,
    read_elsewhere,
)
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    text,
)
from protocol.model import Json, JsonObject
from protocol.turns.items import ImageViewThreadItem

NAME = "view_image"

NO_IMAGES = "view_image is not available: this model takes no images"

_DESCRIPTION = (
    "Shows you an image that is a file (PNG, JPEG, GIF or WebP, at most "
    f"{MAX_IMAGE_BYTES // 1024 // 1024} MiB)."
)
_PATH = text("The file; begins at the working folder.")
_DECLARATION = function_declaration(NAME, _DESCRIPTION, {"path": _PATH})


class _View(ToolArguments):
    path: str
    environment_id: str | None = None


@dataclass(frozen=True, slots=True)
class ViewImage(TurnTool):
    """Shows the model what it asks to see, where the turn may read."""

    functions = (NAME,)

    context: ThreadContext
    turn: RunningTurn
    environments: TurnEnvironments

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function to a model that takes images, in a thread with files."""
        if not model.images or not self.turn.settings.working_folders:
            return []
        names = self.environments.names
        if not names:
            return [_DECLARATION]
        members = {"path": _PATH, "environment_id": environment_member(names)}
        return [function_declaration(NAME, _DESCRIPTION, members, required=["path"])]

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return True: it only reads."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """Read the file and return it as a content item.

        Raises:
            BadCall: it may not be read, is not there, or is no image.
        """
        turn, arguments = self.turn, call.read(_View)
        if not self.context.model.in_force().features.images:
            raise BadCall(NO_IMAGES)
        try:
            found = await self.environments.find(arguments.environment_id)
        except NoEnvironment as exc:
            raise BadCall(f"cannot view the image {arguments.path}: {exc}") from exc
        path = str(PurePosixPath(found.folder.cwd, arguments.path))
        try:
            content = await self._content(found, path)
            url = await anyio.to_thread.run_sync(image_url, content)
        except (NotReached, BadImage) as exc:
            raise BadCall(f"cannot view the image {path}: {exc}") from exc
        item = ImageViewThreadItem(id=call.call_id, path=path)
        turn.recorder.started(item)
        await turn.recorder.completed(item)
        return [{"type": "input_image", "image_url": url}]

    async def _content(self, found: FoundEnvironment, path: str) -> bytes:
        """Read a file, and a byte more than an image has at most.

        Raises:
            NotReached: it cannot be read.
        """
        if found.is_here:
            sandbox_policy = self.environments.sandbox_policy(found.folder)
            return await anyio.to_thread.run_sync(_read, path, sandbox_policy)
        try:
            return await read_elsewhere(self.environments, found, path, MAX_IMAGE_BYTES + 1)
        except OSError as exc:
            raise NotReached(exc.strerror or str(exc)) from exc


def _read(path: str, sandbox_policy: EffectivePolicy) -> bytes:
    try:
        ruling = Ruling(resolved(sandbox_policy))
        with open_file(path, lambda real: ruling.access(real) != "none") as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except RootChanged as exc:
        raise NotReached(str(exc)) from None
    except OSError as exc:
        raise NotReached(exc.strerror or "it cannot be read") from None
