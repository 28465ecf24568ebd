"""The areas about what is stored of threads besides what was said in them; imported when called."""

from app_server.handlers.late import LateHandlers
from app_server.handlers.threads.threads import ThreadPorts
from app_server.rpc.context import Handler

AREAS = (
    (
        "thread_metadata",
        "ThreadMetadataHandlers",
        (
            "thread/metadata/update",
            "thread/memoryMode/set",
            "thread/memory/read",
            "thread/readState/update",
        ),
    ),
    (
        "sections",
        "SectionHandlers",
        (
            "threadSection/create",
            "threadSection/delete",
            "threadSection/list",
            "threadSection/update",
            "thread/section/move",
        ),
    ),
    (
        "projects",
        "ProjectHandlers",
        (
            "project/create",
            "project/delete",
            "project/import",
            "project/list",
            "project/move",
            "project/read",
            "project/update",
        ),
    ),
    (
        "goals",
        "GoalHandlers",
        ("thread/goal/clear", "thread/goal/get", "thread/goal/set"),
    ),
    (
        "thread_settings",
        "ThreadSettingsHandlers",
        ("thread/settings/update", "turn/settings/update"),
    ),
    (
        "attachments",
        "AttachmentHandlers",
        (
            "thread/attachment/add",
            "thread/attachment/list",
            "thread/attachment/remove",
            "thread/attachmentOwner/list",
        ),
    ),
)


def late_metadata_routes(ports: ThreadPorts) -> dict[str, Handler]:
    """Make the areas; method to handler."""
    routes: dict[str, Handler] = {}
    for module, name, methods in AREAS:
        area = LateHandlers(f"app_server.handlers.{module}", name, methods, ports)
        routes.update(area.routes)
    return routes
