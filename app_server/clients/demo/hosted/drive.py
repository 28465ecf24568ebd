"""A drive: a file goes into it. The file itself is uploaded to the file store before."""

from dataclasses import replace

from app_server.clients.demo.hosted.files import FileStore
from app_server.clients.demo.hosted.tool import (
    WRITES,
    Call,
    HostedConnector,
    JsonObject,
    text_result,
)

_DRIVE = HostedConnector("demo_drive", "Drive", "Keeps files for as long as the demo runs.")


def drive(files: FileStore) -> HostedConnector:
    """Return the app with its tool, which knows the files of a store."""

    async def run(call: Call) -> JsonObject:
        given = call.arguments.get("file")
        stored = files.find(given.get("file_id")) if isinstance(given, dict) else None
        if stored is None or stored.sha256 is None:
            return text_result("There is no such file.", error=True)
        found: JsonObject = {"name": stored.name, "bytes": stored.size, "sha256": stored.sha256}
        return text_result(f"{stored.name} is in the drive, {stored.size} bytes.", {"file": found})

    save = _DRIVE.tool(
        "save_file",
        "Save a file in the drive.",
        {"file": {"type": "object", "description": "The file to save."}},
        WRITES,
        run,
        meta={"openai/fileParams": ["file"]},
    )
    return replace(_DRIVE, tools=(save,))
