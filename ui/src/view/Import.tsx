/** Imports a conversation from a document, after a preview. */
import { useSignal } from "@preact/signals";
import { useDesk } from "../conversation/panelContext";
import { Problem } from "./Problem";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

/** The server's limit for one document. */
const MAX_BYTES = 32 * 2 ** 20;

export function Import() {
  const desk = useDesk();
  const file = useSignal<File | null>(null);
  const seen = useSignal<Record<string, unknown> | null>(null);
  const problem = useSignal("");
  const chosen = (given: File | null) => {
    seen.value = null;
    problem.value = given && given.size > MAX_BYTES ? trans.__("A document has at most %1 MiB.", MAX_BYTES >> 20) : "";
    file.value = problem.value ? null : given;
    if (!file.value) return;
    desk.sessions.preview(file.value).then(
      (preview) => {
        if (file.value === given) seen.value = preview; // the user may have chosen another file in the meantime
      },
      (error: unknown) => {
        if (file.value === given) problem.value = errorMessage(error);
      },
    );
  };
  return (
    <>
      <p class="ak-hint">
        {trans.__(
          "A conversation that was exported from agent-kernel, on this or another machine. Imported text is not trusted: code in it does not run by itself.",
        )}
      </p>
      <input
        type="file"
        aria-label={trans.__("Document to import")}
        accept=".json,.jsonl"
        onChange={(event) => chosen(event.currentTarget.files?.[0] ?? null)}
      />
      <Problem text={problem.value} />
      {seen.value && (
        <>
          <dl class="ak-facts" aria-label={trans.__("Preview of the import")}>
            {Object.entries(seen.value)
              .filter(([, value]) => ["string", "number", "boolean"].includes(typeof value) && value !== "")
              .map(([name, value]) => (
                <div key={name}>
                  <dt>{name.replaceAll("_", " ")}</dt>
                  <dd>{String(value)}</dd>
                </div>
              ))}
          </dl>
          <button
            type="button"
            onClick={() => {
              const { value } = file;
              desk.open("");
              if (value) void desk.trying(() => desk.sessions.bring(value));
            }}
          >
            {desk.conversation.query
              ? trans.__("Import it and continue with it in this notebook")
              : trans.__("Import it")}
          </button>
        </>
      )}
    </>
  );
}
