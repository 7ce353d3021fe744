import type { CallBlock } from "../turn/turn";
import { Approve } from "./Approve";

export function Call({ call }: { call: CallBlock; session: string }) {
  return (
    <div class="ak-call" data-call={call.id} data-status={call.status}>
      <details>
        <summary>
          {call.name} {call.status}
        </summary>
        <pre>{JSON.stringify(call.arguments, null, 2)}</pre>
        <pre>{call.done ? call.result : call.output}</pre>
      </details>
      {call.approval && !call.approval.decision && !call.done && <Approve approval={call.approval} />}
    </div>
  );
}
