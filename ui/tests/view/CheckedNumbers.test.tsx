// @vitest-environment jsdom
import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeEach, expect, test } from "vitest";
import { place } from "../place";
import { Markdown } from "../../src/markdown/Markdown";
import { CheckedNumbers } from "../../src/view/CheckedNumbers";
import { revealedCall } from "../../src/view/revealedCall";
import type { CheckedNumber } from "../../src/wire/events";

const computed = (text: string, line = 2): CheckedNumber => ({
  start: 0,
  end: text.length,
  text,
  status: "computed",
  call: "call-1",
  line,
  shown: `mean ${text}871`,
});
const open = (text: string): CheckedNumber => ({ start: 0, end: text.length, text, status: "open" });

beforeEach(() => {
  revealedCall.value = null;
});

function show(text: string, numbers: CheckedNumber[]): void {
  void act(() => {
    render(
      <CheckedNumbers numbers={numbers}>
        <Markdown text={text} done />
      </CheckedNumbers>,
      place,
    );
  });
}

test("a computed number is a button that leads to its line", () => {
  show("The mean is **41.3** of 150 rows.", [computed("41.3"), computed("150", 3)]);
  const buttons = [...place.querySelectorAll("button")];
  expect(buttons.map((button) => button.textContent)).toEqual(["41.3", "150"]);
  expect(buttons[0]?.title).toBe("computed, line 2 of the output: mean 41.3871");
  buttons[1]?.click();
  expect(revealedCall.value).toEqual({ call: "call-1", line: 3 });
});

test("a number that was not computed says so in words, not by its looks alone", () => {
  show("It fell by 7% to 12.", [open("7%"), computed("12")]);
  const marked = place.querySelector(".ak-number-open");
  expect(marked?.textContent).toBe("7% (not computed)");
  expect(marked?.getAttribute("title")).toBe("not computed");
  expect(place.textContent).toBe("It fell by 7% (not computed) to 12.");
});

test("a part of a longer number or of a name is not marked", () => {
  show("41.31 and 141.3, v41.3 and 41.3.", [open("41.3")]);
  expect(place.querySelectorAll(".ak-number-open")).toHaveLength(1);
});

test.each(["-3.2", "2e-3", "+3.2", "-7%", "1/2", "(3)", "$5"])(
  "%s is marked, whatever signs it is written with",
  (text) => {
    show(`It is ${text} now.`, [open(text)]);
    expect(place.querySelector(".ak-number-open")?.textContent).toBe(`${text} (not computed)`);
  },
);

test("numbers beside letters that need no spaces are marked", () => {
  show("共有150行", [open("150")]);
  expect(place.querySelectorAll(".ak-number-open")).toHaveLength(1);
});

test("what the person said themselves, and code, stay as they are", () => {
  show("The top 5 of `5`", [{ start: 0, end: 1, text: "5", status: "given" }]);
  expect(place.querySelector("button, .ak-number-open")).toBeNull();
});

test("a line of output is shown as text, whatever it holds", () => {
  show("It is 5.", [{ ...computed("5"), shown: '"><img src=x onerror=alert(1)>' }]);
  expect(place.querySelector("img")).toBeNull();
  expect(place.querySelector("button")?.title).toContain("<img");
});
