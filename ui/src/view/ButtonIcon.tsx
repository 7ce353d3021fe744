/** Filled icons of buttons, drawn in the text colour. Screen readers read the label of the button in their place. */
const PATHS = {
  more: "M3 7h2v2H3zM7 7h2v2H7zM11 7h2v2h-2z",
  close: "M4 3l4 4 4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4-4-4z",
  stop: "M4 4h8v8H4z",
  attach:
    "M11 4v7a3 3 0 0 1-6 0V4a2 2 0 0 1 4 0v6.5a1 1 0 0 1-2 0V5H6v5.5a2 2 0 0 0 4 0V4a3 3 0 0 0-6 0v7a4 4 0 0 0 8 0V4z",
  back: "M9.5 3L11 4.4 7.4 8 11 11.6 9.5 13l-5-5z",
} as const;

export function ButtonIcon({ sign }: { sign: keyof typeof PATHS }) {
  return (
    <svg class="ak-glyph" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[sign]} fill="currentColor" />
    </svg>
  );
}
