/** The user's settings and what the server has fixed: permissions, grants and trusted folders are read from the server,
 * whose configuration decides. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import { usePanel, useDesk } from "../conversation/panelContext";
import { MAX_INSTRUCTIONS } from "../conversation/preferences";
import type { Rules } from "../conversation/serverRules";
import { lookupTable } from "../turn/labels";
import { trans } from "../translation/translation";
import type { Permissions, Session, Trust } from "../wire/schema";
import type { Transport } from "../transport/transport";
import type { Conversation } from "../conversation/conversation";

/** The instructions of one conversation are in the metadata of its session on the server. They are not part of the
 * notebook: a notebook that comes from somebody else brings none. */
const KEY = "agent_kernel.instructions";

function verdict(permission: string): string {
  switch (permission) {
    case "auto":
      return trans.__("runs");
    case "ask":
      return trans.__("asks you");
    case "deny":
      return trans.__("never runs");
    default:
      return permission;
  }
}

/** Kinds of calls, in the order in which they are listed: first where code runs. */
const KINDS = lookupTable<() => string>({
  "python.live": () => trans.__("Python in your kernel"),
  "python.draft": () => trans.__("Python on a copy of your kernel"),
  "python.sandbox": () => trans.__("Python in the sandbox"),
  shell: () => trans.__("Commands in the sandbox"),
  "notebook.edit": () => trans.__("Change cells of the notebook"),
  "notebook.run": () => trans.__("Run cells of the notebook"),
  "notebook.read": () => trans.__("Read the notebook and its variables"),
  "files.write": () => trans.__("Write files in the work directory"),
  "files.read": () => trans.__("Read files of the conversation"),
  path: () => trans.__("Files outside of the work directory"),
  "sessions.read": () => trans.__("Read earlier conversations"),
  web: () => trans.__("Search and read the web"),
  function: () => trans.__("Functions without side effects"),
  "function.effects": () => trans.__("Functions with side effects"),
  mcp: () => trans.__("Tools of other programs (MCP)"),
  skills: () => trans.__("Skills"),
  dispatch: () => trans.__("Functions on other machines"),
});
/** Kinds of calls that only a notebook has. */
const OF_NOTEBOOKS = /^(?:python\.live|python\.draft|notebook\.\w+)$/;
const ORDER = [...KINDS.keys()];

const kindName = (kind: string): string => KINDS.get(kind)?.() ?? kind;

/** The position of a kind of call in the list. A kind that is not in KINDS comes last. */
function rank(kind: string): number {
  const index = ORDER.indexOf(kind);
  return index < 0 ? ORDER.length : index;
}

export function Settings() {
  const desk = useDesk();
  const { host } = usePanel();
  const { conversation } = desk;
  const allowed = useSignal<Permissions | null>(null);
  const trust = useSignal<Trust | null>(null);
  const load = useCallback(
    () =>
      desk.trying(async () => {
        allowed.value = await desk.sessions.permissions(desk.session);
        if (desk.conversation.notebook) trust.value = await desk.sessions.trust();
      }),
    [desk, allowed, trust],
  );
  useEffect(() => void load(), [load]);
  const { preferences, session } = conversation;
  return (
    <>
      <label class="ak-check">
        <input type="checkbox" checked={desk.composing.enterSends.value} onChange={() => desk.composing.swapEnter()} />
        {trans.__("Enter sends, Shift+Enter makes a new line")}
      </label>
      {preferences.open && (
        <button type="button" onClick={() => preferences.open?.()}>
          {trans.__("All settings of the agent")}
        </button>
      )}
      <Fixed rules={allowed.value} />
      {session.value && <Instructions key={session.value.id} session={session.value} />}
      <Grants allowed={allowed.value} load={load} />
      <h3>{trans.__("Rules of this server")}</h3>
      <dl class="ak-facts">
        {Object.entries(allowed.value?.policy ?? {})
          .filter(([kind]) => host.notebook || !OF_NOTEBOOKS.test(kind))
          .sort(([one], [other]) => rank(one) - rank(other))
          .map(([kind, { permission, because }]) => (
            <div key={kind}>
              <dt title={kind}>{kindName(kind)}</dt>
              <dd title={because}>{verdict(permission)}</dd>
            </div>
          ))}
      </dl>
      {conversation.notebook && <TrustedFolders trust={trust.value} />}
    </>
  );
}

/** The rules of the server that override what the user has set. */
function Fixed({ rules }: { rules: Rules | null }) {
  const { conversation } = useDesk();
  const { place, instructions } = conversation.preferences.values.value;
  const denied = conversation.rules.denial(place);
  if (!rules) return null;
  return (
    <>
      {denied && (
        <p class="ak-hint">
          {trans.__(
            "The place that you chose for running code is not allowed here: %1. Code runs in another place.",
            denied,
          )}
        </p>
      )}
      {rules.instructions && (
        <p class="ak-hint">
          {instructions
            ? trans.__("This server adds instructions of its own to every turn. They come before yours.")
            : trans.__("This server adds instructions of its own to every turn.")}
        </p>
      )}
    </>
  );
}

function Instructions({ session }: { session: Session }) {
  const desk = useDesk();
  const { host } = usePanel();
  const stored = instructionsOf(session);
  const text = useSignal(stored);
  const save = () => desk.trying(() => storeInstructions(host.transport, desk.conversation, session, text.value));
  return (
    <form
      class="ak-instructions"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <h3>{trans.__("Instructions for this conversation")}</h3>
      <textarea
        aria-label={trans.__("Instructions for this conversation")}
        placeholder={trans.__("What the model should know or follow here")}
        maxLength={MAX_INSTRUCTIONS}
        rows={3}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
      />
      <button type="submit" disabled={text.value.trim() === stored}>
        {trans.__("Save the instructions")}
      </button>
      <p class="ak-hint">
        {host.notebook
          ? trans.__(
              "The cells and messages of this conversation use these instructions. The server stores them; they are not written into the notebook.",
            )
          : trans.__("The messages of this conversation use these instructions. The server stores them.")}
      </p>
    </form>
  );
}

function Grants({ allowed, load }: { allowed: Permissions | null; load: () => Promise<void> }) {
  const desk = useDesk();
  // Without a session, the server sends its rules only.
  const grants = (allowed as Partial<Permissions> | null)?.grants ?? [];
  return (
    <>
      <h3>{trans.__("Allowed in this conversation")}</h3>
      {grants.length === 0 && (
        <p class="ak-hint">{trans.__("This conversation has no permissions beyond the rules below.")}</p>
      )}
      <ul>
        {grants.map(({ kind, tool, decision }) => (
          <li key={`${kind} ${tool}`}>
            {decision === "approve"
              ? trans.__("%1 (%2): runs without a question", tool, kind)
              : trans.__("%1 (%2): never runs", tool, kind)}
          </li>
        ))}
      </ul>
      {grants.length > 0 && (
        <button type="button" onClick={() => void desk.trying(() => desk.sessions.revoke(desk.session)).then(load)}>
          {trans.__("Revoke all")}
        </button>
      )}
    </>
  );
}

function TrustedFolders({ trust }: { trust: Trust | null }) {
  return (
    <>
      <h3>{trans.__("Trusted folders")}</h3>
      {trust?.folder && (
        <p>
          {trust.trusted
            ? trans.__("The folder of this notebook is trusted: skills and servers beside the notebook are used.")
            : trans.__(
                "The folder of this notebook is not trusted: skills and servers beside the notebook are not used.",
              )}
        </p>
      )}
      <ul>
        {(trust?.folders ?? []).map(({ path }) => (
          <li key={path}>{path}</li>
        ))}
      </ul>
    </>
  );
}

const instructionsOf = (session: Session | null): string => {
  const text = session?.metadata[KEY];
  return typeof text === "string" ? text : "";
};

/** Store the instructions of one conversation in the metadata of its session. Rejects with ApiError. */
async function storeInstructions(
  transport: Transport,
  conversation: Conversation,
  session: Session,
  text: string,
): Promise<void> {
  const metadata = Object.fromEntries(Object.entries(session.metadata).filter(([name]) => name !== KEY));
  const described = text.trim() ? { ...metadata, [KEY]: text.trim() } : metadata;
  const changed = await transport.request<Session>("PATCH", `sessions/${session.id}`, { metadata: described });
  if (conversation.session.value?.id === session.id) conversation.session.value = changed;
}
