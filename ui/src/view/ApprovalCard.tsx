/** Asks for approval of a call and shows exactly what will run and where. Keys work only while the card has the focus,
 * and not immediately after it appears, so that a user who is typing never approves a call by accident. */
import { useSignal } from "@preact/signals";
import { useRef, useLayoutEffect } from "preact/hooks";
import type { Approval } from "../turn/turn";
import { hasInvisible } from "../turn/invisibleCharacters";
import { verbOf } from "../turn/labels";
import { proposedChange } from "../turn/cellChanges";
import { Outdated, ProposeAgain, useObstacle } from "./OutdatedChange";
import { TextEdit } from "./TextEdit";
import { editableText, useDecision } from "./useDecision";
import { proposalTitle } from "./proposalTitle";
import { Diff } from "./Review";
import { Remaining } from "./Elapsed";
import { Source } from "./Source";
import { usePanel } from "../conversation/panelContext";
import { withParts } from "./withParts";
import { Problem } from "./Problem";
import { trans } from "../translation/translation";

/** Milliseconds for which the card ignores keys after it appears or gets the focus. */
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
    if (key === "r") deny("once");
    else if (!obstacle) allow("once");
  };
  const change = proposedChange(approval.name, approval.arguments);
  const obstacle = useObstacle(change);
  const title = useTitle(approval);
  const text = editableText(approval);
  const accept = (edited: string) =>
    void decide({ decision: "approve", remember: "once", ...(edited === text ? {} : { edited }) });
  const words = change ? changeWords() : approval.name === "python" ? codeWords() : otherWords();
  return (
    <div
      class="ak-approval"
      role="group"
      aria-label={trans.__("Your answer is needed: %1", title)}
      tabIndex={0}
      ref={card}
      onKeyDown={onKeyDown}
    >
      <About approval={approval} title={title} />
      {editing.value && text !== null ? (
        <TextEdit
          text={text}
          label={change ? trans.__("The text that the cell gets") : trans.__("The code that runs")}
          action={words.once}
          onAccept={accept}
          onCancel={() => {
            editing.value = false;
            card.current?.focus();
          }}
        />
      ) : (
        <>
          {!change && (
            <Source code={approval.code} language={languageOf(approval)} label={trans.__("Exactly what will run")} />
          )}
          {change && change.do !== "move" && (
            <Diff {...change} label={trans.__("Exactly what will change")} most={Infinity} />
          )}
          {obstacle && <Outdated obstacle={obstacle} />}
          {(approval.unseen.length > 0 || hasInvisible(approval.code)) && (
            <p class="ak-problem">
              {trans.__("It contains invisible characters. They are shown as their code points.")}
            </p>
          )}
          <div class="ak-choices">
            {obstacle ? (
              <ProposeAgain obstacle={obstacle} disabled={sending.value} onDeny={(choice) => void decide(choice)} />
            ) : (
              <button
                type="button"
                class="ak-primary"
                title={trans.__("%1 (A)", words.once)}
                disabled={sending.value}
                onClick={() => allow("once")}
              >
                {words.once}
              </button>
            )}
            <button
              type="button"
              title={trans.__("%1 (R)", words.deny)}
              disabled={sending.value}
              onClick={() => deny("once")}
            >
              {words.deny}
            </button>
            {text !== null && !obstacle && (
              <button type="button" disabled={sending.value} onClick={() => (editing.value = true)}>
                {trans.__("Edit")}
              </button>
            )}
            {!obstacle && <Lasting approval={approval} disabled={sending.value} onAllow={allow} onDeny={deny} />}
          </div>
        </>
      )}
      {!editing.value && (
        <input
          class="ak-reason"
          aria-label={trans.__("Reason for the denial, sent to the model")}
          placeholder={trans.__("Why not? (sent to the model)")}
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
      <Problem text={problem.value} />
    </div>
  );
}

const codeWords = () => ({ once: trans.__("Run once"), deny: trans.__("Deny") });
const changeWords = () => ({ once: trans.__("Accept"), deny: trans.__("Reject") });
const otherWords = () => ({ once: trans.__("Allow once"), deny: trans.__("Deny") });

interface Last {
  approval: Approval;
  disabled: boolean;
  onAllow: (remember: string) => void;
  onDeny: (remember: string) => void;
}

/** Buttons for answers that are valid for later calls too, as far as this call allows them. */
function Lasting({ approval, disabled, onAllow, onDeny }: Last) {
  const rows: [string, string, () => void][] = [
    ["folder", trans.__("Allow its folder in this conversation"), () => onAllow("folder")],
    ["session", trans.__("Always in this conversation"), () => onAllow("session")],
    ["never", trans.__("Never in this conversation"), () => onDeny("never")],
  ];
  const offered = rows.filter(([remember]) => approval.remember.includes(remember));
  return (
    <>
      {offered.map(([remember, words, choose]) => (
        <button key={remember} type="button" disabled={disabled} onClick={choose}>
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
      <p>
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
            {withParts(trans.__("Denied automatically in %1.", "%1"), <Remaining until={approval.until} />)}
          </span>
        )}
      </p>
      {approval.source !== "built_in" && (
        <p class="ak-quiet">{SOURCES.get(approval.source)?.() ?? trans.__("From %1.", approval.source)}</p>
      )}
      {approval.again && <p class="ak-again">{trans.__("Asked again: %1.", approval.again)}</p>}
    </>
  );
}

const SOURCES = new Map([
  ["user", () => trans.__("A tool of this notebook's code.")],
  ["mcp", () => trans.__("A tool of an MCP server.")],
  ["external", () => trans.__("A tool that another program runs.")],
]);

const ASKED = new Map([
  ["live", () => trans.__("Run in your kernel?")],
  ["draft", () => trans.__("Run in a draft of your kernel?")],
  ["sandbox", () => trans.__("Run in the sandbox?")],
  ["client", () => trans.__("Do this in your notebook?")],
  ["server", () => trans.__("Do this on the server?")],
]);

function useTitle(approval: Approval): string {
  const { host } = usePanel();
  const change = proposedChange(approval.name, approval.arguments);
  return change ? proposalTitle(change, host.notebook?.places?.cells() ?? []) : question(approval);
}

function question(approval: Approval): string {
  const where = ASKED.get(approval.target)?.() ?? trans.__("Let the agent do this?");
  if (approval.name === "python") return where;
  const label = approval.label && approval.label !== approval.name ? approval.label : verbOf(approval.name);
  return `${label}: ${where.charAt(0).toLowerCase()}${where.slice(1)}`;
}

function languageOf({ arguments: given, name }: Approval): string {
  if (typeof given["diff"] === "string") return "diff";
  return typeof given["code"] === "string" ? "python" : name === "shell" ? "bash" : "";
}

/** The elements of conversations that got the focus because a card with the focus disappeared, and that still have it.
 * The next card that appears in such a conversation takes the focus. */
const waiting = new WeakSet<HTMLElement>();

/** When a card with the focus disappears, the focus moves to the next card, or to the conversation until the next card
 * appears. A focus elsewhere is left alone. `arrived` is called when the focus enters the card. */
function useFocusHandover(card: { current: HTMLElement | null }, arrived: () => void): void {
  useLayoutEffect(() => {
    const { current } = card;
    const log = current?.closest<HTMLElement>(".ak-turns");
    if (!current || !log) return;
    let within = current.contains(document.activeElement);
    const came = ({ relatedTarget }: FocusEvent) => {
      if (!(relatedTarget instanceof Node && current.contains(relatedTarget))) arrived();
      within = true;
    };
    // Without `relatedTarget` it is not known yet where the focus goes: the window may have lost it, or the card is
    // being removed.
    const went = ({ relatedTarget }: FocusEvent) => {
      if (relatedTarget instanceof Node && !current.contains(relatedTarget)) within = false;
    };
    current.addEventListener("focusin", came);
    current.addEventListener("focusout", went);
    if (waiting.delete(log) && document.activeElement === log) current.focus({ preventScroll: true });
    return () => {
      const here = document.activeElement;
      if (!within || (here && here !== document.body && !current.contains(here))) return;
      const others = [...log.querySelectorAll<HTMLElement>(".ak-approval")].filter((other) => other !== current);
      (others[0] ?? log).focus({ preventScroll: others.length === 0 });
      if (others.length > 0) return;
      waiting.add(log);
      log.addEventListener("blur", () => waiting.delete(log), { once: true });
    };
  }, []);
}
