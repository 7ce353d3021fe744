/** An empty conversation, with suggestions for the open notebook. */
import type { Desk } from "../conversation/panelState";
import { useDesk } from "../conversation/panelContext";
import { withParts } from "./withParts";
import { trans } from "../translation/translation";

interface Starter {
  label: string;
  go: () => Promise<unknown>;
}

export function EmptyConversation() {
  const desk = useDesk();
  const { conversation } = desk;
  if (conversation.loading.value) {
    return (
      <p class="ak-beginning" role="status">
        {trans.__("Loading the conversation...")}
      </p>
    );
  }
  // Show nothing until the server has answered: the notebook may have a conversation already.
  if (conversation.query && !conversation.binding.value) return null;
  return (
    <div class="ak-beginning">
      <h3>{conversation.place.value.path ? trans.__("Ask about this notebook") : trans.__("Ask anything")}</h3>
      <ul class="ak-starters">
        {starters(desk).map(({ label, go }) => (
          <li key={label}>
            <button type="button" onClick={() => void go()}>
              {label}
            </button>
          </li>
        ))}
      </ul>
      <p class="ak-hint">
        {conversation.notebook
          ? withParts(
              trans.__(
                "%1 for commands, %2 for variables and cells. Code runs in your kernel only after you approve it.",
                "%1",
                "%2",
              ),
              <kbd>/</kbd>,
              <kbd>@</kbd>,
            )
          : withParts(trans.__("%1 for commands. Code runs in a sandbox on the server.", "%1"), <kbd>/</kbd>)}
      </p>
    </div>
  );
}

/** The three most useful suggestions. An empty notebook has nothing to describe. */
export function starters({ conversation, composing }: Desk): Starter[] {
  const { notebook } = conversation;
  const ask = (label: string, prompt = `${label}.`): Starter => ({ label, go: () => composing.send(prompt) });
  const failed = notebook?.lastError?.value ?? null;
  const active = notebook?.activeCell.value ?? null;
  const isEmpty = notebook?.places?.cells().length === 1 && active?.source.trim() === "";
  const found = [
    failed && ask(trans.__("Explain this error"), trans.__("Explain the newest error and how to fix it.")),
    active?.source.trim() &&
      ask(trans.__("Explain the active cell"), trans.__("Explain the active cell and what it shows.")),
    conversation.place.value.kernel &&
      !isEmpty &&
      ask(trans.__("Describe the variables"), trans.__("Say what the variables of this notebook hold.")),
    conversation.place.value.path &&
      !isEmpty &&
      ask(trans.__("Sum up this notebook"), trans.__("Sum up this notebook: what it does, step by step.")),
    ask(trans.__("Draw a first plot"), trans.__("Make a small example of data and draw a plot of it.")),
    ask(trans.__("Say what you can do here")),
  ];
  return found.filter((starter) => typeof starter === "object" && starter !== null).slice(0, 3);
}
