/** Cards about the conversation file beside the notebook: they offer to import a conversation that came with the
 * notebook, after a preview, and show whether the current conversation is saved in the file. Texts of the file are not
 * trusted and are only rendered as text. */
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../transport/transport";
import { formatBytes } from "../turn/labels";
import type { Arrival, Sidecar } from "../wire/bodyTypes";
import "./arrivals.css";
import { withParts } from "./withParts";
import { Problem } from "./Problem";
import { usePanel } from "../conversation/panelContext";
import { serverText } from "../turn/serverTexts";
import { formatMoment, trans } from "../translation/translation";

/** Notes of the server about this file that these cards show, so that they are not shown a second time. */
export const shownNotes = signal<readonly string[]>([]);

/** Hashes of the conversation files whose import the user declined. They are kept until the page is closed. */
const refused = new Set<string>();

export function SidecarCards() {
  const { conversation, host } = usePanel();
  const beside = useSignal<Sidecar | null>(null);
  const hidden = useSignal("");
  const bound = host.notebook?.bound.value ?? null;
  const path = bound?.path ?? "";
  const session = conversation.session.value?.id;
  const idle = conversation.running.value.length === 0;
  useEffect(() => {
    beside.value = null;
    if (!path || !idle) return;
    let gone = false;
    host.transport.request<Sidecar>("GET", `beside?path=${encodeURIComponent(path)}`).then(
      (found) => {
        if (gone) return;
        beside.value = found;
        shownNotes.value = [found.told, found.problem].filter(Boolean);
      },
      () => undefined, // the connection card already shows that the server does not answer
    );
    return () => {
      gone = true;
    };
  }, [path, session, idle]);
  const found = beside.value;
  if (!found) return null;
  const arrival = found.arrival;
  const offered = arrival && hidden.value !== arrival.sha256 && !refused.has(arrival.sha256) ? arrival : null;
  return (
    <>
      {offered && (
        <Offer
          beside={found}
          arrival={offered}
          bring={async () => {
            const query = `path=${encodeURIComponent(path)}`;
            await host.transport.request("POST", `beside?${query}`, { sha256: offered.sha256 });
            await conversation.bind(bound?.kernel ?? "", path);
          }}
          close={() => {
            refused.add(offered.sha256);
            hidden.value = offered.sha256;
          }}
        />
      )}
      <Saved beside={found} />
    </>
  );
}

interface Offered {
  beside: Sidecar;
  arrival: Arrival;
  bring: () => Promise<void>;
  close: () => void;
}

function Offer({ beside, arrival, bring, close }: Offered) {
  const open = useSignal(false);
  const busy = useSignal(false);
  const problem = useSignal("");
  const come = () => {
    busy.value = true;
    problem.value = "";
    bring()
      .catch((error: unknown) => {
        problem.value = error instanceof ApiError ? error.message : trans.__("The import failed.");
      })
      .finally(() => {
        busy.value = false;
      });
  };
  const ahead = beside.kind === "ahead";
  return (
    <section class="ak-arrival" aria-label={trans.__("A conversation beside this notebook")}>
      <p>
        {withParts(
          ahead
            ? trans.__("%1 has more of this conversation than this server.", "%1")
            : trans.__("%1 came with this notebook.", "%1"),
          <strong>{beside.name}</strong>,
        )}
      </p>
      {arrival.refused ? (
        <p class="ak-problem">{trans.__("It cannot be imported: %1", arrival.refused)}</p>
      ) : (
        <p class="ak-quiet">
          {trans._n("%1 turn", "%1 turns", arrival.turns)}
          {arrival.title && `, “${arrival.title}”`}.{" "}
          {trans.__(
            "It becomes a separate conversation; yours stays as it is. Imported text is not trusted: you are asked again before code runs in your kernel.",
          )}
        </p>
      )}
      {open.value && !arrival.refused && <Facts arrival={arrival} size={beside.size} />}
      <Problem text={problem.value} />
      <div class="ak-arrival-actions">
        {!arrival.refused && (
          <>
            <button type="button" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
              {open.value ? trans.__("Hide the preview") : trans.__("Preview")}
            </button>
            <button type="button" class="ak-primary" disabled={busy.value} onClick={come}>
              {busy.value ? trans.__("Importing") : trans.__("Import")}
            </button>
          </>
        )}
        <button type="button" onClick={close}>
          {trans.__("Not now")}
        </button>
      </div>
    </section>
  );
}

function Facts({ arrival, size }: { arrival: Arrival; size: number }) {
  const out = Object.entries(arrival.left_out).map(([what, count]) => `${count} ${what}`);
  const facts: [string, string][] = [
    [trans.__("begins"), arrival.begins],
    [trans.__("last used"), arrival.updated ? formatMoment(arrival.updated) : ""],
    [trans.__("models"), arrival.models.join(", ")],
    [trans.__("messages"), trans._n("%2 on %1 branch", "%2 on %1 branches", arrival.branches, arrival.messages)],
    [trans.__("pictures"), arrival.media ? `${arrival.media}, ${formatBytes(arrival.media_bytes)}` : trans.__("none")],
    [trans.__("files"), arrival.files ? String(arrival.files) : trans.__("none")],
    [trans.__("size"), formatBytes(size)],
    [trans.__("left out"), out.join(", ") || trans.__("nothing")],
  ];
  return (
    <dl class="ak-arrival-facts" aria-label={trans.__("Preview of the import")}>
      {facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function Saved({ beside }: { beside: Sidecar }) {
  if (beside.problem) {
    return (
      <p class="ak-saved ak-problem" role="status">
        {serverText(beside.problem)}
      </p>
    );
  }
  if (beside.kind === "unreadable") return <p class="ak-saved ak-problem">{serverText(beside.told)}</p>;
  if (beside.kind !== "own" || beside.saved === null) return null;
  return (
    <p class="ak-saved ak-quiet" title={`${beside.name}, ${formatBytes(beside.size)}`}>
      {trans.__("Saved %1 in %2", formatMoment(beside.saved), beside.name)}
    </p>
  );
}
