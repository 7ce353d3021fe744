/** States that the user should know before continuing, each with the next action: connection, kernel, model, failures.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { browserStorage } from "../conversation/browserStorage";
import type { Entry } from "../conversation/entry";
import { toolLabel, verbOf } from "../turn/labels";
import { SidecarCards, shownNotes } from "./SidecarCards";
import { useDesk, usePanel } from "../conversation/panelContext";
import { MissingModel } from "./Model";
import type { Question } from "../conversation/panelState";
import { StateCard } from "./StateCard";
import { useFocusReturn } from "./useFocusReturn";
import { trans } from "../translation/translation";
import { serverText } from "../turn/serverTexts";

/** At most this many prompts are listed, the newest ones. */
const NAMED = 3;

const SAID = "a larger model was offered";

export function StateCardList() {
  return (
    <div class="ak-states">
      <Connection />
      <Failure />
      <Asking />
      <Kernel />
      <Engine />
      <LargerModel />
      <SidecarCards />
      <SinceLastVisitCard />
      <Notes />
      <Message />
    </div>
  );
}

function Connection() {
  const { transport } = usePanel().host;
  const was = useSignal(false);
  const connection = transport.connection.value;
  if (connection === "online") {
    if (!was.peek()) was.value = true;
    return null;
  }
  if (connection === "connecting" && !was.value) return null;
  if (connection === "connecting")
    return <StateCard tone="info">{trans.__("The connection was lost. Reconnecting...")}</StateCard>;
  return (
    <StateCard tone="warning">
      <p>
        {trans.__(
          "The server does not answer. If it is still running, your turn continues. Text that you type here is kept.",
        )}
      </p>
      {transport.retry && (
        <button type="button" onClick={() => transport.retry?.()}>
          {trans.__("Try now")}
        </button>
      )}
    </StateCard>
  );
}

function Failure() {
  const { conversation } = useDesk();
  const { transport } = usePanel().host;
  const failure = conversation.failure.value;
  const known = failure?.status === 0 && transport.connection.value !== "online"; // the connection card shows it
  if (!failure || known) return null;
  const { message, hint, request_id: request } = failure.body;
  const refused = failure.status === 401 || failure.status === 403;
  const dismiss = () => {
    conversation.failure.value = null;
  };
  return (
    <StateCard tone="error" close={dismiss}>
      <p>{refused ? trans.__("This is not allowed: %1", message) : message}</p>
      {hint && <p>{hint}</p>}
      {failure.status >= 500 && request && (
        <p class="ak-request">{trans.__("Request id in the server's log: %1", request)}</p>
      )}
      {!refused && (
        <button type="button" onClick={() => void conversation.refresh()}>
          {trans.__("Look again")}
        </button>
      )}
    </StateCard>
  );
}

function Asking() {
  const question = useDesk().asking.value;
  return question && <Confirmation key={question.text} question={question} />;
}

function Confirmation({ question }: { question: Question }) {
  const desk = useDesk();
  const card = useRef<HTMLDivElement>(null);
  const leave = useRef<HTMLButtonElement>(null);
  useFocusReturn(card, () => document.querySelector<HTMLElement>(".ak-composer textarea"));
  useEffect(() => leave.current?.focus(), []);
  const close = () => {
    desk.asking.value = null;
  };
  return (
    <div
      class="ak-state-card ak-tone-warning"
      role="alertdialog"
      aria-label={question.text}
      ref={card}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        close();
      }}
    >
      <div class="ak-state-words">
        <p>{question.text}</p>
        <button
          type="button"
          onClick={() => {
            close();
            void desk.trying(question.run);
          }}
        >
          {question.yes}
        </button>
        <button type="button" ref={leave} onClick={close}>
          {trans.__("Leave it")}
        </button>
      </div>
    </div>
  );
}

function Kernel() {
  const { host } = usePanel();
  if (!host.notebook) return null;
  const bound = host.notebook.bound.value;
  if (!bound) {
    return (
      <StateCard tone="info">
        {trans.__(
          "No notebook is open. The agent sees the cells and the kernel of an open notebook; without one its code runs in the sandbox.",
        )}
      </StateCard>
    );
  }
  const start = () => void host.notebook?.startKernel();
  if (bound.kernelState === "restarting") {
    return (
      <StateCard tone="info">
        {trans.__("The kernel is restarting. Its variables are lost; the conversation stays.")}
      </StateCard>
    );
  }
  if (bound.kernelState === "dead") {
    return (
      <StateCard tone="warning">
        <p>{trans.__("The kernel has died and its variables are lost. The conversation stays.")}</p>
        <button type="button" onClick={start}>
          {trans.__("Start a kernel")}
        </button>
      </StateCard>
    );
  }
  if (bound.kernelState !== "none") return null;
  return (
    <StateCard tone="info">
      <p>
        {trans.__(
          "This notebook has no kernel. Until it has one, code runs in the sandbox and cannot see your variables.",
        )}
      </p>
      <button type="button" onClick={start}>
        {trans.__("Start a kernel")}
      </button>
    </StateCard>
  );
}

function Engine() {
  const desk = useDesk();
  const problem = desk.engine.current.value?.problem ?? "";
  if (desk.engine.missing.value || desk.engine.pulling.value) return <MissingModel />;
  if (!problem) return null;
  return (
    <StateCard tone="warning">
      <p>{trans.__("The model of this conversation cannot be used: %1", problem)}</p>
      <button type="button" onClick={() => desk.open("model")}>
        {trans.__("Choose a model")}
      </button>
    </StateCard>
  );
}

/** Notes of the server about the files of this notebook, such as a colleague's conversation beside it. */
function Notes() {
  const desk = useDesk();
  const read = useSignal<ReadonlySet<string>>(new Set());
  const notes = desk.conversation.binding.value?.notes ?? [];
  return (
    <>
      {notes
        .filter((note) => !read.value.has(note) && !shownNotes.value.includes(note))
        .map((note) => (
          <StateCard
            key={note}
            tone="info"
            close={() => {
              read.value = new Set([...read.value, note]);
            }}
          >
            {serverText(note)}
          </StateCard>
        ))}
    </>
  );
}

function Message() {
  const { message: said } = useDesk().conversation;
  if (!said.value) return null;
  return (
    <StateCard
      tone="info"
      close={() => {
        said.value = "";
      }}
    >
      {said.value}
    </StateCard>
  );
}

/** Tells the user once in each browser, after the first answer, that this machine could run a larger model. */
function LargerModel() {
  const desk = useDesk();
  const { engine, conversation } = desk;
  const said = useSignal(browserStorage.read(SAID) !== "");
  const answered =
    conversation.running.value.length === 0 &&
    conversation.entries.value.some(({ view }) => view.value.state === "committed");
  const local = engine.current.value?.local === true && engine.current.value.state === "ready";
  const asks = answered && local && !said.value;
  useEffect(() => {
    if (asks) void engine.recommend();
  }, [asks]);
  const better = asks ? engine.better.value : null;
  if (!better) return null;
  const close = () => {
    said.value = true;
    browserStorage.write(SAID, "1");
  };
  return (
    <StateCard tone="info" close={close}>
      <p>
        {trans.__("This machine can run %1, a larger model that answers more questions correctly.", better.model.title)}
      </p>
      <button
        type="button"
        onClick={() => {
          close();
          desk.open("model");
        }}
      >
        {trans.__("Show it")}
      </button>
    </StateCard>
  );
}

/** A card with what happened while the user was away, and possible actions. */
export function SinceLastVisitCard() {
  const desk = useDesk();
  const news = desk.away.news.value;
  if (!news) return null;
  const { turns, more, approvals, lost } = news;
  const decided = decidedApprovals(desk.conversation.entries.value);
  const open = approvals.filter(({ approval }) => !decided.has(approval));
  const isEmpty = turns.length + open.length === 0 && !lost.kernel && !(lost.sandbox && lost.pieces > 0);
  if (isEmpty) return null;
  const failed = turns.filter(({ state }) => state !== "committed").length;
  return (
    <StateCard tone="info" close={() => desk.away.dismiss()}>
      <p>{trans.__("Since your last visit:")}</p>
      <ul class="ak-away">
        {turns.length > 0 && (
          <li>
            {more
              ? trans.__("%1 turns or more ended", turns.length)
              : trans._n("a turn ended", "%1 turns ended", turns.length)}
            {failed > 0 &&
              `, ${turns.length === 1 ? trans.__("without an answer") : trans.__("%1 of them without an answer", failed)}`}
            :{" "}
            {turns
              .slice(-NAMED)
              .map(({ prompt }) => brief(prompt.trim()))
              .join("; ")}
            {turns.length > NAMED && ` ${trans.__("and %1 earlier", turns.length - NAMED)}`}
          </li>
        )}
        {open.map(({ approval, label, name, target }) => (
          <li key={approval}>
            {trans.__("%1 waits for your answer", toolLabel(verbOf(name) === name ? label || name : name, target))}
          </li>
        ))}
        {lost.kernel && <li>{trans.__("variables of earlier turns are gone: the kernel is new")}</li>}
        {lost.sandbox && lost.pieces > 0 && (
          <li>
            {trans.__("variables of the sandbox are gone: %1", serverText(lost.sandbox))}{" "}
            <button type="button" onClick={() => void desk.askToRebuild()}>
              {trans.__("Rebuild the variables...")}
            </button>
          </li>
        )}
      </ul>
    </StateCard>
  );
}

/** Ids of the approvals that the user has answered since the news were requested. */
function decidedApprovals(entries: readonly Entry[]): ReadonlySet<string> {
  const calls = entries.flatMap(({ view }) => view.value.blocks.filter((block) => block.kind === "call"));
  const decided = calls.filter(({ approval, done }) => approval && (approval.decision || done));
  return new Set(decided.map(({ approval }) => approval?.approval ?? ""));
}

const brief = (prompt: string): string => (prompt.length > 60 ? `${prompt.slice(0, 57)}...` : prompt);
