// May a command run?

import { h } from "/js/core/dom.js";
import { decisionButtons, WORDS } from "/js/requests/decisions.js";
import { jsonTree } from "/js/widgets/json_tree.js";

const USUAL = ["accept", "acceptForSession", "decline", "cancel"];

export function commandQuestion({ params }, { answer }) {
  const decisions = params.availableDecisions ?? USUAL;
  const network = params.networkApprovalContext;
  return {
    title: network ? `Connect to ${network.host}?` : "Run this command?",
    content: [
      params.command && h("pre", { tabindex: 0 }, params.command),
      h(
        "dl.facts",
        null,
        fact("Reason", params.reason),
        fact("Folder", params.cwd && h("code", null, params.cwd)),
        fact("Connection", network && `${network.protocol} to ${network.host}`),
        fact("More rights", params.additionalPermissions && jsonTree(params.additionalPermissions)),
      ),
      decisionButtons(
        decisions.map((decision) => ({
          ...describe(decision),
          choose: () => answer({ decision }),
        })),
      ),
    ],
  };
}

function describe(decision) {
  if (typeof decision === "string") return WORDS[decision] ?? { label: decision };
  const rule = decision.acceptWithExecpolicyAmendment?.execpolicy_amendment;
  if (rule !== undefined) return { label: `Approve, and always allow “${rule.join(" ")} …”` };
  const host = decision.applyNetworkPolicyAmendment?.network_policy_amendment;
  if (host !== undefined) return { label: `Always ${host.action} ${host.host}` };
  return { label: JSON.stringify(decision) };
}

function fact(name, value) {
  return value ? [h("dt", null, name), h("dd", null, value)] : null;
}
