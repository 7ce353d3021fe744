/** Sentences of the server in the user's language. The server writes English and stores it with turns, so a sentence is
 * recognised by its text; one that is not known here stays as it is. */
import type { TurnView } from "./turn";
import { trans } from "../translation/translation";

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
    default:
      return voteText(text) ?? text;
  }
}

/** Of several programs, how many have the result that is shown. */
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
    default: {
      const [, programs] = /^comparing (\d+) programs$/.exec(stage) ?? [];
      return programs ? trans.__("comparing %1 programs", programs) : stage;
    }
  }
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
      return error?.message ?? (why || trans.__("The turn failed."));
  }
}
