/** The branches of this conversation: show one, create one, delete one that is not shown. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import type { Branch } from "../wire/schema";
import { useDesk } from "../conversation/panelContext";
import { trans } from "../translation/translation";

export function Branches() {
  const desk = useDesk();
  const branches = useSignal<readonly Branch[] | null>(null);
  const name = useSignal("");
  const load = useCallback(
    () =>
      desk.trying(async () => {
        branches.value = await desk.sessions.branches(desk.session);
      }),
    [desk, branches],
  );
  useEffect(() => void load(), [load]);
  const done = (work: () => Promise<void>) => {
    desk.open("");
    void desk.trying(work);
  };
  return (
    <>
      <p class="ak-hint">
        {trans.__("Editing a message or asking it again starts a branch. Both branches have the turns before it.")}
      </p>
      <ul class="ak-branches">
        {(branches.value ?? []).map((branch) => (
          <li key={branch.name} class={branch.current ? "ak-session ak-session-here" : "ak-session"}>
            <button
              type="button"
              class="ak-session-open"
              aria-current={branch.current}
              onClick={() => done(() => desk.conversation.toBranch(branch.name))}
            >
              <span class="ak-session-title">{branch.name}</span>
              <span class="ak-session-facts">
                {trans._n("%1 turn", "%1 turns", branch.turns)}
                {branch.current && ` · ${trans.__("shown now")}`}
              </span>
            </button>
            {!branch.current && (
              <div class="ak-session-acts">
                <button
                  type="button"
                  onClick={() => {
                    desk.open("");
                    desk.asking.value = {
                      text: trans.__("Delete the branch %1? Turns that are only in it are deleted.", branch.name),
                      yes: trans.__("Delete it"),
                      run: () => desk.sessions.dropBranch(desk.session, branch.name),
                    };
                  }}
                >
                  {trans.__("Delete")}
                </button>
              </div>
            )}
          </li>
        ))}
      </ul>
      <form
        class="ak-inline-form"
        onSubmit={(event) => {
          event.preventDefault();
          done(() => desk.sessions.branch(desk.session, name.value.trim()));
        }}
      >
        <input
          aria-label={trans.__("Name of a new branch")}
          placeholder={trans.__("Name of a new branch")}
          maxLength={200}
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
        <button type="submit">{trans.__("Start a branch here")}</button>
      </form>
    </>
  );
}
