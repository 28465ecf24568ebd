"""A look at an image file, for models that take images.

Source: docs/tools.md, "Images".
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread

from app_server.permissions.confinement import Confinement, Ruling
from app_server.permissions.resolving import resolved
from app_server.runtime.reaching import NotReached, open_file
from app_server.tools.environments import environment_of
from app_server.turns.model.catalogue.features import ModelFeatures
from app_server.turns.model.prompt.images import MAX_IMAGE_BYTES, BadImage, image_url
from app_server.turns.tools.call import BadCall, RequestedCall, ToolArguments
from app_server.turns.tools.declaration import function_declaration
from app_server.turns.tools.turn import TurnContext
from protocol.items import ImageViewThreadItem
from protocol.model import Json, JsonObject
from protocol.rollout import LOCAL

NAME = "view_image"

NO_IMAGES = "view_image is not available: this model takes no images"
NO_ENVIRONMENT = "view_image is not available: this thread has no environment"

_DECLARATION = function_declaration(
    NAME,
    "Shows you an image that is a file (PNG, JPEG, GIF or WebP, at most "
    f"{MAX_IMAGE_BYTES // 1024 // 1024} MiB).",
    {"path": {"type": "string", "description": "The file; begins at the working folder."}},
    required=["path"],
)


class _View(ToolArguments):
    path: str


class ViewImage:
    """Shows the model what it asks to see, where the turn may read."""

    def __init__(self, turn: TurnContext, confinement: Callable[[], Confinement]) -> None:
        """`confinement` is what confines the turn now, links in it not followed."""
        self._turn = turn
        self._confinement = confinement

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function to a model that takes images, in a thread with files."""
        is_offered = model.images and not self._turn.settings.without_environment
        return [_DECLARATION] if is_offered else []

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is the function."""
        return call.is_function(NAME)

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return True: it only reads."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """Read the file and return it as a content item.

        Raises:
            BadCall: it may not be read, is not there, or is no image.
        """
        turn = self._turn
        if not turn.features().images:
            raise BadCall(NO_IMAGES)
        if not turn.settings.working_folders:
            raise BadCall(NO_ENVIRONMENT)
        if (where := environment_of(turn.settings, None)) != LOCAL:
            raise BadCall(f"cannot view files of environment `{where}`")
        path = str(Path(turn.settings.cwd) / call.read(_View).path)
        try:
            url = await anyio.to_thread.run_sync(_read, path, self._confinement())
        except (NotReached, BadImage) as exc:
            raise BadCall(f"cannot view the image {path}: {exc}") from exc
        item = ImageViewThreadItem(id=call.call_id, path=path)
        turn.recorder.started(item)
        await turn.recorder.completed(item)
        return [{"type": "input_image", "image_url": url}]


def _read(path: str, confinement: Confinement) -> str:
    ruling = Ruling(resolved(confinement))
    try:
        with open_file(path, lambda real: ruling.access(real) != "none") as file:
            content = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as exc:
        raise NotReached(exc.strerror or "it cannot be read") from None
    return image_url(content)
