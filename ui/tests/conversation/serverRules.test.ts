import { expect, test } from "vitest";
import { BrowserPreferences } from "../../src/conversation/browserPreferences";
import { turnBody } from "../../src/conversation/entry";
import { DEFAULTS } from "../../src/conversation/preferences";
import { ServerRules, type Rules } from "../../src/conversation/serverRules";
import { ApiError, type Transport } from "../../src/transport/transport";

type Permission = Rules["policy"][string]["permission"];

function rulesWith(policy: Record<string, Permission>, web = false): ServerRules {
  const rulings = Object.entries(policy).map(([kind, permission]) => [
    kind,
    { permission, because: "the administrator", firm: false },
  ]);
  const answer = { policy: Object.fromEntries(rulings) as Rules["policy"], effort: "auto", instructions: false, web };
  return new ServerRules({ request: () => Promise.resolve(answer) } as unknown as Transport);
}

test("code runs in the next place below the one that the server does not allow", async () => {
  const rules = rulesWith({ "python.live": "deny", "python.draft": "ask" });
  expect(rules.nearest("live")).toBe("live"); // not loaded yet; the server decides in any case
  await rules.load();
  expect(rules.nearest("live")).toBe("draft");
  expect(rules.nearest("draft")).toBe("draft");
  expect(rules.denial("live")).toBe("the administrator");
});

test("a server that allows no place gets what the user wanted, and refuses it", async () => {
  const rules = rulesWith({ "python.live": "deny", "python.draft": "deny", "python.sandbox": "deny" });
  await rules.load();
  expect(rules.nearest("draft")).toBe("draft");
});

test("a server that does not answer fixes nothing", async () => {
  const failing = () => Promise.reject(new ApiError(0, { code: "offline", message: "" }));
  const rules = new ServerRules({ request: failing } as unknown as Transport);
  await rules.load();
  expect(rules.denial("live")).toBe("");
});

test("a turn is sent with what the user prefers, unless the draft says otherwise", () => {
  const wishes = { ...DEFAULTS, place: "live", effort: "thorough", instructions: "In Latin." } as const;
  expect(turnBody({ prompt: "x" }, undefined, "k", wishes)).toMatchObject({
    where: "live",
    effort: "thorough",
    instructions: "In Latin.",
  });
  expect(turnBody({ prompt: "x", options: { where: "sandbox" } }, undefined, "k", wishes)).toMatchObject({
    where: "sandbox",
  });
  const plain = turnBody({ prompt: "x" }, undefined, undefined, new BrowserPreferences().values.value);
  expect(Object.keys(plain)).not.toContain("effort");
  expect(Object.keys(plain)).not.toContain("instructions");
  expect(Object.keys(plain)).not.toContain("where");
});

test("a turn without a notebook asks for the web tools where the server has them, and nowhere else", async () => {
  for (const web of [true, false]) {
    const rules = rulesWith({}, web);
    await rules.load();
    const body = turnBody({ prompt: "x" }, undefined, undefined, rules.apply(DEFAULTS));
    expect(body["web"]).toEqual(web ? {} : undefined);
  }
});
