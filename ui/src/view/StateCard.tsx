/** A card above the conversation: a state that the user should know, with its actions. */
import type { ComponentChildren } from "preact";
import { ButtonIcon } from "./ButtonIcon";
import { trans } from "../translation/translation";

interface State {
  tone: "info" | "warning" | "error";
  children: ComponentChildren;
  close?: () => void;
}

/** A card with its actions. Screen readers read an error at once, other states when they are idle. */
export function StateCard({ tone, children, close }: State) {
  return (
    <div class={`ak-state-card ak-tone-${tone}`} role={tone === "error" ? "alert" : "status"}>
      <div class="ak-state-words">{children}</div>
      {close && (
        <button type="button" class="ak-icon-button" aria-label={trans.__("Dismiss")} onClick={close}>
          <ButtonIcon sign="close" />
        </button>
      )}
    </div>
  );
}
