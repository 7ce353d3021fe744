import { expect, test } from "vitest";
import { isAgentCell } from "../../src/notebook/agentCells";

test("cells that talk to the agent are told from cells with code", () => {
  const agent = [
    "%%agent\nhow much rain?",
    "  %%agent --live\nx",
    "%agent help",
    "# look\n%agent models\n\n%agent help",
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
