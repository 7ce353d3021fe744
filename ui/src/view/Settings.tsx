/** Permissions, grants and trusted folders, read from the server, whose configuration decides. The panel's only own
 * setting is what Enter does. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import type { Permissions, Trust } from "../wire/schema";
import { useDesk } from "./panelStateContext";

const WORDS: Record<string, string> = { auto: "runs", ask: "asks you", deny: "never runs" };

export function Settings() {
  const desk = useDesk();
  const allowed = useSignal<Permissions | null>(null);
  const trust = useSignal<Trust | null>(null);
  const load = useCallback(
    () =>
      desk.trying(async () => {
        allowed.value = await desk.sessions.permissions(desk.session);
        trust.value = await desk.sessions.trust();
      }),
    [desk, allowed, trust],
  );
  useEffect(() => void load(), [load]);
  const grants = allowed.value?.grants ?? [];
  return (
    <>
      <label class="ak-check">
        <input type="checkbox" checked={desk.composing.enterSends.value} onChange={() => desk.composing.swapEnter()} />
        Enter sends, Shift+Enter makes a new line
      </label>
      <h3>Allowed in this conversation</h3>
      {grants.length === 0 && <p class="ak-hint">Nothing is granted beyond the rules below.</p>}
      <ul>
        {grants.map(({ kind, tool, decision }) => (
          <li key={`${kind} ${tool}`}>
            {tool} ({kind}): {decision === "approve" ? "runs without a question" : "never runs"}
          </li>
        ))}
      </ul>
      {grants.length > 0 && (
        <button type="button" onClick={() => void desk.trying(() => desk.sessions.revoke(desk.session)).then(load)}>
          Revoke all
        </button>
      )}
      <h3>Rules of this server</h3>
      <dl class="ak-facts">
        {Object.entries(allowed.value?.policy ?? {}).map(([kind, { permission, because }]) => (
          <div key={kind}>
            <dt>{kind}</dt>
            <dd title={because}>{WORDS[permission] ?? permission}</dd>
          </div>
        ))}
      </dl>
      <h3>Trusted folders</h3>
      {trust.value?.folder && (
        <p>
          The folder of this notebook is {trust.value.trusted ? "trusted" : "not trusted"}: skills and servers beside
          the notebook are {trust.value.trusted ? "used" : "not used"}.
        </p>
      )}
      <ul>
        {(trust.value?.folders ?? []).map(({ path }) => (
          <li key={path}>{path}</li>
        ))}
      </ul>
    </>
  );
}
