/** Asks for approval of a call and shows exactly what will run and where. Keys work only while the card has the focus,
 * and not immediately after it appears, so that typing on never approves anything. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ApiError } from "../transport/transport";
import type { Approval } from "../turn/turn";
import { hasInvisible } from "../turn/invisibleCharacters";
import { verbOf } from "../turn/labels";
import { proposedChange } from "../turn/cellChanges";
import { useFocusHandover } from "./focusHandover";
import { Diff } from "./Review";
import { Remaining } from "./Elapsed";
import { Source } from "./Source";
import { usePanel } from "../conversation/panelContext";

/** Delay before keys work, from when the card appears or gets the focus. */
const HELD_MS = 500;

type Choice = { decision: "approve" | "deny"; remember: string; message?: string };

export function ApprovalCard({ approval }: { approval: Approval }) {
  const { conversation } = usePanel();
  const card = useRef<HTMLDivElement>(null);
  const since = useRef(performance.now());
  const sending = useSignal(false);
  const problem = useSignal("");
  const reason = useSignal("");
  useFocusHandover(card, () => (since.current = performance.now()));

  const decide = async (choice: Choice) => {
    if (sending.value) return;
    sending.value = true;
    problem.value = "";
    try {
      await conversation.decide(approval.approval, { ...choice, shown: approval.shown });
    } catch (error) {
      problem.value =
        error instanceof ApiError ? `${error.message} ${error.body.hint ?? ""}` : "Your answer was not sent.";
      sending.value = false;
    }
  };
  const deny = (remember: string) => {
    const message = reason.value.trim();
    void decide({ decision: "deny", remember, ...(message ? { message } : {}) });
  };
  const allow = (remember: string) => void decide({ decision: "approve", remember });
  const onKeyDown = (event: KeyboardEvent) => {
    const key = event.key.toLowerCase();
    if ((key !== "a" && key !== "r") || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target instanceof HTMLInputElement || performance.now() - since.current < HELD_MS) return;
    event.preventDefault();
    if (key === "a") allow("once");
    else deny("once");
  };
  const change = proposedChange(approval.name, approval.arguments);
  const can = (what: string) => approval.remember.includes(what);
  return (
    <div
      class="ak-approval"
      role="group"
      aria-label={`Your answer is needed: ${asked(approval)}`}
      tabIndex={0}
      ref={card}
      onKeyDown={onKeyDown}
    >
      <About approval={approval} />
      {change ? (
        <>
          <p class="ak-quiet">{approval.code.split("\n", 1)[0]}</p>
          {change.do !== "move" && <Diff {...change} label="Exactly what will change" most={Infinity} />}
        </>
      ) : (
        <Source code={approval.code} language={languageOf(approval)} label="Exactly what will run" />
      )}
      {(approval.unseen.length > 0 || hasInvisible(approval.code)) && (
        <p class="ak-problem">It contains invisible characters. They are shown as their code points.</p>
      )}
      <div class="ak-choices">
        <button type="button" class="ak-primary" disabled={sending.value} onClick={() => allow("once")}>
          Once
        </button>
        {can("folder") && (
          <button type="button" disabled={sending.value} onClick={() => allow("folder")}>
            Folder
          </button>
        )}
        {can("session") && (
          <button type="button" disabled={sending.value} onClick={() => allow("session")}>
            Session
          </button>
        )}
        <button type="button" disabled={sending.value} onClick={() => deny("once")}>
          Deny
        </button>
        {can("never") && (
          <button type="button" disabled={sending.value} onClick={() => deny("never")}>
            Never
          </button>
        )}
      </div>
      <input
        class="ak-reason"
        aria-label="Reason for the denial, sent to the model"
        placeholder="Why not? (sent to the model)"
        maxLength={2_000}
        value={reason.value}
        onInput={(event) => (reason.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.isComposing) {
            event.preventDefault();
            deny("once");
          }
        }}
      />
      <p class="ak-quiet">
        Once: this call only. {can("folder") && "Folder: all calls in its folder, in this session. "}
        {can("session") && "Session: every such call in this session. "}
        {can("never") && "Never: deny, and do not ask again. "}
        While this card has the focus: A allows once, R denies.
      </p>
      {problem.value && (
        <p class="ak-problem" role="alert">
          {problem.value}
        </p>
      )}
    </div>
  );
}

function About({ approval }: { approval: Approval }) {
  const { host } = usePanel();
  const bound = host.notebook?.bound.value ?? null;
  return (
    <>
      <p class="ak-asked">
        <strong>{asked(approval)}</strong>
        {(approval.target === "live" || approval.target === "client") && bound && (
          <>
            {" "}
            <bdi>{[bound.path, bound.kernelName].filter(Boolean).join(" · ")}</bdi>
          </>
        )}
        {approval.until !== null && (
          <span class="ak-quiet">
            {" "}
            Denied automatically in <Remaining until={approval.until} />.
          </span>
        )}
      </p>
      {approval.source !== "built_in" && (
        <p class="ak-quiet">{SOURCES.get(approval.source) ?? `From ${approval.source}.`}</p>
      )}
      {approval.again && <p class="ak-again">Asked again: {approval.again}.</p>}
    </>
  );
}

const SOURCES = new Map([
  ["user", "A tool of this notebook's code."],
  ["mcp", "A tool of an MCP server."],
  ["external", "A tool that another program runs."],
]);

const ASKED = new Map([
  ["live", "Run in your kernel?"],
  ["draft", "Run in a draft of your kernel?"],
  ["sandbox", "Run in the sandbox?"],
  ["client", "Do this in your notebook?"],
  ["server", "Do this on the server?"],
]);

function asked(approval: Approval): string {
  const where = ASKED.get(approval.target) ?? "Let the agent do this?";
  if (approval.name === "python") return where;
  const label = approval.label && approval.label !== approval.name ? approval.label : verbOf(approval.name);
  return `${label}: ${where.charAt(0).toLowerCase()}${where.slice(1)}`;
}

function languageOf({ arguments: given, name }: Approval): string {
  if (typeof given["diff"] === "string") return "diff";
  return typeof given["code"] === "string" ? "python" : name === "shell" ? "bash" : "";
}
