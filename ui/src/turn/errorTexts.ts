/** Translations of the server's error messages that a user of the panel may see. All other messages stay English. */
import { trans } from "../translation/translation";

type Template = readonly [RegExp, (...values: string[]) => string];

const NOT_HERE: readonly Template[] = [
  [/^There is no (?:engine or )?model '(.+)' here\.$/, (name) => trans.__("There is no model %1 here.", name)],
  [/^There is no session .+\.$/, () => trans.__("This conversation no longer exists.")],
  [
    /^(?:There is no such turn|This session has no turn with this id)\.$/,
    () => trans.__("This message no longer exists."),
  ],
  [/^There is no file '.+'\.$/, () => trans.__("This file no longer exists.")],
  [
    /^The model (\S+) \(.+\) is not on this machine: .+$/,
    (name) => trans.__("The model %1 is not on this machine.", name),
  ],
];

const LIMITS: readonly Template[] = [
  [
    /^A file can have at most (\S+) MiB(?: on this server)?\.$/,
    (size) => trans.__("A file can have at most %1 MiB.", size),
  ],
  [
    /^This (?:user|token) has started (\d+) turns in the last minute; (\d+) are allowed\.$/,
    (count, most) => trans.__("You asked %1 questions in the last minute; %2 are allowed.", count, most),
  ],
  [
    /^This (?:user|token) has (\d+) unfinished turns; (\d+) are allowed at once\.$/,
    (count, most) => trans.__("%1 of your questions are not answered yet; %2 are allowed at once.", count, most),
  ],
  [
    /^This (?:user|token) has spent (\S+) tokens in the last hour; (\S+) are allowed\.$/,
    (spent, most) => trans.__("You used %1 tokens in the last hour; %2 are allowed.", spent, most),
  ],
  [
    /^This (?:user|token) has spent (\S+) tokens in the last day; (\S+) are allowed\.$/,
    (spent, most) => trans.__("You used %1 tokens in the last day; %2 are allowed.", spent, most),
  ],
  [/^Ask again in (\d+) s\.$/, (seconds) => trans.__("Ask again in %1 s.", seconds)],
  [/^Tokens are available again in (.+)\.$/, (span) => trans.__("Tokens are available again in %1.", span)],
  [/^Wait for one of them, or stop one\.$/, () => trans.__("Wait for one of them, or stop one.")],
];

const MODELS: readonly Template[] = [
  [/^Another turn of this session is running\.$/, () => trans.__("Another question of this conversation is running.")],
  [/^This turn is still running\.$/, () => trans.__("This question is still running.")],
  [/^Wait for it or stop it\.$/, () => trans.__("Wait for it or stop it.")],
  [
    /^(\d+) turns are already waiting for (.+); no more are accepted\.$/,
    (count, model) => trans.__("%1 questions already wait for %2; no more are accepted.", count, model),
  ],
  [/^Ask again in a moment\.$/, () => trans.__("Ask again in a moment.")],
  [
    /^The prompt is too long: it has (\d+) tokens(?: or more)?, and .+$/,
    (count) => trans.__("The conversation is too long for this model: it has %1 tokens.", count),
  ],
  [/^(\S+) does not answer: (.+)\.$/, (host, why) => trans.__("%1 does not answer: %2.", host, why)],
  [/^Not enough memory for (.+?): it needs .+$/, (model) => trans.__("There is not enough memory for %1.", model)],
  [
    /^The model worker did not answer for (\d+) s and was stopped\.$/,
    (seconds) => trans.__("The model did not answer for %1 s and was stopped.", seconds),
  ],
];

/** The message in the user's language; null if it is none of the known messages. */
export function errorText(text: string): string | null {
  for (const [pattern, shown] of [...NOT_HERE, ...LIMITS, ...MODELS]) {
    const found = pattern.exec(text);
    if (found) return shown(...found.slice(1));
  }
  return null;
}
