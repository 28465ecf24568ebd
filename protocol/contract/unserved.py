"""What the reference answers and we do not, each with the reason.

A client that calls one gets -32601 and this reason. Everything else that is not in METHODS is
simply unknown.
Source: docs/wire.md, "Methods".
"""

from collections.abc import Mapping

UNSERVED: Mapping[str, str] = {
    "account/bedrock/discover": "Bedrock accounts are set up elsewhere",
    "account/bedrock/setup": "Bedrock accounts are set up elsewhere",
    "account/gatewayOAuth/cancel": "sign-in to model gateways is not offered",
    "account/gatewayOAuth/login": "sign-in to model gateways is not offered",
    "account/gatewayOAuth/read": "sign-in to model gateways is not offered",
    "account/gcp/setup": "Google Cloud accounts are set up elsewhere",
    "account/rateLimitResetCredit/consume": "credits are bought and spent on the provider's site",
    "account/securitySetup/read": "account security is managed on the provider's site",
    "account/sendAddCreditsNudgeEmail": "this server sends no mail",
    "account/workspaceMessages/read": "workspace messages are read on the provider's site",
    "accountSession/list": "one account at a time; sign out to change it",
    "accountSession/switch": "one account at a time; sign out to change it",
    "externalAgentConfig/import": "settings of other agents are not imported",
    "externalAgentConfig/import/recordHistory": "settings of other agents are not imported",
    "feedback/upload": "nothing is uploaded; feedback/save keeps a report on this machine",
    "memory/status": "there is no store of memories across threads",
    "mock/experimentalMethod": "a test double of the reference",
    "plugin/search": "plugin/list lists everything there is",
    "plugin/share/checkout": "plugins are not shared from here",
    "plugin/share/delete": "plugins are not shared from here",
    "plugin/share/list": "plugins are not shared from here",
    "plugin/share/save": "plugins are not shared from here",
    "plugin/share/updateTargets": "plugins are not shared from here",
    "plugin/skill/read": "plugins of hosted catalogs are not offered",
    "remoteControl/client/list": "this server listens on its own machine only",
    "remoteControl/client/revoke": "this server listens on its own machine only",
    "remoteControl/disable": "this server listens on its own machine only",
    "remoteControl/enable": "this server listens on its own machine only",
    "remoteControl/pairing/start": "this server listens on its own machine only",
    "remoteControl/pairing/status": "this server listens on its own machine only",
    "rollout/compress": "rollouts stay readable line by line",
    "thread/approveGuardianDeniedAction": "an approval is a message of the user's",
    "thread/guardianReview": "the reviewer is asked when a call needs approval, and only then",
    "thread/prediction/request": "follow-up inputs are not predicted",
    "thread/realtime/appendAudio": "there are no voice sessions",
    "thread/realtime/appendSpeech": "there are no voice sessions",
    "thread/realtime/appendText": "there are no voice sessions",
    "thread/realtime/start": "there are no voice sessions",
    "thread/sample": "sampling outside of turns is not offered",
    "thread/sample/cancel": "sampling outside of turns is not offered",
    "userVerification/cancel": "the platform's verification of users is not used",
    "userVerification/delete": "the platform's verification of users is not used",
    "userVerification/enroll": "the platform's verification of users is not used",
    "userVerification/verify": "the platform's verification of users is not used",
    "windowsSandbox/setupStart": "the Windows sandbox is not supported",
}
"""Method to reason; a reason is a clause without a full stop."""
