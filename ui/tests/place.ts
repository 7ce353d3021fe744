/** An element of the page that lasts for one test, with what is rendered into it. Importing this file makes it. */
import { render } from "preact";
import { afterEach, beforeEach } from "vitest";

export let place: HTMLElement;

beforeEach(() => {
  place = document.body.appendChild(document.createElement("div"));
});

afterEach(() => {
  render(null, place);
  place.remove();
});
