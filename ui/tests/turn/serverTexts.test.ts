import { afterEach, expect, test } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import { announcements } from "../../src/turn/announcements";
import { endOf, serverText, waitingText } from "../../src/turn/serverTexts";
import { emptyTurn, type TurnView } from "../../src/turn/turn";
import { ApiError } from "../../src/transport/transport";
import { ENGLISH, setTranslation, textsOf } from "../../src/translation/translation";

const ended = (state: TurnView["state"], reason: string, error: TurnView["error"] = null): TurnView => ({
  ...emptyTurn("t", "s"),
  state,
  reason,
  error,
});

afterEach(() => setTranslation(ENGLISH));

test("a sentence of the server is shown in the user's language, and an unknown one as it is", () => {
  setTranslation({ texts: textsOf(german), language: "de" });
  expect(serverText("another turn of this session is running")).toBe("eine andere Frage dieses Gesprächs läuft");
  expect(endOf(ended("cancelled", "stopped by the person"))).toBe("Von Ihnen angehalten.");
  expect(serverText("anything else")).toBe("anything else");
  setTranslation(ENGLISH);
  const stored = "The kernel is another one than in the last turn: variables defined earlier are gone.";
  expect(serverText(stored)).toBe("The kernel is new: variables of earlier turns are gone.");
});

test.each([
  ["committed", "", ""],
  ["cancelled", "stopped by the person", "Stopped by you."],
  ["cancelled", "the MCP client cancelled the call", "Stopped: the MCP client cancelled the call."],
  ["cancelled", "", "Stopped: no reason."],
  [
    "interrupted",
    "The server stopped while this turn was running.",
    "The server stopped while this turn was running. The steps that it had completed are saved.",
  ],
  ["interrupted", "", "The server stopped while this turn was running. The steps that it had completed are saved."],
  ["failed", "", "The turn failed."],
] as const)("an end is told in whole sentences: %s, %s", (state, reason, sentences) => {
  expect(endOf(ended(state, reason))).toBe(sentences);
});

test("a screen reader hears the same sentences", () => {
  const [told] = announcements(emptyTurn("t", "s"), ended("cancelled", "stopped by the person"));
  expect(told?.text).toBe("Stopped by you.");
});

test.each([
  ["coder-1.5b: loading the weights", "coder-1.5b: die Gewichte werden geladen"],
  ["coder-1.5b: writing 4 programs", "coder-1.5b: 4 Programme werden geschrieben"],
  ["coder-1.5b: trying program 2 of 3 in a draft", "coder-1.5b: Programm 2 von 3 wird in einem Entwurf ausprobiert"],
  [
    "coder-1.5b: trying programs 1 to 3 of 4 in a draft",
    "coder-1.5b: Programme 1 bis 3 von 4 werden in einem Entwurf ausprobiert",
  ],
  ["coder-1.5b: another stage", "coder-1.5b: another stage"],
  ["other people: use it. Wait", "other people: use it. Wait"],
])("what a turn waits for is said in the user's language: %s", (text, said) => {
  setTranslation({ texts: textsOf(german), language: "de" });
  expect(waitingText(text)).toBe(said);
});

test.each([
  ["All 8 programs that were tried have this result.", "Alle 8 Programme, die probiert wurden, haben dieses Ergebnis."],
  [
    "5 of 8 programs that were tried have this result.",
    "5 von 8 Programmen, die probiert wurden, haben dieses Ergebnis.",
  ],
])("a vote is said in the user's language: %s", (text, said) => {
  setTranslation({ texts: textsOf(german), language: "de" });
  expect(serverText(text)).toBe(said);
});

test.each([
  [
    "No draft can be made: drafts need Linux. Python runs in your kernel instead, after asking you.",
    "Es ist kein Entwurf möglich: Entwürfe brauchen Linux. Python läuft stattdessen in Ihrem Kernel, nachdem Sie gefragt wurden.",
  ],
  [
    "The conversation was not saved beside a.ipynb: No space left on device. It is in the store.",
    "Das Gespräch wurde nicht neben a.ipynb gespeichert: auf der Platte ist kein Platz mehr. Der Server hat es gespeichert.",
  ],
  [
    "The conversation was not saved beside a.ipynb: a new reason. It is in the store.",
    "Das Gespräch wurde nicht neben a.ipynb gespeichert: a new reason. Der Server hat es gespeichert.",
  ],
  [
    '1 agent cell(s) of this notebook have no outputs, but the conversation still contains what their tools printed. To remove that too, run the magic command "agent clear outputs" in a cell.',
    "1 Agent-Zelle dieses Notebooks hat keine Ausgaben, aber das Gespräch enthält noch, was ihre Werkzeuge ausgegeben haben. Um auch das zu entfernen, führen Sie %agent clear outputs in einer Zelle aus.",
  ],
  [
    "The earlier Python code of this conversation ran elsewhere (the conversation is a copy, or another server ran it): its variables and the files in its work directory are not here. Run the code again that makes them.",
    "Der frühere Python-Code dieses Gesprächs lief woanders (das Gespräch ist eine Kopie, oder ein anderer Server hat ihn ausgeführt): Seine Variablen und die Dateien in seinem Arbeitsverzeichnis sind hier nicht vorhanden. Führen Sie den Code, der sie erzeugt, noch einmal aus.",
  ],
  ["tiny reads text only; the 1 image(s) were not sent to it.", "tiny liest nur Text: 1 Bild wurde nicht gesendet."],
  ["tiny reads text only; the 2 image(s) were not sent to it.", "tiny liest nur Text: 2 Bilder wurden nicht gesendet."],
])("a sentence with values is said in the user's language: %s", (text, said) => {
  setTranslation({ texts: textsOf(german), language: "de" });
  expect(serverText(text)).toBe(said);
});

test.each([
  [
    "This user has started 31 turns in the last minute; 30 are allowed.",
    "Es wurden in der letzten Minute 31 Fragen gestellt; 30 sind erlaubt.",
    "Ask again in 12 s.",
    "Die Frage kann in 12 s wieder gestellt werden.",
  ],
  [
    "A file can have at most 1 MiB on this server.",
    "Eine Datei kann höchstens 1 MiB haben.",
    "A hint of a later version.",
    "A hint of a later version.",
  ],
  ["A file can have at most 64 MiB.", "Eine Datei kann höchstens 64 MiB haben.", "", ""],
])("an error of the server is said in the user's language, with what to do: %s", (message, said, hint, advice) => {
  setTranslation({ texts: textsOf(german), language: "de" });
  const error = new ApiError(429, { code: "too_many_requests", message, hint });
  expect([error.message, error.hint]).toEqual([said, advice]);
});

test("a failed turn says in the user's language why", () => {
  setTranslation({ texts: textsOf(german), language: "de" });
  const error = { code: "engine_unreachable", message: "127.0.0.1 does not answer: refused." };
  expect(endOf(ended("failed", "", error))).toBe("127.0.0.1 antwortet nicht: refused.");
});
