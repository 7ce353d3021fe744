/** The question of a turn as the panel shows it. `%agent fix`, `explain` and `improve` write long prompts for the
 * model; such a prompt is recognised by its text and shown as a short sentence. */
import { trans } from "../translation/translation";

const FIX =
  /^Correct the cell In\[(\d+)\], which failed with ([^\n]+)\. Give the whole cell as it should be\.(?: It makes [^\n]*)?/;
const EXPLAIN = /^Explain in plain words what the cell In\[(\d+)\] does(?: and why it failed with ([^\n]+))?\./;
const IMPROVE =
  /^Write the cell In\[(\d+)\] better, clearer or faster\. It prints the same and makes equal variables\.(?: It makes [^\n]*)?/;

export function askedText(prompt: string): string {
  const found = findCommand(prompt);
  if (!found) return prompt;
  const [text, length] = found;
  const words = prompt.slice(length).trim();
  return words ? `${text}\n${words}` : text;
}

/** The prompt for the model if the user has edited `askedText(prompt)` into `edited`. Where the short sentence is still
 * the beginning, the prompt keeps the text that the sentence stands for. */
export function editedPrompt(prompt: string, edited: string): string {
  const [text, length] = findCommand(prompt) ?? ["", 0];
  const words = edited.slice(text.length);
  if (!text || !edited.startsWith(text) || /^\S/.test(words)) return edited;
  return [prompt.slice(0, length), words.trim()].filter(Boolean).join("\n");
}

const findCommand = (prompt: string): Found => fixText(prompt) ?? explainText(prompt) ?? improveText(prompt);

/** The short text to show, and the length of the beginning of the prompt that it replaces. Null for any other
 * prompt. */
type Found = readonly [string, number] | null;

function fixText(prompt: string): Found {
  const [all, number, error] = FIX.exec(prompt) ?? [];
  return all === undefined ? null : [trans.__("Correct cell [%1], which failed with %2", number, error), all.length];
}

function explainText(prompt: string): Found {
  const [all, number, error] = EXPLAIN.exec(prompt) ?? [];
  if (all === undefined) return null;
  const text = error
    ? trans.__("Explain cell [%1], which failed with %2", number, error)
    : trans.__("Explain cell [%1]", number);
  return [text, all.length];
}

function improveText(prompt: string): Found {
  const [all, number] = IMPROVE.exec(prompt) ?? [];
  return all === undefined ? null : [trans.__("Improve cell [%1]", number), all.length];
}
