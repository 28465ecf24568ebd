"""The areas about what is stored of threads besides what was said in them; imported when called."""

from app_server.handlers.late import LateHandlers
from app_server.handlers.threads.threads import ThreadPorts
from app_server.rpc.context import Handler

AREAS = (
    (
        "threads.metadata",
        "ThreadMetadataHandlers",
        (
            "thread/metadata/update",
            "thread/memoryMode/set",
            "thread/memory/read",
            "thread/readState/update",
        ),
    ),
    (
        "organization.sections",
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
        "organization.projects",
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
        "turns.goals",
        "GoalHandlers",
        ("thread/goal/clear", "thread/goal/get", "thread/goal/set"),
    ),
    (
        "threads.settings",
        "ThreadSettingsHandlers",
        ("thread/settings/update", "turn/settings/update"),
    ),
    (
        "organization.attachments",
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
