/** Stroked icons beside words or on buttons. Screen readers read the words, or the label of the button, in their place. */
const PATHS = {
  read: "M2 4h5v9H2zM9 4h5v9H9z",
  run: "M4 3l8 5-8 5z",
  edit: "M3 13l1-3 7-7 2 2-7 7zM10 4l2 2",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  web: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM2 8h12M8 2c-4 4-4 8 0 12M8 2c4 4 4 8 0 12",
  tool: "M8 2v3M8 11v3M2 8h3M11 8h3M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  reasoning: "M3 8a5 4.5 0 1 1 5 4.5H5L3 14z",
  warning: "M8 2l6 11H2zM8 6v4M8 11.5v.5",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7v4M8 4.5v.5",
  down: "M8 3v9M4 8l4 4 4-4",
  copy: "M5 5h8v9H5z M3 11V2h8",
  above: "M3 13h10 M3 10h10 M8 7V2 M5.5 4.5 8 2l2.5 2.5",
  below: "M3 3h10 M3 6h10 M8 9v5 M5.5 11.5 8 14l2.5-2.5",
  replace: "M3 6h9 M9.5 3.5 12 6 9.5 8.5 M13 10H4 M6.5 7.5 4 10l2.5 2.5",
  play: "M5 3l8 5-8 5z",
  pause: "M5 3v10 M11 3v10",
  previous: "M11 3 5 8l6 5z M3 3v10",
  next: "M5 3l6 5-6 5z M13 3v10",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  cell: "M2 3h12v6H2z M8 11v4 M6 13h4",
  save: "M8 2v8 M5 7l3 3 3-3 M3 13h10",
  enlarge: "M9 3h4v4 M13 3 9 7 M7 13H3V9 M3 13l4-4",
  notebook: "M4 2h9v12H4z M7 2v12 M2 5h2 M2 8h2 M2 11h2",
  code: "M6 4 2 8l4 4 M10 4l4 4-4 4",
  picture: "M2 3h12v10H2z M2 11l4-4 3 3 2-2 3 3",
  close: "M3 3l10 10 M13 3 3 13",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="ak-icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" />
    </svg>
  );
}

/** An icon button on the bar of a code block or of media. */
export function IconButton({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="ak-code-tool" title={label} aria-label={label} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}
