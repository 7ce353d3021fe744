import { expect, test } from "vitest";
import { isAgentCell, isSwitchedToAsk, offersToAsk, promptOf } from "../../src/notebook/agentCells";

const ASK = { agent_kernel: { ask: true } };

test("the prompt of a cell is the text behind > on each line, or all of it where the cell was switched to Ask", () => {
  expect(promptOf("> one\n  > two\n>\n>>> code()\nthree")).toBe("one\ntwo\n\n>>> code()\nthree");
  expect(promptOf("plot df", ASK)).toBe("plot df");
  expect(promptOf("> plot df", ASK)).toBe("plot df");
  expect([promptOf("%%agent\nplot", ASK), promptOf(">>> x"), promptOf("x > 1"), promptOf("plot df", {})]).toEqual([
    null,
    null,
    null,
    null,
  ]);
});

test("metadata of another kind say nothing", () => {
  const strange = [undefined, null, 1, "ask", [], { agent_kernel: null }, { agent_kernel: { ask: "true" } }];
  expect(strange.map(isSwitchedToAsk)).toEqual(strange.map(() => false));
  expect([offersToAsk({ agent_kernel: { offer: "ask" } }), offersToAsk(ASK)]).toEqual([true, false]);
});

test("cells that talk to the agent are told from cells with code", () => {
  const agent = [
    "%%agent\nhow much rain?",
    "  %%agent --live\nx",
    "%agent help",
    "# look\n%agent models\n\n%agent help",
    "> how much rain?",
  ];
  const code = [
    "",
    "x = 1",
    "%%agentless\nx",
    "x = 1\n%agent help",
    "%agent help\nx = 1",
    "# %agent help",
    "'%agent help'",
  ];
  expect(agent.map(isAgentCell)).toEqual(agent.map(() => true));
  expect(code.map(isAgentCell)).toEqual(code.map(() => false));
});
