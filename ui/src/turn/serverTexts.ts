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
      return trans.__("The kernel is another one than in the last turn: variables defined earlier are gone.");
    case "The answer was cut off because it reached the token limit.":
      return trans.__("The answer was cut off because it reached the token limit.");
    default:
      return text;
  }
}

/** Why a turn ended without an answer, in sentences; empty for another turn. */
export function endOf({ state, error, reason }: TurnView): string {
  const why = serverText(reason);
  switch (state) {
    case "open":
    case "committed":
      return "";
    case "cancelled":
      return why.endsWith(".") ? why : trans.__("Stopped: %1.", why || trans.__("no reason"));
    case "interrupted":
      return `${why || trans.__("The server stopped while this turn was running.")} ${trans.__("The steps that it had completed are saved.")}`;
    case "failed":
      return error?.message ?? (why || trans.__("The turn failed."));
  }
}
