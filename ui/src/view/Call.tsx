/** One line for a call. When the user opens it, it shows what ran, its output and its result. Approvals, images and
 * files are below the line and always visible. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Gallery } from "../media/Gallery";
import type { Approval, CallBlock } from "../turn/turn";
import { changeOf, proposedChange } from "../turn/cellChanges";
import { failureText, formatDuration, callPhrase, kindOf, placeOf, resultText, statusOf } from "../turn/labels";
import { ApprovalCard } from "./ApprovalCard";
import { Elapsed } from "./Elapsed";
import { Files } from "./Files";
import { Icon } from "../markdown/Icon";
import { Output } from "./Output";
import { deniedReason } from "./OutdatedChange";
import { revealedCall } from "./revealedCall";
import { Review } from "./Review";
import { Source } from "./Source";
import { usePanel } from "../conversation/panelContext";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";
import { summary, type Reading } from "../turn/groups";

const LAST_LINES = 3;
const MAX_BRIEF = 4;
/** Names of clients that are an open page or the kernel of a cell. They are not shown, because they mean nothing to the
 * user. */
const OWN_CLIENT = /^(page|magic):/;
/** Arguments that the review of a change shows as a diff. */
const REVIEWED = new Set(["before", "after", "diff"]);

export function Call({ call, session }: { call: CallBlock; session: string }) {
  const open = useSignal(false);
  const row = useRef<HTMLDivElement>(null);
  const sent = revealedCall.value?.call === call.id ? revealedCall.value : null;
  useEffect(() => {
    if (!sent) return;
    open.value = true;
    row.current?.scrollIntoView({ block: "nearest" });
  }, [sent]);
  const asks = call.approval && !call.approval.decision && !call.done;
  return (
    <div class="ak-call" data-call={call.id} data-status={call.status} ref={row}>
      <Row call={call} open={open.value} onToggle={() => (open.value = !open.value)} />
      {open.value ? <Inside call={call} line={sent?.line ?? 0} /> : <Tail call={call} />}
      {asks && call.approval && <ApprovalCard approval={call.approval} />}
      {call.approval?.decision && <Decided call={call} approval={call.approval} open={open.value} />}
      <Review call={call} />
      {call.media.length > 0 && (
        <Gallery media={call.media} session={session} alt={titleOf(call)} code={codeOf(call)} />
      )}
      <Files files={call.files} />
      {call.done && <Keep call={call} />}
    </div>
  );
}

/** The title of a call in one line: "Draw a line chart: Rain by month". */
function titleOf(call: CallBlock): string {
  const { verb, target } = callPhrase(call);
  return target ? `${verb} ${target}` : verb;
}

/** The Python code that ran; empty for calls of other tools. */
function codeOf({ name, arguments: given, approval }: CallBlock): string {
  const code = given["code"];
  return name === "python" && typeof code === "string" ? (approval?.edited ?? code) : "";
}

/** A button that keeps variables which exist only in a draft. It inserts a cell with `%agent keep`; the user runs this
 * cell, which shows the code and asks before it changes the kernel. */
function Keep({ call }: { call: CallBlock }) {
  const { host } = usePanel();
  const said = useSignal("");
  const drafted = call.details["drafted"];
  const names = Array.isArray(drafted) ? drafted.filter((name) => typeof name === "string") : [];
  const bound = host.notebook?.bound.value;
  if (names.length === 0 || !bound) return null;
  const insert = () =>
    host.notebook?.insert(`%agent keep ${names.join(" ")}`, "below").then(
      () => (said.value = trans.__("Run the new cell to keep them.")),
      (error: unknown) => (said.value = errorMessage(error)),
    );
  return (
    <p class="ak-quiet">
      {trans.__("These variables exist only in a draft: %1.", names.join(", "))}{" "}
      <button type="button" class="ak-link" onClick={() => void insert()}>
        {trans.__("Keep in your kernel")}
      </button>{" "}
      <span role="status">{said.value}</span>
    </p>
  );
}

function Row({ call, open, onToggle }: { call: CallBlock; open: boolean; onToggle: () => void }) {
  const { host } = usePanel();
  const { kind, verb, target } = callPhrase(call, host.notebook?.places?.cells());
  const place = call.status === "denied" ? null : placeOf(call.where);
  const runs = !call.done && call.status === "running";
  return (
    <button type="button" class="ak-row" aria-expanded={open} onClick={onToggle} title={target}>
      <Icon name={kind} />
      <span class="ak-verb">{verb}</span>{" "}
      <code class={isBrief(target) ? "ak-target ak-brief" : "ak-target"}>{target}</code>{" "}
      {place && (
        <span class="ak-place">
          <span class="ak-wordy">{place.article} </span>
          {place.noun}
        </span>
      )}{" "}
      <span class="ak-outcome">
        <span class={call.status === "success" && call.seconds > 0 ? "ak-wordy" : ""}>{statusOf(call)} </span>
        {call.status !== "denied" && formatDuration(call.seconds)} {runs && <Elapsed since={call.began} />}
      </span>
    </button>
  );
}

/** The number of a cell is never cut; the word before it is. */
const isBrief = (target: string): boolean => target.length <= MAX_BRIEF;

/** The end of the output of a running call, or of the error of a failed one. */
function Tail({ call }: { call: CallBlock }) {
  const failed = call.status === "error" || call.status === "timeout";
  const text = call.done ? (failed ? call.result : "") : call.output;
  if (!text.trim()) return null;
  const end = failed ? failureText(text) : text.trimEnd().split("\n").slice(-LAST_LINES).join("\n");
  return <Output text={end.slice(-1_000)} label={trans.__("The end of the output")} />;
}

function Inside({ call, line }: { call: CallBlock; line: number }) {
  const proposed = call.arguments["code"] ?? call.arguments["source"];
  const isReviewed = changeOf(call) !== null || proposedChange(call.name, call.approval?.arguments ?? {}) !== null;
  const rest = Object.entries(isReviewed ? {} : call.arguments).filter(
    ([name, value]) => value !== proposed && !REVIEWED.has(name),
  );
  const code = call.approval?.editable === "code" ? (call.approval.edited ?? proposed) : proposed;
  const text = isReviewed ? reviewedResult(call) : call.done ? resultText(call) || call.output : call.output;
  return (
    <div class="ak-inside">
      {!isReviewed && typeof code === "string" && (
        <Source code={code} language="python" label={trans.__("The code that ran")} />
      )}
      {rest.length > 0 && (
        <Source
          code={rest.map(([name, value]) => `${name} = ${shown(value)}`).join("\n")}
          language=""
          label={trans.__("Arguments")}
        />
      )}
      {text && (
        <Output
          text={text}
          cut={call.cut}
          label={call.done ? trans.__("Result") : trans.__("Output so far")}
          line={line}
        />
      )}
      {call.done && !text && !isReviewed && <p class="ak-quiet">{trans.__("The call printed nothing.")}</p>}
      {call.client && !OWN_CLIENT.test(call.client) && <p class="ak-quiet">{trans.__("Run by %1.", call.client)}</p>}
      {call.corrects && <Corrected failed={call.corrects} />}
    </div>
  );
}

/** The result of a call that changed a cell, as the user sees it. The review shows the change itself, and the result is
 * written for the model, which counts cells from 0. So only the reason of a failure is shown. */
const reviewedResult = ({ status, result }: CallBlock): string =>
  status === "error" || status === "timeout" ? failureText(result) : "";

/** Shows the program that failed, its error, and its output, if agent-kernel corrected the program without asking the
 * model. */
function Corrected({ failed }: { failed: CallBlock }) {
  const error = failureText(failed.result);
  return (
    <details>
      <summary class="ak-quiet">{trans.__("Corrected without the model. The error was: %1", error)}</summary>
      <Source code={codeOf(failed)} language="python" label={trans.__("The code that ran")} />
      <Output text={resultText(failed)} label={trans.__("Result")} />
      {failed.corrects && <Corrected failed={failed.corrects} />}
    </details>
  );
}

interface Decision {
  call: CallBlock;
  approval: Approval;
  open: boolean;
}

/** How an approval was answered. It is shown only in the opened call, except for a text that the user changed and for
 * the reason of a denial. */
function Decided({ call, approval: { decision, reason, edited }, open }: Decision) {
  const why = deniedReason(reason.replace(/^(approved|denied)(: )?/, ""));
  const row = decision === "approve" ? edited === null : decision === "deny" && !why; // the row of the call shows it
  if (row && !open) return null;
  const denied = kindOf(call.name) === "edit" ? trans.__("Rejected") : trans.__("Denied");
  const approved = edited === null ? trans.__("You approved it") : trans.__("You changed it and approved it");
  const said = decision === "approve" ? approved : decision === "deny" ? denied : trans.__("Not answered");
  return <p class="ak-decided">{why ? `${said}: ${why}` : said}.</p>;
}

const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Several read-only calls in a row as one line, which opens to a line for each. */
export function CallGroup({ reading, session }: { reading: Reading; session: string }) {
  const open = useSignal(false);
  const sent = reading.calls.some((call) => call.id === revealedCall.value?.call);
  useEffect(() => {
    if (sent) open.value = true;
  }, [sent]);
  return (
    <div>
      <button type="button" class="ak-row" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <Icon name="read" />
        <span class="ak-verb ak-long">{summary(reading)}</span>
        <span class="ak-outcome">{trans.__("done")}</span>
      </button>
      {open.value && (
        <div class="ak-inside">
          {reading.calls.map((call) => (
            <Call key={call.id} call={call} session={session} />
          ))}
        </div>
      )}
    </div>
  );
}
