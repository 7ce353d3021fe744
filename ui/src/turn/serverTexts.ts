/** Translations of sentences of the server. The server writes English and stores it with turns, so a sentence is
 * recognised by its text; a sentence that is not known here stays English. */
import type { TurnView } from "./turn";
import { trans } from "../translation/translation";
import { errorText } from "./errorTexts";

export function serverText(text: string): string {
  switch (text) {
    case "its text contained a key or a password, which is not stored":
      return trans.__("its text contained a key or a password, which is not stored");
    case "the changes of the turn are too large to be stored":
      return trans.__("the changes of the turn are too large to be stored");
    case "another turn of this session is running":
      return trans.__("another turn of this conversation is running");
    case "another server runs a turn of this session":
      return trans.__("another server runs a turn of this conversation");
    case "others use the engine":
      return trans.__("other users use the model");
    case "another model is in use":
      return trans.__("another model is in use");
    case "stopped by the person":
      return trans.__("Stopped by you.");
    case "The message was taken back.":
      return trans.__("The message was taken back.");
    case "The server stopped while this turn was running.":
      return trans.__("The server stopped while this turn was running.");
    case "The server that ran this turn does not answer any more.":
      return trans.__("The server that ran this turn does not answer any more.");
    case "The turn was running when its session was exported.":
      return trans.__("The turn was running when its conversation was exported.");
    case "The kernel is another one than in the last turn: variables defined earlier are gone.":
      return trans.__("The kernel is new: variables of earlier turns are gone.");
    case "The answer was cut off because it reached the token limit.":
      return trans.__("The answer was cut off because it reached the token limit.");
    case "the kernel was restarted":
      return trans.__("the kernel was restarted");
    case "the kernel died and was restarted":
      return trans.__("the kernel died and was restarted");
    case "the server was stopped":
      return trans.__("the server was stopped");
    case "the client left and did not come back":
      return trans.__("the client left and did not come back");
    case "This server has no web search: it is off in its configuration.":
      return trans.__("This server has no web search: it is off in its configuration.");
    case "This cell is not saved yet, and no open page reports its position, so it is treated as the last cell.":
      return trans.__("This cell is not saved yet, and no open page has it, so it is treated as the last cell.");
    case "The sandbox is off: this ran as a plain process, which can read and change whatever this user can.":
      return trans.__("The sandbox is off: this ran as a plain process, which can read and change all of your files.");
    default:
      return voteText(text) ?? templateText(text) ?? errorText(text) ?? text;
  }
}

/** Sentences that contain values. The values are not translated, except for the reasons in `reasonText`. */
const TEMPLATES: readonly (readonly [RegExp, (...values: string[]) => string])[] = [
  [
    /^Earlier turns were summarised for the model \(.+\)\. You can undo the summary\.$/,
    () => trans.__("Earlier turns were summarised for the model. You can undo the summary."),
  ],
  [
    /^The earlier turns could not be summarised (\d+) times in a row: older ones are left out for the model\. Compact the conversation to try again\.$/,
    (times) =>
      trans.__(
        "The earlier turns could not be summarised %1 times in a row: the model does not see older ones. Compact the conversation to try again.",
        times,
      ),
  ],
  [
    /^(.+) reads text only; the (\d+) image\(s\) were not sent to it\.$/,
    (model, count) =>
      trans._n(
        "%2 reads text only: %1 picture was not sent to it.",
        "%2 reads text only: %1 pictures were not sent to it.",
        Number(count),
        model,
      ),
  ],
  [
    /^The end of this turn is not stored yet; it is retried: (.*)$/,
    (why) => trans.__("The end of this turn is not stored yet. The server tries again: %1", why),
  ],
  [
    /^No draft can be made: (.*)\. Python runs in your kernel instead, after asking you\.$/,
    (why) =>
      trans.__("No draft can be made: %1. Python runs in your kernel instead, after asking you.", reasonText(why)),
  ],
  [
    /^The web tools need (.+)\. Install agent-kernel\[web\] where the server runs\.$/,
    (names) => trans.__("The web tools need %1. Install agent-kernel[web] where the server runs.", names),
  ],
  [
    /^There is no notebook page here \((.*)\), so the model sees the conversation as usual\.$/,
    (why) => trans.__("There is no notebook page here (%1), so the model sees the conversation as usual.", why),
  ],
  [
    /^Skills could not be copied for this turn's code: (.*)\.$/,
    (why) => trans.__("Skills could not be copied for this turn's code: %1.", reasonText(why)),
  ],
  [
    /^(.*) — it continues in your kernel; interrupting the kernel stops it\.$/,
    (job) => trans.__("%1 continues in your kernel. Interrupt the kernel to stop it.", job),
  ],
  [
    /^Python was started again for this session \((.*)\): variables are gone, files in the work directory remain\.$/,
    (why) => trans.__("Python was started again (%1): variables are gone, files remain.", reasonText(why)),
  ],
  [
    /^The earlier Python code of this conversation ran elsewhere \(the conversation is a copy, or another server ran it\): its variables and the files in its work directory are not here\. Run the code again that makes them\.$/,
    () =>
      trans.__(
        "The earlier Python code of this conversation ran elsewhere (the conversation is a copy, or another server ran it): its variables and the files in its work directory are not here. Run the code again that makes them.",
      ),
  ],
  [
    /^(\d+) agent cell\(s\) of this notebook have no outputs, but the conversation still contains what their tools printed\. To remove that too, run the magic command "agent clear outputs" in a cell\.$/,
    (cells) =>
      trans._n(
        "%1 agent cell of this notebook has no outputs, but the conversation still contains what its tools printed. To remove that too, run %agent clear outputs in a cell.",
        "%1 agent cells of this notebook have no outputs, but the conversation still contains what their tools printed. To remove that too, run %agent clear outputs in a cell.",
        Number(cells),
      ),
  ],
  [/^The sandbox is without (.+?): (.*)\.$/, (layers, why) => trans.__("The sandbox is without %1: %2.", layers, why)],
  [
    /^This version cannot read a conversation from (.+)\. The file is not changed\.(?: To restore its previous version, copy (.+) over it\.)?$/,
    (name, backup) =>
      backup
        ? trans.__(
            "%1 has no conversation that can be read. To restore its previous version, copy %2 over it.",
            name,
            backup,
          )
        : trans.__("%1 has no conversation that can be read. The file is not changed.", name),
  ],
  [
    /^The conversation was not saved beside (.+?): (.*)\. It is in the store\.$/,
    (name, why) =>
      trans.__("The conversation was not saved beside %1: %2. The server has stored it.", name, reasonText(why)),
  ],
];

function templateText(text: string): string | null {
  for (const [pattern, shown] of TEMPLATES) {
    const found = pattern.exec(text);
    if (found) return shown(...found.slice(1));
  }
  return null;
}

/** The translation of a reason that a sentence of TEMPLATES contains. */
function reasonText(text: string): string {
  switch (text) {
    case "drafts need Linux":
      return trans.__("drafts need Linux");
    case "your kernel is being debugged":
      return trans.__("your kernel is being debugged");
    case "your kernel uses CUDA, which does not work in a copy":
      return trans.__("your kernel uses CUDA, which does not work in a copy");
    case "it ran before the server was restarted":
      return trans.__("it ran before the server was restarted");
    case "it was reset":
      return trans.__("it was reset");
    case "it was not used for a long time":
      return trans.__("it was not used for a long time");
    case "what it may read or write has changed":
      return trans.__("what it may read or write has changed");
    case "another server is writing":
      return trans.__("another server is writing");
    case "No space left on device":
      return trans.__("no space is left on the disk");
    case "Disk quota exceeded":
      return trans.__("your disk quota is used up");
    case "Permission denied":
      return trans.__("the server may not write there");
    case "Read-only file system":
      return trans.__("the disk is read-only");
    case "File name too long":
      return trans.__("the name of the notebook is too long");
    default:
      return text;
  }
}

/** A sentence that says how many of the programs the model wrote for one question have the result that is shown. Null
 * for other texts. */
function voteText(text: string): string | null {
  const [, all, agree, tried] =
    /^(?:All (\d+)|(\d+) of (\d+)) programs that were tried have this result\.$/.exec(text) ?? [];
  if (all) return trans.__("All %1 programs that were tried have this result.", all);
  return agree ? trans.__("%1 of %2 programs that were tried have this result.", agree, tried) : null;
}

/** What a turn waits for: a sentence, or "MODEL: STAGE" while a model is loaded. */
export function waitingText(text: string): string {
  const [, model, stage] = /^([^:]+): ([a-z0-9 ]+)$/.exec(text) ?? [];
  return model && stage ? `${model}: ${stageText(stage)}` : serverText(text);
}

function stageText(stage: string): string {
  switch (stage) {
    case "looking for the model":
      return trans.__("looking for the model");
    case "starting":
      return trans.__("starting");
    case "reading the vocabulary":
      return trans.__("reading the vocabulary");
    case "loading the weights":
      return trans.__("loading the weights");
    case "warming up":
      return trans.__("warming up");
    case "thinking":
      return trans.__("thinking");
    default:
      return programsText(stage) ?? stage;
  }
}

/** The stages of a call for which the model writes several programs, and of which one runs. */
function programsText(stage: string): string | undefined {
  const [, written] = /^writing (\d+) programs$/.exec(stage) ?? [];
  if (written) return trans.__("writing %1 programs", written);
  const [, first, last, all] = /^trying programs? (\d+)(?: to (\d+))? of (\d+) in a draft$/.exec(stage) ?? [];
  if (!first || !all) return undefined;
  return last
    ? trans.__("trying programs %1 to %2 of %3 in a draft", first, last, all)
    : trans.__("trying program %1 of %2 in a draft", first, all);
}

/** Why a turn ended without an answer, in sentences; empty for another turn. */
export function endOf({ state, error, reason, unsaved }: TurnView): string {
  const why = serverText(reason);
  switch (state) {
    case "open":
    case "committed":
      return "";
    case "cancelled":
      return why.endsWith(".") ? why : trans.__("Stopped: %1.", why || trans.__("no reason"));
    case "interrupted":
      return [
        why || trans.__("The server stopped while this turn was running."),
        trans.__("The steps that it had completed are saved."),
        unsaved && trans.__("The text of its last step was not saved. It is shown until this page is closed."),
      ]
        .filter(Boolean)
        .join(" ");
    case "failed":
      return error ? serverText(error.message) : why || trans.__("The turn failed.");
  }
}
