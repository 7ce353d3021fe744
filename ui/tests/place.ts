/** An element of the page that lasts for one test, with what is rendered into it. */
import { render } from "preact";

export let place: HTMLElement;

/** setup.ts calls it before each test. */
export function addPlace(): void {
  place = document.body.appendChild(document.createElement("div"));
}

/** setup.ts calls it after each test. */
export function removePlace(): void {
  render(null, place);
  place.remove();
}
