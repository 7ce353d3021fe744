/** Asks for approval of a call and shows exactly what will run and where. Keys work only while the card has the focus,
 * and not immediately after it appears, so that typing on never approves anything. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Approval } from "../turn/turn";
import { hasInvisible } from "../turn/invisibleCharacters";
import { verbOf } from "../turn/labels";
import { proposedChange } from "../turn/cellChanges";
import { useFocusHandover } from "./focusHandover";
import { TextEdit } from "./TextEdit";
import { editableText, useDecision } from "./useDecision";
import { proposalTitle } from "./proposalTitle";
import { Diff } from "./Review";
import { Remaining } from "./Elapsed";
import { Source } from "./Source";
import { usePanel } from "../conversation/panelContext";

/** Delay before keys work, from when the card appears or gets the focus. */
const HELD_MS = 500;

export function ApprovalCard({ approval }: { approval: Approval }) {
  const card = useRef<HTMLDivElement>(null);
  const since = useRef(performance.now());
  const { decide, sending, problem } = useDecision(approval);
  const reason = useSignal("");
  const editing = useSignal(false);
  useFocusHandover(card, () => (since.current = performance.now()));

  const deny = (remember: string) => {
    const message = reason.value.trim();
    void decide({ decision: "deny", remember, ...(message ? { message } : {}) });
  };
  const allow = (remember: string) => void decide({ decision: "approve", remember });
  const onKeyDown = (event: KeyboardEvent) => {
    const key = event.key.toLowerCase();
    if ((key !== "a" && key !== "r") || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
    if (performance.now() - since.current < HELD_MS) return;
    event.preventDefault();
    if (key === "a") allow("once");
    else deny("once");
  };
  const change = proposedChange(approval.name, approval.arguments);
  const title = useTitle(approval);
  const text = editableText(approval);
  const accept = (edited: string) =>
    void decide({ decision: "approve", remember: "once", ...(edited === text ? {} : { edited }) });
  const words = change ? CHANGE : approval.name === "python" ? CODE : OTHER;
  return (
    <div
      class="ak-approval"
      role="group"
      aria-label={`Your answer is needed: ${title}`}
      tabIndex={0}
      ref={card}
      onKeyDown={onKeyDown}
    >
      <About approval={approval} title={title} />
      {editing.value && text !== null ? (
        <TextEdit
          text={text}
          label={change ? "The text that the cell gets" : "The code that runs"}
          action={words.once}
          onAccept={accept}
          onCancel={() => {
            editing.value = false;
            card.current?.focus();
          }}
        />
      ) : (
        <>
          {!change && <Source code={approval.code} language={languageOf(approval)} label="Exactly what will run" />}
          {change && change.do !== "move" && <Diff {...change} label="Exactly what will change" most={Infinity} />}
          {(approval.unseen.length > 0 || hasInvisible(approval.code)) && (
            <p class="ak-problem">It contains invisible characters. They are shown as their code points.</p>
          )}
          <div class="ak-choices">
            <button
              type="button"
              class="ak-primary"
              title={`${words.once} (A)`}
              disabled={sending.value}
              onClick={() => allow("once")}
            >
              {words.once}
            </button>
            <button type="button" title={`${words.deny} (R)`} disabled={sending.value} onClick={() => deny("once")}>
              {words.deny}
            </button>
            {text !== null && (
              <button type="button" disabled={sending.value} onClick={() => (editing.value = true)}>
                Edit
              </button>
            )}
            <Lasting approval={approval} disabled={sending.value} onAllow={allow} onDeny={deny} />
          </div>
        </>
      )}
      {!editing.value && (
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
      )}
      {problem.value && (
        <p class="ak-problem" role="alert">
          {problem.value}
        </p>
      )}
    </div>
  );
}

const CODE = { once: "Run once", deny: "Deny" };
const CHANGE = { once: "Accept", deny: "Reject" };
const OTHER = { once: "Allow once", deny: "Deny" };

interface Last {
  approval: Approval;
  disabled: boolean;
  onAllow: (remember: string) => void;
  onDeny: (remember: string) => void;
}

/** The answers that last longer than this call, as far as the call allows them. */
function Lasting({ approval, disabled, onAllow, onDeny }: Last) {
  const rows: [string, string, () => void][] = [
    ["folder", "Allow its folder in this session", () => onAllow("folder")],
    ["session", "Always in this session", () => onAllow("session")],
    ["never", "Never in this session", () => onDeny("never")],
  ];
  const offered = rows.filter(([remember]) => approval.remember.includes(remember));
  return (
    <>
      {offered.map(([remember, words, choose]) => (
        <button key={remember} type="button" class="ak-lasting" disabled={disabled} onClick={choose}>
          {words}
        </button>
      ))}
    </>
  );
}

function About({ approval, title }: { approval: Approval; title: string }) {
  const { host } = usePanel();
  const bound = host.notebook?.bound.value ?? null;
  return (
    <>
      <p class="ak-asked">
        <strong>{title}</strong>
        {approval.target === "live" && bound && (
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

function useTitle(approval: Approval): string {
  const { host } = usePanel();
  const change = proposedChange(approval.name, approval.arguments);
  return change ? proposalTitle(change, host.notebook?.places?.cells() ?? []) : question(approval);
}

function question(approval: Approval): string {
  const where = ASKED.get(approval.target) ?? "Let the agent do this?";
  if (approval.name === "python") return where;
  const label = approval.label && approval.label !== approval.name ? approval.label : verbOf(approval.name);
  return `${label}: ${where.charAt(0).toLowerCase()}${where.slice(1)}`;
}

function languageOf({ arguments: given, name }: Approval): string {
  if (typeof given["diff"] === "string") return "diff";
  return typeof given["code"] === "string" ? "python" : name === "shell" ? "bash" : "";
}
