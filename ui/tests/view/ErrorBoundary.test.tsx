import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { place } from "../place";
import { ErrorBoundary } from "../../src/view/ErrorBoundary";

beforeEach(() => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
});
afterEach(() => {
  vi.restoreAllMocks();
});

let drawn = 0;
function Part({ text }: { text: string }) {
  drawn += 1;
  if (text.includes("bad")) throw new Error("hostile");
  return <p>{text}</p>;
}
const show = (text: string): void =>
  void act(() =>
    render(
      <ErrorBoundary of={text} text={text}>
        <Part text={text} />
      </ErrorBoundary>,
      place,
    ),
  );

test("what fails is a note with its plain text, tried once; what comes in its place is drawn", () => {
  show("good");
  show("bad <b>");
  expect(place.textContent).toBe("This part could not be shown.bad <b>");
  drawn = 0;
  show("bad <b>");
  expect(drawn).toBe(0);
  show("good again");
  expect(place.innerHTML).toBe("<p>good again</p>");
});
