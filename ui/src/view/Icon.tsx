/** Icons beside words; they add nothing to the meaning. */
import type { Kind } from "../turn/labels";

const PATHS: Record<Kind | "reasoning" | "warning" | "info" | "down" | "left" | "right" | "download", string> = {
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
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  download: "M8 2v8M5 7l3 3 3-3M3 13h10",
};

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="ak-icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round" />
    </svg>
  );
}
