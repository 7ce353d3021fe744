// @vitest-environment node
/** Every text that a user reads goes through the translation, and the German catalog has all of them. */
import { expect, test } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import settings from "../../schema/settings.json";
import { literalsOf, type Literals } from "./literals";

declare global {
  interface ImportMeta {
    /** Vite replaces this call by the files that match, by path. */
    glob(pattern: string, options: { query: "?raw"; import: "default"; eager: true }): Record<string, string>;
  }
}

const SRC = "../../src/";
const TEXTS = import.meta.glob("../../src/**/*.{ts,tsx}", { query: "?raw", import: "default", eager: true });
const SOURCES = Object.entries(TEXTS).map(([path, text]) => [path.slice(SRC.length), text] as const);
const FOUND = new Map<string, Literals>(SOURCES.map(([path, text]) => [path, literalsOf(path, text)]));
const CATALOG = new Map(Object.entries(german as unknown as Record<string, string[]>).filter(([text]) => text !== ""));

/** Files whose texts the model reads, as results of its calls or as notes beside a message: they stay English. */
const FOR_THE_MODEL = ["lab/clientCalls.ts", "lab/edits.ts", "lab/runCells.ts", "notebook/shorten.ts"];
/** Files with names and code instead of texts. */
const NAMES = ["lab/icon.ts", "lab/notebookSnapshot.ts", "lab/outputs.ts", "markdown/sanitise.ts", "media/htmlGrid.ts"];
/** Literals that look like texts, by file: code, names, and messages for developers. */
const NOT_SHOWN: Record<string, readonly string[]> = {
  "conversation/composerState.ts": [
    "Active cell",
    "Selected cell",
    "The newest error, of this cell",
    "error of cell …", // shownTitle translates it
  ],
  "conversation/conversation.ts": ["session without a notebook"],
  "conversation/outgoingMessages.ts": ["The message was taken back."], // serverText translates it
  "conversation/panelContext.ts": ["This component must be rendered inside of a panel.", "outside of a panel"],
  "conversation/preferences.ts": ["enter makes a new line"],
  "conversation/sessions.ts": ["no upload"],
  "lab/commands.ts": ["Accel Shift L", "Notebook"],
  "lab/container.ts": ["agent-kernel has no module …"],
  "lab/draggedFiles.ts": [".ak-composer textarea"],
  "lab/fix.ts": ["%agent fix In[…] …"],
  "lab/hint.ts": ["agent-kernel: the hint for the first notebook could not be shown."],
  "lab/inlineCompletion.ts": ["agent-kernel: the code cannot be completed. …"],
  "lab/missingServer.ts": ["jupyter server extension enable jupyter_ext", "jp-mod-styled jp-mod-accept"],
  "lab/places.ts": ["ak-at-cell ak-at-…"],
  "lab/plugin.ts": ["The settings of the chat panel of agent-kernel.", "The chat panel of agent-kernel."],
  "lab/prompts.ts": ["Cell …, …, id …", "Output of cell …", "Selected in …", "output of …"],
  "lab/sidebar.ts": ["agent-kernel: the settings of the panel cannot be loaded; their defaults apply."],
  "lab/status.ts": ["ak-status jp-StatusBar-TextItem"],
  "markdown/elements.tsx": ["noopener noreferrer nofollow"],
  "media/Media.tsx": ["plotly"],
  "media/Picture.tsx": ["no frames"],
  "media/rows.ts": ["NaN", "NaT", "True", "False"],
  "transport/server.ts": ["Authorization", "Content-Type"],
  "turn/turn.ts": [
    "The live events of this turn no longer exist. Read its stored events from the beginning (after=0).",
  ],
  "view/Call.tsx": ["%agent keep …"],
  "view/Composer.tsx": ["Files"],
  "view/Import.tsx": ["string", "number", "boolean"],
  "view/ModelServers.tsx": ["http://localhost:8000/v1"],
  "view/Header.tsx": [".ak-composer textarea"],
  "view/OutdatedChange.tsx": [
    "The cell has changed since. Read it again, and propose the change for its new text.", // the model reads it
  ],
  "view/Source.tsx": ["U+"],
  "view/StateCardList.tsx": ["a larger model was offered", ".ak-composer textarea"],
  "webapp/login.ts": [
    "cat ~/.local/share/agent-kernel/serve-token",
    "agent-kernel token new --user NAME \\\n  --scope turns --scope sessions \\\n  --scope files",
  ],
};
const isCode = (text: string): boolean => text.includes("import json") || text.includes("Its output:");

test("the check finds texts that bypass the translation", () => {
  const source = `
    const a = <p title="Two words">Hello {name}{late && "late"}</p>;
    const b = key === "Enter" ? trans.__("Press %1", "the key") : \`\${n} turns\`;
    const c = trans.__(label);
    const e = () => trans.__("late");
    const d = { gone: "removed: ", kind: "note", where: "http:" };
  `;
  expect(literalsOf("a.tsx", source)).toEqual({
    translated: [{ one: "Press %1" }, { one: "late" }],
    bypassing: ["Two words", "Hello", "late", "the key", "removed: "],
    computed: ["trans.__(label)"],
    early: ['trans.__("Press %1", "the key")', "trans.__(label)"],
  });
});

test("no text of the panel bypasses the translation", () => {
  const bypassing = [...FOUND].flatMap(([file, { bypassing: texts }]) => {
    if ([...FOR_THE_MODEL, ...NAMES].includes(file)) return [];
    return texts.filter((text) => !NOT_SHOWN[file]?.includes(text) && !isCode(text)).map((text) => `${file}: ${text}`);
  });
  expect(bypassing).toEqual([]);
});

test("every text is a literal where it is translated, so that the catalog can be compared with it", () => {
  const computed = [...FOUND].flatMap(([file, { computed: calls }]) => calls.map((call) => `${file}: ${call}`));
  expect(computed).toEqual([
    "lab/preferences.ts: texts.__(value)", // the schema, see below
    "translation/translation.ts: current.texts.__(text, ...values)",
    "translation/translation.ts: current.texts._n(one, many, count, ...values)",
  ]);
});

test("no text is translated while its module is loaded", () => {
  expect([...FOUND].flatMap(([file, { early }]) => early.map((call) => `${file}: ${call}`))).toEqual([]);
});

test("the German catalog has every text with the same values, and no other", () => {
  const wanted = new Map<string, number>();
  for (const { translated } of FOUND.values()) for (const { one, many } of translated) wanted.set(one, many ? 2 : 1);
  for (const text of textsOfSchema(settings)) wanted.set(text, 1);
  expect([...wanted.keys()].filter((text) => !CATALOG.has(text))).toEqual([]);
  expect([...CATALOG.keys()].filter((text) => !wanted.has(text))).toEqual([]);
  for (const [text, forms] of CATALOG) {
    expect(forms, text).toHaveLength(wanted.get(text) ?? 0);
    for (const form of forms) {
      expect(form.trim(), text).not.toBe("");
      // The form for 1 may write the number as a word.
      if (forms.length === 1) expect(valuesOf(form), text).toEqual(valuesOf(text));
    }
  }
});

test("JupyterLab finds the catalog by its language and its domain", () => {
  expect(german[""]).toMatchObject({ domain: "agent_kernel", language: "de-DE" });
  expect(german[""].plural_forms).toBe("nplurals=2; plural=(n != 1);");
});

const valuesOf = (text: string): string[] => [...new Set(text.match(/%\d/g) ?? [])].sort();

function textsOfSchema(schema: unknown): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  return Object.entries(schema).flatMap(([name, value]: [string, unknown]) =>
    typeof value === "string"
      ? ["title", "description", "jupyter.lab.setting-icon-label"].includes(name)
        ? [value]
        : []
      : textsOfSchema(value),
  );
}
