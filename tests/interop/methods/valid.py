"""Params that fit, for each method; what is not here takes no members."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is on one server when its methods are called."""

    workspace: Path
    thread_id: str
    """With one turn that is complete."""
    turn_id: str
    item_id: str
    other_thread_id: str
    """With one turn, too; it is deleted at the end."""
    project_id: str
    section_id: str


def valid_params(facts: Facts) -> dict[str, Any]:
    """Return the params by method."""
    here = str(facts.workspace)
    thread = {"threadId": facts.thread_id}
    text = [{"type": "text", "text": "Hello."}]
    data = base64.b64encode(b"data").decode()
    return {
        "account/login/cancel": {"loginId": "no-such-login"},
        "account/login/start": {"type": "apiKey", "apiKey": "key-for-a-test"},
        "app/read": {"appIds": ["no-such-app"]},
        "command/exec": {"command": ["true"], "cwd": here},
        "command/exec/resize": {"processId": "none", "size": {"rows": 2, "cols": 2}},
        "command/exec/terminate": {"processId": "none"},
        "command/exec/write": {"processId": "none", "deltaBase64": data},
        "config/batchWrite": {
            "edits": [{"keyPath": "model", "value": "a-model", "mergeStrategy": "replace"}]
        },
        "config/value/write": {"keyPath": "model", "value": "model", "mergeStrategy": "replace"},
        "environment/add": {"environmentId": "there", "execServerUrl": "ws://127.0.0.1:9"},
        "environment/info": {"environmentId": "nowhere"},
        "environment/status": {"environmentId": "nowhere"},
        "experimentalFeature/enablement/set": {"enablement": {"plugins": True}},
        "feedback/save": {"savePath": f"{here}/feedback.zip", "classification": "bug"},
        "fs/copy": {"sourcePath": f"{here}/a.txt", "destinationPath": f"{here}/copy.txt"},
        "fs/createDirectory": {"path": f"{here}/folder"},
        "fs/getMetadata": {"path": f"{here}/a.txt"},
        "fs/readDirectory": {"path": here},
        "fs/readFile": {"path": f"{here}/a.txt"},
        "fs/remove": {"path": f"{here}/folder"},
        "fs/unwatch": {"watchId": "watch"},
        "fs/watch": {"watchId": "watch", "path": here},
        "fs/writeFile": {"path": f"{here}/written.txt", "dataBase64": data},
        "fuzzyFileSearch": {"query": "a", "roots": [here]},
        "fuzzyFileSearch/sessionStart": {"sessionId": "search", "roots": [here]},
        "fuzzyFileSearch/sessionStop": {"sessionId": "search"},
        "fuzzyFileSearch/sessionUpdate": {"sessionId": "search", "query": "a"},
        "getConversationSummary": {"conversationId": facts.thread_id},
        "gitDiffToRemote": {"cwd": here},
        "marketplace/add": {"source": f"{here}/no-marketplace"},
        "marketplace/remove": {"marketplaceName": "none"},
        "mcpServer/event/stream/start": {
            **thread,
            "server": "none",
            "subscriptionId": "one",
            "name": "changes",
            "arguments": {},
        },
        "mcpServer/event/stream/stop": {"subscriptionId": "none"},
        "mcpServer/oauth/login": {"name": "none"},
        "mcpServer/resource/read": {"server": "none", "uri": "test://one"},
        "mcpServer/tool/call": {**thread, "server": "none", "tool": "none"},
        "modelProvider/config/write": {
            "settings": {
                "type": "customGateway",
                "name": "Mine",
                "baseUrl": "http://127.0.0.1:9/v1",
            }
        },
        "plugin/install": {"pluginName": "none", "marketplacePath": f"{here}/none.json"},
        "plugin/read": {"pluginName": "none", "marketplacePath": f"{here}/none.json"},
        "plugin/uninstall": {"pluginId": "none@nowhere"},
        "process/kill": {"processHandle": "none"},
        "process/resizePty": {"processHandle": "none", "size": {"rows": 2, "cols": 2}},
        "process/spawn": {"command": ["true"], "processHandle": "one", "cwd": here},
        "process/writeStdin": {"processHandle": "none", "deltaBase64": data},
        "project/create": {"name": "one", "roots": [{"path": here}], "idempotencyKey": "create"},
        "project/delete": {"projectId": facts.project_id},
        "project/import": {"name": "two", "roots": [{"path": here}], "idempotencyKey": "import"},
        "project/move": {"projectId": facts.project_id},
        "project/read": {"projectId": facts.project_id},
        "project/update": {"projectId": facts.project_id, "name": "three"},
        "review/start": {
            "threadId": facts.other_thread_id,
            "target": {"type": "custom", "instructions": "Look."},
        },
        "skills/config/write": {"enabled": True, "name": "none"},
        "skills/extraRoots/set": {"extraRoots": []},
        "thread/archive": {"threadId": facts.other_thread_id},
        "thread/attachment/add": {
            **thread,
            "attachmentType": "note",
            "identityKey": "one",
            "payload": {},
        },
        "thread/attachment/list": thread,
        "thread/attachment/remove": {**thread, "attachmentType": "note", "identityKey": "one"},
        "thread/attachmentOwner/list": {"attachmentType": "note", "identityKey": "one"},
        "thread/backgroundTerminals/clean": thread,
        "thread/backgroundTerminals/list": thread,
        "thread/backgroundTerminals/terminate": {**thread, "processId": "1000"},
        "thread/compact/start": thread,
        "thread/decrement_elicitation": thread,
        "thread/delete": {"threadId": facts.other_thread_id},
        "thread/fork": thread,
        "thread/goal/clear": thread,
        "thread/goal/get": thread,
        "thread/goal/set": {**thread, "objective": "Be done.", "status": "paused"},
        "thread/increment_elicitation": thread,
        "thread/inject_items": {
            **thread,
            "items": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Hello."}],
                }
            ],
        },
        "thread/items/list": thread,
        "thread/items/read": {**thread, "turnId": facts.turn_id, "itemIds": [facts.item_id]},
        "thread/memory/read": thread,
        "thread/memoryMode/set": {**thread, "mode": "disabled"},
        "thread/metadata/update": {**thread, "gitInfo": {"branch": "main"}},
        "thread/name/set": {**thread, "name": "A name"},
        "thread/prepareApprovedPlan": {**thread, "markdown": "# Plan"},
        "thread/queue/add": {**thread, "input": text, "clientUserMessageId": "message"},
        "thread/queue/delete": {**thread, "queuedSubmissionId": "none"},
        "thread/queue/list": thread,
        "thread/queue/reorder": {**thread, "queuedSubmissionIds": []},
        "thread/queue/start": thread,
        "thread/queue/update": {**thread, "queuedSubmissionId": "none", "input": text},
        "thread/read": thread,
        "thread/readState/update": {
            **thread,
            "operation": {"type": "unread"},
            "expectedRevision": "0",
        },
        "thread/resume": thread,
        "thread/realtime/stop": thread,
        "thread/revert": {**thread, "beforeTurnId": "none"},
        "thread/search": {"searchTerm": "Hello"},
        "thread/searchOccurrences": {**thread, "searchTerm": "Hello"},
        "thread/section/move": {**thread, "sectionId": None},
        "thread/settings/update": {**thread, "effort": "low"},
        "thread/shellCommand": {**thread, "command": "true"},
        "thread/start": {"cwd": here},
        "thread/timeline/list": thread,
        "thread/turns/list": thread,
        "thread/unarchive": {"threadId": facts.other_thread_id},
        "thread/unsubscribe": thread,
        "threadSection/create": {"name": "A section"},
        "threadSection/delete": {"sectionId": facts.section_id},
        "threadSection/update": {"sectionId": facts.section_id, "name": "Another"},
        "turn/interrupt": {**thread, "turnId": "none"},
        "turn/settings/update": {**thread, "turnId": "none"},
        "turn/start": {**thread, "input": text},
        "turn/steer": {**thread, "input": text, "expectedTurnId": "none"},
    }
