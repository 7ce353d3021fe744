import { describe, expect, it } from "vitest";
import type { IOutput } from "@jupyterlab/nbformat";
import { hasError, MAX_WORDS, words } from "../../src/lab/outputs";
import { shorten } from "../../src/notebook/shorten";

const outputs = (...given: object[]) => given as IOutput[];

describe("outputs in words", () => {
  it("are what was printed, the error without its colours, and the names of pictures", () => {
    const shown = words(
      outputs(
        { output_type: "stream", name: "stdout", text: ["one\n", "two\n"] },
        {
          output_type: "display_data",
          data: { "text/plain": "<Figure>", "image/png": "AAAA", "text/html": "<b>x</b>" },
        },
        { output_type: "error", ename: "E", evalue: "v", traceback: ["\u001b[31mZero\u001b[0m", "at 1"] },
      ),
    );
    expect(shown).toBe("one\ntwo\n\n<Figure>\n[image/png]\nZero\nat 1");
  });

  it("name an error that has no traceback", () => {
    const failed = outputs({ output_type: "error", ename: "ValueError", evalue: "no", traceback: [] });
    expect(words(failed)).toBe("ValueError: no");
    expect([hasError(failed), hasError([])]).toEqual([true, false]);
  });

  it("are no failure when a person has stopped the cell, or the agent's magic says no", () => {
    const raised = (ename: string) => outputs({ output_type: "error", ename, evalue: "", traceback: [ename] });
    const failures = ["KeyboardInterrupt", "AgentInterrupted", "AgentError", "ZeroDivisionError"].map(raised);
    expect(failures.map(hasError)).toEqual([false, false, false, true]);
  });

  it("keep head and tail of what is long", () => {
    const long = `head${"x".repeat(3 * MAX_WORDS)}tail`;
    const short = shorten(long, MAX_WORDS);
    expect(short.startsWith("head") && short.endsWith("tail")).toBe(true);
    expect(short.length).toBeLessThan(MAX_WORDS + 100);
  });

  it("survive what is no output of a notebook", () => {
    expect(words(outputs({ output_type: "display_data" }, { output_type: "error" }, {}))).toBe(": ");
  });
});
