import { describe, expect, it } from "vitest";
import type { IOutput } from "@jupyterlab/nbformat";
import { asks, newest, shows, TURN_MIME } from "../../src/lab/arrived";
import type { StoredTurn } from "../../src/wire/api";

const turn = (id: string, cell: string) => ({ turn: id, cell }) as StoredTurn;
const record = (id: string, state: string) =>
  [{ output_type: "display_data", data: { [TURN_MIME]: { turn: id, state } } }] as unknown as IOutput[];

describe("turns that ended with nobody there", () => {
  it("count once for each cell, the last one", () => {
    const turns = [turn("1", "a"), turn("2", ""), turn("3", "b"), turn("4", "a")];
    expect(newest(turns).map((one) => one.turn)).toEqual(["4", "3"]);
  });

  it("are wanted only by a cell that still asks what they answered", () => {
    expect(asks("%%agent --in live\nwhat is in {df}?\n", "what is in df?")).toBe(true);
    expect(asks("%%agent what is it\n", "what is it")).toBe(true);
    expect(asks("%%agent\nsomething else", "what is it")).toBe(false);
    expect(asks("print('what is it')", "what is it")).toBe(false);
    expect(asks("%%agent\nwhat is it", "  ")).toBe(false);
  });

  it("are shown already where their end is", () => {
    expect(shows(record("t", "committed"), "t")).toBe(true);
    expect(shows(record("t", "open"), "t")).toBe(false);
    expect(shows(record("other", "committed"), "t")).toBe(false);
    expect(shows([], "t")).toBe(false);
  });
});
