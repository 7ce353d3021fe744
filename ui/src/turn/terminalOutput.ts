/** Converts terminal output to pieces of plain text, each with a colour. Other control sequences are removed and never
 * reach the page. */

export interface Piece {
  text: string;
  /** A class name: one of 8 colours or its `bright-` variant; empty for none. */
  colour: string;
  bold: boolean;
}

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const SEQUENCE = /\x1b(?:\[([0-9;:?<=>]*)[ -/]*([@-~]|$)|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

export function parseTerminalOutput(output: string): Piece[] {
  const pieces: Piece[] = [];
  let style = { colour: "", bold: false };
  let from = 0;
  const add = (text: string) => {
    const clean = text.replace(CONTROLS, "");
    if (clean) pieces.push({ text: clean, ...style });
  };
  const whole = applyCarriageReturns(output);
  for (const found of whole.matchAll(SEQUENCE)) {
    add(whole.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") style = applyStyle(style, found[1] ?? "");
  }
  add(whole.slice(from));
  return pieces;
}

export const plainText = (output: string): string =>
  parseTerminalOutput(output)
    .map((piece) => piece.text)
    .join("");

/** Keep only the last state of a line that was overwritten, as a progress bar does. */
function applyCarriageReturns(output: string): string {
  if (!output.includes("\r")) return output;
  return output
    .split("\n")
    .map((line) => {
      const states = line.split("\r").filter((state) => state !== "");
      return states.at(-1) ?? "";
    })
    .join("\n");
}

function applyStyle(style: { colour: string; bold: boolean }, codes: string): { colour: string; bold: boolean } {
  let { colour, bold } = style;
  const all = (codes || "0").split(/[;:]/).map(Number);
  for (let index = 0; index < all.length; index++) {
    const code = all[index] ?? 0;
    if (code === 0) [colour, bold] = ["", false];
    else if (code === 1) bold = true;
    else if (code === 22) bold = false;
    else if (code === 39) colour = "";
    else if (code >= 30 && code <= 37) colour = COLOURS[code - 30] ?? "";
    else if (code >= 90 && code <= 97) colour = `bright-${COLOURS[code - 90] ?? ""}`;
    else if (code === 38 || code === 48) {
      // A palette colour (256) or an RGB colour: only the first 16 of the palette have names.
      const one = all[index + 1] === 5 ? (all[index + 2] ?? -1) : -1;
      if (code === 38) colour = one >= 0 && one < 16 ? `${one > 7 ? "bright-" : ""}${COLOURS[one % 8] ?? ""}` : colour;
      index += all[index + 1] === 5 ? 2 : 4;
    }
  }
  return { colour, bold };
}
