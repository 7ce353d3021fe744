import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import type { Meanwhile } from "../../src/wire/bodyTypes";
import type { TurnView } from "../../src/turn/turn";
import { SinceLastVisitCard } from "../../src/view/StateCardList";
import { asks, call, more } from "../turn/events";
import { Desked } from "./desked";
import { turnOf } from "./stage";

const ASKED = { approval: "a1", label: "edit_cell", name: "edit_cell", target: "client" };

test("a change that waits is named in the user's words, until it is decided", async () => {
  const desked = new Desked();
  const view = signal<TurnView>(
    more(turnOf("t"), call("c", "edit_cell", { cell: "c1" }), asks("c", { approval: "a1", target: "client" })),
  );
  desked.conversation.entries.value = [{ id: "t", prompt: "tidy", cell: "", context: [], view }];
  desked.desk.away.news.value = { ...desked.server.meanwhile, approvals: [ASKED] as unknown as Meanwhile["approvals"] };
  await desked.show(<SinceLastVisitCard />);
  expect(desked.find("li").textContent).toBe("Edit cell in the open notebook waits for your answer");
  await act(async () => {
    const answer = { approval: "a1", call: "c", decision: "approve", reason: "approved", edited: null };
    view.value = more(view.value, ["approval.resolved", answer]);
    await desked.server.settled();
  });
  expect(desked.page.textContent).toBe("");
  desked.close();
});
