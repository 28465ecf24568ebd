"""One request of every method that changes something."""

import base64
from typing import Any

from tests.support.again.scene import Scene, text


def requests(scene: Scene) -> dict[str, Any]:
    """Return params by method."""
    here = str(scene.workspace)
    idle = {"threadId": scene.idle}
    queueing = {"threadId": scene.queueing}
    first, second = scene.queued
    data = base64.b64encode(b"data").decode()
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    signal = {"source": "tests", "id": "s1", "type": "Note", "sender": "ann", "summary": "Hi"}
    return {
        "account/login/cancel": {"loginId": "none"},
        "account/login/start": {"type": "apiKey", "apiKey": "key-for-a-test"},
        "account/logout": None,
        "command/exec": {"command": ["sh", "-c", "echo x >> ran"], "cwd": here, **UNCONFINED},
        "command/exec/resize": {"processId": "none", "size": {"rows": 2, "cols": 2}},
        "command/exec/terminate": {"processId": "none"},
        "command/exec/write": {"processId": "none", "deltaBase64": data},
        "config/batchWrite": {
            "edits": [{"keyPath": "model", "value": "other", "mergeStrategy": "replace"}]
        },
        "config/mcpServer/reload": None,
        "config/value/write": {"keyPath": "model", "value": "other", "mergeStrategy": "replace"},
        "environment/add": {"environmentId": "there", "execServerUrl": "ws://127.0.0.1:9"},
        "experimentalFeature/enablement/set": {"enablement": {"plugins": True}},
        "feedback/save": {"savePath": f"{here}/feedback.zip", "classification": "bug"},
        "fs/copy": {"sourcePath": f"{here}/a.txt", "destinationPath": f"{here}/copy.txt"},
        "fs/createDirectory": {"path": f"{here}/new", "recursive": False},
        "fs/remove": {"path": f"{here}/folder", "force": False},
        "fs/writeFile": {"path": f"{here}/written.txt", "dataBase64": data},
        "marketplace/add": {"source": f"{here}/market"},
        "marketplace/remove": {"marketplaceName": "known"},
        "marketplace/upgrade": {},
        "mcpServer/oauth/login": {"name": "none"},
        "mcpServer/restart": {**idle, "name": "none"},
        "mcpServer/set": {"name": "one", "server": {"command": "true", "enabled": False}},
        "mcpServer/tool/call": {**idle, "server": "none", "tool": "none"},
        "memory/reset": None,
        "modelProvider/config/write": {
            "settings": {
                "type": "customGateway",
                "name": "Mine",
                "baseUrl": "http://127.0.0.1:9/v1",
            }
        },
        "plugin/install": {
            "pluginName": "plug",
            "marketplacePath": f"{here}/market/.agents/plugins/marketplace.json",
        },
        "plugin/reconcile": {},
        "plugin/uninstall": {"pluginId": "plug@known"},
        "process/kill": {"processHandle": "none"},
        "process/resizePty": {"processHandle": "none", "size": {"rows": 2, "cols": 2}},
        "process/spawn": {
            "command": ["sh", "-c", "echo x >> ran"],
            "processHandle": "one",
            "cwd": here,
        },
        "process/writeStdin": {"processHandle": "none", "deltaBase64": data},
        "project/create": {"name": "one", "roots": [{"path": here}], "idempotencyKey": "create"},
        "project/delete": {"projectId": scene.project_id},
        "project/import": {
            "name": "two",
            "roots": [{"path": here}],
            "idempotencyKey": "import",
            "threads": [scene.idle],
        },
        "project/move": {"projectId": scene.project_id},
        "project/update": {"projectId": scene.project_id, "name": "three"},
        "review/start": {**idle, "target": {"type": "custom", "instructions": "Look."}},
        "signal/deliver": {"signal": signal, "target": idle, "mode": "passive"},
        "signal/recall": {"source": "tests", "id": "old"},
        "skills/config/write": {"enabled": False, "name": "none"},
        "skills/extraRoots/set": {"extraRoots": []},
        "thread/archive": idle,
        "thread/attachment/add": {
            **idle,
            "attachmentType": "note",
            "identityKey": "new",
            "payload": {},
        },
        "thread/attachment/remove": {**idle, "attachmentType": "note", "identityKey": "old"},
        "thread/backgroundTerminals/clean": idle,
        "thread/backgroundTerminals/terminate": {**idle, "processId": "1000"},
        "thread/budget/set": {**idle, "budget": {"tokens": 1_000_000}},
        "thread/compact/start": idle,
        "thread/decrement_elicitation": idle,
        "thread/delete": idle,
        "thread/fork": idle,
        "thread/goal/clear": idle,
        "thread/goal/set": {**idle, "objective": "More.", "status": "paused"},
        "thread/increment_elicitation": idle,
        "thread/inject_items": {**idle, "items": [item]},
        "thread/memoryMode/set": {**idle, "mode": "disabled"},
        "thread/metadata/update": {**idle, "gitInfo": {"branch": "main"}},
        "thread/name/set": {**idle, "name": "A name"},
        "thread/prepareApprovedPlan": {**idle, "markdown": "# Plan"},
        "thread/queue/add": {**queueing, "input": text("third"), "clientUserMessageId": ""},
        "thread/queue/delete": {**queueing, "queuedSubmissionId": first},
        "thread/queue/reorder": {**queueing, "queuedSubmissionIds": [second, first]},
        "thread/queue/start": {**queueing, "queuedSubmissionId": first},
        "thread/queue/update": {**queueing, "queuedSubmissionId": first, "input": text("new")},
        "thread/readState/update": {
            **idle,
            "operation": {"type": "unread"},
            "expectedRevision": scene.revision,
        },
        "thread/realtime/stop": idle,
        "thread/revert": {**idle, "beforeTurnId": scene.turn_id},
        "thread/section/move": {**idle, "sectionId": scene.section_id},
        "thread/settings/update": {**idle, "effort": "low"},
        "thread/shellCommand": {**idle, "command": "true"},
        "thread/start": {"cwd": here},
        "thread/unarchive": {"threadId": scene.archived},
        "thread/wake/cancel": {**idle, "wakeId": scene.wake_id},
        "thread/wake/set": {**idle, "source": {"type": "timer", "everySecs": 3600}},
        "threadSection/create": {"name": "A section"},
        "threadSection/delete": {"sectionId": scene.section_id},
        "threadSection/update": {"sectionId": scene.section_id, "name": "Another"},
        "turn/interrupt": {"threadId": scene.busy, "turnId": scene.busy_turn},
        "turn/settings/update": {
            "threadId": scene.busy,
            "turnId": scene.busy_turn,
            "effort": "low",
        },
        "turn/start": {**idle, "input": text("go")},
        "turn/steer": {
            "threadId": scene.busy,
            "input": text("left"),
            "expectedTurnId": scene.busy_turn,
        },
    }


UNCONFINED = {"sandboxPolicy": {"type": "dangerFullAccess"}}


def named(params: Any, operation_id: Any = "op") -> dict[str, Any]:
    """Give a request a name."""
    return {**(params or {}), "_meta": {"operationId": operation_id}}
