"""How the user or the reviewer is asked whether a command may connect to a host. No I/O.

Source: docs/tools.md, "Network through a proxy".
"""

from app_server.permissions.network.target import Target
from app_server.turns.approval.asking import Asker, Question
from app_server.turns.approval.command_question import METHOD
from protocol.log.rollout import LOCAL
from protocol.turns.approvals import (
    ApplyNetworkPolicyAmendmentDecision,
    CommandExecutionRequestApprovalParams,
    NetworkApprovalContext,
    NetworkPolicyAmendmentChoice,
)
from protocol.turns.auto_review import NetworkAccessGuardianApprovalReviewAction
from protocol.turns.policy import NetworkPolicyAmendment


def network_question(asker: Asker, turn_id: str, target: Target) -> Question:
    """Put the question; it is about no item of the thread, so it has an id of its own."""
    words = ("network", LOCAL, target.protocol, target.host, str(target.port), asker.clock.new_id())
    item_id = "#".join(words)
    allow = NetworkPolicyAmendment(host=target.host, action="allow")
    deny = NetworkPolicyAmendment(host=target.host, action="deny")
    always = ApplyNetworkPolicyAmendmentDecision(
        apply_network_policy_amendment=NetworkPolicyAmendmentChoice(network_policy_amendment=allow)
    )
    reason = f"Network access to {target.host} requires approval"
    params = CommandExecutionRequestApprovalParams(
        thread_id=asker.thread.id,
        turn_id=turn_id,
        item_id=item_id,
        started_at_ms=asker.clock.now_ms(),
        environment_id=LOCAL,
        reason=reason,
        network_approval_context=NetworkApprovalContext(host=target.host, protocol=target.protocol),
        proposed_network_policy_amendments=[allow, deny],
        available_decisions=["accept", "acceptForSession", always, "cancel"],
    )
    return Question(
        action="network",
        turn_id=turn_id,
        item_id=item_id,
        subject=target.shown(),
        method=METHOD,
        params=params,
        reviewed=NetworkAccessGuardianApprovalReviewAction(
            target=target.shown(), host=target.host, protocol=target.protocol, port=target.port
        ),
        tool_name="Bash",
        tool_input={"command": f"network-access {target.shown()}", "description": reason},
        evidence={
            "kind": "network",
            "target": target.shown(),
            "why_asked": "neither settings nor rules say anything of the host",
        },
    )
