import { expect, test } from "vitest";
import { drawable } from "../../src/media/bundle";

async function drawn(bundle: object | string): Promise<[string, string]> {
  const text = typeof bundle === "string" ? bundle : JSON.stringify(bundle);
  const part = await drawable(new Blob([text]));
  return [part.type, await part.text()];
}

test("of a bundle the richest part is drawn that can be drawn here", async () => {
  const table = "<table><tr><td>1</td></tr></table>";
  expect(await drawn({ "text/plain": "   a\n0  1", "text/html": table })).toEqual(["text/html", table]);
  expect(await drawn({ "text/html": ["<b>", "x</b>"] })).toEqual(["text/html", "<b>x</b>"]);
  const figure = { data: [{ y: [1] }] };
  expect(await drawn({ "text/html": table, "application/vnd.plotly.v1+json": figure })).toEqual([
    "application/vnd.plotly.v1+json",
    JSON.stringify(figure),
  ]);
  expect((await drawn({ "application/json": { a: 1 }, "text/plain": "<JSON>" }))[0]).toBe("application/json");
});

test("of HTML that is nothing but scripts, and of what is no bundle, the text is shown", async () => {
  expect(await drawn({ "text/html": "<script>alert(1)</script>", "text/plain": "<Map>" })).toEqual([
    "text/plain",
    "<Map>",
  ]);
  expect(await drawn({ "application/vnd.other+json": {}, "text/plain": "x" })).toEqual(["text/plain", "x"]);
  for (const broken of ["", "[1]", "null", "{"]) expect(await drawn(broken)).toEqual(["text/plain", ""]);
});
