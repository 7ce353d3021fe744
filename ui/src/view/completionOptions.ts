/** The options that the composer offers after `/` and `@`, and what choosing one does. */
import { COMMANDS } from "../conversation/commands";
import { rank, type Completion } from "../conversation/completion";
import type { Desk } from "../conversation/panelState";
import { trans } from "../translation/translation";

export interface Option {
  name: string;
  help: string;
  /** The text that replaces what the user typed. */
  text: string;
  take: () => void;
}

/** How many variables and parts of the notebook are offered at once. The user types more letters to find others. */
const MENTIONS = 8;

const parts = () => ({
  cell: trans.__("the active cell"),
  cells: trans.__("the selected cells"),
  error: trans.__("the last error"),
});

export function options(desk: Desk, { kind, query }: Completion): Option[] {
  return kind === "command" ? rank(commands(desk), query, Infinity) : rank(mentions(desk), query, MENTIONS);
}

function commands(desk: Desk): Option[] {
  return COMMANDS.filter((command) => command.enabled(desk)).map(({ name, label, help }) => ({
    name,
    help: `${label().replace("...", "")}. ${help()}`,
    text: `/${name} `,
    take: () => undefined,
  }));
}

function mentions(desk: Desk): Option[] {
  const { notebook } = desk.conversation;
  const there = {
    cell: notebook?.activeCell.value ?? null,
    cells: (notebook?.selectedCells.value.length ?? 0) > 1,
    error: notebook?.lastError?.value ?? null,
  };
  const sides = (["cell", "cells", "error"] as const)
    .filter((side) => there[side])
    .map((side) => ({
      name: side,
      help: parts()[side],
      text: parts()[side],
      take: () => desk.composing.takeAlong(side),
    }));
  const variables = desk.variables.value.map(({ name, summary }) => ({
    name,
    help: summary,
    text: `${name} `,
    take: () => void desk.attachVariable(name),
  }));
  return [...variables, ...sides];
}
