/** Sends the user's answer to an approval, at most once. Both the panel and the notebook use it, because both show the
 * question. */
import { useSignal, type Signal } from "@preact/signals";
import { usePanel } from "../conversation/panelContext";
import { ApiError } from "../transport/transport";
import type { Approval } from "../turn/turn";
import { trans } from "../translation/translation";

export interface Choice {
  decision: "approve" | "deny";
  remember: string;
  message?: string;
  /** The text that the user wrote in place of the proposed one. */
  edited?: string;
}

interface Deciding {
  decide: (choice: Choice) => Promise<void>;
  sending: Signal<boolean>;
  /** Why the server did not accept the answer; empty if it did. */
  problem: Signal<string>;
}

export function useDecision(approval: Approval | null): Deciding {
  const { conversation } = usePanel();
  const sending = useSignal(false);
  const problem = useSignal("");
  const decide = async (choice: Choice) => {
    if (sending.value || !approval) return;
    sending.value = true;
    problem.value = "";
    try {
      await conversation.decide(approval.approval, { ...choice, shown: approval.shown });
    } catch (error) {
      problem.value =
        error instanceof ApiError ? `${error.message} ${error.hint}` : trans.__("Your answer was not sent.");
      sending.value = false;
    }
  };
  return { decide, sending, problem };
}

/** The argument of the call that the user may change before approving it, such as code; null if there is none. */
export function editableText({ editable, arguments: given }: Approval): string | null {
  const text = editable ? given[editable] : null;
  return typeof text === "string" ? text : null;
}
