/** Puts elements, such as keys and links, into a translated sentence. */
import { Fragment, type ComponentChildren } from "preact";

/** Put `parts` in the places of `%1`, `%2` of a sentence that was translated with these marks as its values:
 * `withParts(trans.__("Press %1.", "%1"), <kbd>A</kbd>)`. */
export function withParts(sentence: string, ...parts: readonly ComponentChildren[]): ComponentChildren {
  return sentence.split(/(%\d)/).map((piece, at) => {
    const place = /^%(\d)$/.exec(piece)?.[1];
    return <Fragment key={at}>{place === undefined ? piece : (parts[Number(place) - 1] ?? piece)}</Fragment>;
  });
}
