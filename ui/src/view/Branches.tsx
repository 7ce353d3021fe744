/** The branches of this conversation: show one, create one, delete one that is not shown. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import type { Branch } from "../wire/schema";
import { useDesk } from "./panelStateContext";

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
        Editing a message or asking it again starts a branch. Both branches have the turns before it.
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
                {branch.turns} {branch.turns === 1 ? "turn" : "turns"}
                {branch.current && " · shown now"}
              </span>
            </button>
            {!branch.current && (
              <div class="ak-session-acts">
                <button
                  type="button"
                  onClick={() => {
                    desk.open("");
                    desk.asking.value = {
                      text: `Delete the branch ${branch.name}? Turns that are only in it are deleted.`,
                      yes: "Delete it",
                      run: () => desk.sessions.dropBranch(desk.session, branch.name),
                    };
                  }}
                >
                  Delete
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
          aria-label="Name of a new branch"
          placeholder="Name of a new branch"
          maxLength={200}
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
        <button type="submit">Start a branch here</button>
      </form>
    </>
  );
}
