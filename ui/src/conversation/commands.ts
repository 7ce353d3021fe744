/** The commands of the panel. The menu and `/` in a message offer the same list. */
import { parseCommand } from "./completion";
import type { Desk } from "./panelState";
import { FORMATS, type Format } from "./sessions";
import { askedText } from "../turn/askedText";
import { remainsOf } from "../turn/cellChanges";
import { trans } from "../translation/translation";

export interface Command {
  /** The name that the user types after `/`. */
  name: string;
  /** The text in the menu. */
  label: () => string;
  help: () => string;
  /** The group in the menu; empty for a command that can only be typed. */
  group: "session" | "history" | "document" | "panel" | "";
  enabled: (desk: Desk) => boolean;
  /** Whether the user writes a message after this command, so that the focus moves to the message field. */
  isBeginning?: true;
  /** Whether the command is about cells, so that it does nothing without a notebook. */
  needsNotebook?: true;
  /** `rest` is the text after the name. */
  run: (desk: Desk, rest: string) => Promise<void> | void;
}

const always = () => true;
const inSession = (desk: Desk) => desk.conversation.session.value !== null;
const withTurns = (desk: Desk) => desk.conversation.entries.value.length > 0;
const atRest = (desk: Desk) => withTurns(desk) && desk.conversation.running.value.length === 0;

export const COMMANDS: readonly Command[] = [
  {
    name: "new",
    label: () => trans.__("New conversation"),
    help: () => trans.__("Start again; this conversation stays in the list."),
    group: "session",
    enabled: inSession,
    isBeginning: true,
    run: (desk) => desk.sessions.begin(),
  },
  {
    name: "private",
    label: () => trans.__("New private conversation"),
    help: () => trans.__("Start a conversation that is never written to disk."),
    group: "session",
    enabled: always,
    isBeginning: true,
    run: (desk) => desk.sessions.begin({ private: true }),
  },
  {
    name: "sessions",
    label: () => trans.__("All conversations..."),
    help: () => trans.__("Find, open, rename, copy or delete a conversation."),
    group: "session",
    enabled: always,
    run: (desk) => desk.open("sessions"),
  },
  {
    name: "rename",
    label: () => trans.__("Rename..."),
    help: () => trans.__("/rename TITLE"),
    group: "session",
    enabled: inSession,
    run: async (desk, rest) => {
      const session = desk.conversation.session.value;
      if (session && rest) await desk.sessions.rename(session.id, rest);
      else desk.open("rename");
    },
  },
  {
    name: "undo",
    label: () => trans.__("Undo the last turn"),
    help: () => trans.__("Removes it from the conversation; effects of its code stay."),
    group: "history",
    enabled: atRest,
    run: async (desk) => {
      const turns = desk.conversation.entries.value;
      const undone = await desk.sessions.undo(desk.session);
      if (!undone) {
        desk.say(trans.__("There is no turn to undo."));
        return;
      }
      const turn = turns.find((entry) => entry.id === undone.turn)?.view.value;
      const remains = turn ? remainsOf(turn).join("; ") : "";
      const stay = remains && trans.__("Not undone: %1.", remains);
      desk.say([trans.__("The last turn was undone."), stay].filter(Boolean).join(" "));
      const isTyped = askedText(undone.prompt) === undone.prompt;
      if (isTyped && !desk.composing.text.value) desk.composing.text.value = undone.prompt;
    },
  },
  {
    name: "branch",
    label: () => trans.__("New branch"),
    help: () => trans.__("/branch NAME: continues on a new branch."),
    group: "history",
    enabled: atRest,
    run: async (desk, rest) => {
      await desk.sessions.branch(desk.session, rest);
      desk.say(
        trans.__("The conversation continues on the branch %1.", desk.conversation.session.value?.branch ?? rest),
      );
    },
  },
  {
    name: "branches",
    label: () => trans.__("Branches..."),
    help: () => trans.__("Show another branch, or delete one."),
    group: "history",
    enabled: inSession,
    run: (desk) => desk.open("branches"),
  },
  {
    name: "compact",
    label: () => trans.__("Shorten the conversation for the model"),
    help: () => trans.__("The model summarises the oldest messages; you still see all of them."),
    group: "history",
    enabled: atRest,
    run: async (desk) => {
      desk.say(trans.__("The model is writing a summary of the oldest messages."));
      const made = await desk.sessions.compact(desk.session);
      desk.say(
        made
          ? trans.__("A summary now replaces the oldest messages.")
          : trans.__("No messages are old enough to summarise."),
      );
    },
  },
  {
    name: "clear",
    label: () => trans.__("Clear..."),
    help: () => trans.__("Deletes all turns of this conversation."),
    group: "history",
    enabled: atRest,
    run: (desk) => {
      const { session } = desk;
      const turns = desk.conversation.session.value?.turns ?? 0;
      desk.asking.value = {
        text: trans.__("Delete all turns (%1) of this conversation? This cannot be undone.", turns),
        yes: trans.__("Delete them"),
        run: () => desk.sessions.clear(session),
      };
    },
  },
  {
    name: "export",
    label: () => trans.__("Export as Markdown"),
    help: () => `/export ${Object.keys(FORMATS).join(" | ")}`,
    group: "document",
    enabled: withTurns,
    run: async (desk, rest) => {
      const format = rest || "markdown";
      if (!Object.hasOwn(FORMATS, format)) {
        desk.say(trans.__("There is no format %1. Use one of: %2.", format, Object.keys(FORMATS).join(", ")));
        return;
      }
      await desk.download(format as Format);
    },
  },
  {
    name: "export-all",
    label: () => trans.__("Export everything"),
    help: () => trans.__("A document that can be imported again."),
    group: "document",
    enabled: withTurns,
    run: (desk) => desk.download("agent-kernel"),
  },
  {
    name: "import",
    label: () => trans.__("Import..."),
    help: () => trans.__("A conversation from a document."),
    group: "document",
    enabled: (desk) => desk.sessions.takesDocuments,
    run: (desk) => desk.open("import"),
  },
  {
    name: "fix",
    label: () => trans.__("Fix the last error"),
    help: () => trans.__("Tries corrections in a draft and proposes one that ran."),
    group: "",
    needsNotebook: true,
    enabled: (desk) => (desk.conversation.notebook?.lastError?.value ?? null) !== null,
    run: async (desk, rest) => {
      if (await desk.conversation.corrections.ask(desk.conversation.notebook?.lastError?.value?.id ?? "", rest)) return;
      desk.composing.takeAlong("error");
      await desk.composing.send(rest || trans.__("Fix this error."));
    },
  },
  {
    name: "explain",
    label: () => trans.__("Explain the active cell"),
    help: () => trans.__("Sends the cell and its output."),
    group: "",
    needsNotebook: true,
    enabled: (desk) => (desk.conversation.notebook?.activeCell.value ?? null) !== null,
    run: async (desk, rest) => {
      desk.composing.takeAlong("cell");
      await desk.composing.send(rest || trans.__("Explain this cell and what it shows."));
    },
  },
  {
    name: "stop",
    label: () => trans.__("Stop"),
    help: () => trans.__("Stops the running turn."),
    group: "",
    enabled: (desk) => desk.conversation.running.value.length > 0,
    run: (desk) => desk.conversation.stop(),
  },
  {
    name: "model",
    label: () => trans.__("Model..."),
    help: () => trans.__("Choose another model, or download one."),
    group: "panel",
    enabled: always,
    run: (desk) => desk.open("model"),
  },
  {
    name: "settings",
    label: () => trans.__("Permissions..."),
    help: () => trans.__("Permissions, trusted folders, keyboard shortcuts of this panel."),
    group: "panel",
    enabled: always,
    run: (desk) => desk.open("settings"),
  },
  {
    name: "help",
    label: () => trans.__("Help and keys"),
    help: () => trans.__("All commands and keys."),
    group: "panel",
    enabled: always,
    run: (desk) => desk.open("help"),
  },
];

/** Run a command. An error of the server is shown in the panel. */
export async function runCommand(desk: Desk, command: Command, rest = ""): Promise<void> {
  desk.say("");
  await desk.trying(async () => await command.run(desk, rest));
}

/** Submit the text of the composer: run it if it is a command, otherwise send it. A single word after a `/` that names
 * no command is taken for a typing mistake and is not sent. */
export async function submit(desk: Desk): Promise<void> {
  const { text } = desk.composing;
  const typed = parseCommand(text.value);
  const command = typed && COMMANDS.find(({ name }) => name === typed.name);
  if (typed && !command && !typed.rest) {
    desk.say(trans.__("There is no command /%1. /help lists all commands.", typed.name));
  } else if (typed && command) {
    if (!command.enabled(desk)) {
      desk.say(trans.__("/%1 cannot be used now.", command.name));
      return;
    }
    text.value = "";
    await runCommand(desk, command, typed.rest.trim());
  } else {
    await desk.composing.send();
  }
}
