import { afterEach, expect, test } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import { announcements } from "../../src/turn/announcements";
import { endOf, serverText } from "../../src/turn/serverTexts";
import { emptyTurn, type TurnView } from "../../src/turn/turn";
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
