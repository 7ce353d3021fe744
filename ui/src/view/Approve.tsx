import type { Approval } from "../turn/turn";
import { useSurroundings } from "./Panel";

export function Approve({ approval }: { approval: Approval }) {
  const { conversation } = useSurroundings();
  const decide = (decision: "approve" | "deny", remember = "once") =>
    void conversation.decide(approval.approval, { decision, remember, shown: approval.shown });
  return (
    <div class="ak-approval" role="group" aria-label={`${approval.name} wants to run`}>
      <p>
        {approval.name} in {approval.target}
      </p>
      <pre>{approval.code}</pre>
      <button type="button" onClick={() => decide("approve")}>
        Once
      </button>
      {approval.remember.includes("session") && (
        <button type="button" onClick={() => decide("approve", "session")}>
          Session
        </button>
      )}
      <button type="button" onClick={() => decide("deny")}>
        Deny
      </button>
    </div>
  );
}
