/** JSON as a tree; a level is rendered when it is opened. */
import { useSignal } from "@preact/signals";
import { trans } from "../translation/translation";

const MAX_ENTRIES = 100;
const MAX_TEXT = 300;

export function JsonTree({ value, name = "" }: { value: unknown; name?: string }) {
  const open = useSignal(false);
  const label = name ? `${name}: ` : "";
  if (typeof value !== "object" || value === null) {
    const text = JSON.stringify(value) as string | undefined;
    return (
      <div class="ak-json">
        {label}
        <code>{(text ?? "").slice(0, MAX_TEXT)}</code>
      </div>
    );
  }
  const entries = Object.entries(value as Record<string, unknown>);
  return (
    <details class="ak-json" onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        {label}
        {Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}
      </summary>
      {open.value &&
        entries.slice(0, MAX_ENTRIES).map(([key, inner]) => <JsonTree key={key} name={key} value={inner} />)}
      {open.value && entries.length > MAX_ENTRIES && <p>{trans.__("%1 more", entries.length - MAX_ENTRIES)}</p>}
    </details>
  );
}
