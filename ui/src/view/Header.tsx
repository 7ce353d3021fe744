/** The header: session, notebook and kernel, model; Stop while a turn runs; the menu. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Bound } from "../notebook/notebook";
import { useDesk } from "./panelStateContext";
import { ButtonIcon } from "./ButtonIcon";
import "./header.css";
import { HeaderMenu } from "./HeaderMenu";
import { usePanel } from "../conversation/panelContext";

const KERNEL: Record<Bound["kernelState"], string> = {
  idle: "idle",
  busy: "busy",
  starting: "starting",
  restarting: "restarting",
  dead: "gone",
  none: "no kernel",
};

export function Header() {
  const desk = useDesk();
  const runs = desk.conversation.running.value.length > 0;
  return (
    <header class="ak-header">
      <div class="ak-header-row">
        <Title />
        {runs && (
          <button class="ak-stop" type="button" title="Stop (Escape twice)" onClick={() => void desk.stop()}>
            <ButtonIcon sign="stop" />
            Stop
          </button>
        )}
        <HeaderMenu />
      </div>
      <div class="ak-header-row ak-places">
        <NotebookChip />
        <ModelChip />
      </div>
    </header>
  );
}

function Title() {
  const desk = useDesk();
  const session = desk.conversation.session.value;
  if (desk.sheet.value === "rename" && session) return <Rename title={session.title} id={session.id} />;
  const title = session?.title ?? "";
  return (
    <h2 class="ak-title">
      <button
        type="button"
        class="ak-title-text"
        disabled={!session}
        title={session ? `${title || "Without a title"} (click to rename)` : ""}
        onClick={() => desk.open("rename")}
      >
        {title || (session?.turns ? "Without a title" : "New conversation")}
      </button>
      {session?.private && <span class="ak-chip ak-private">private</span>}
    </h2>
  );
}

function Rename({ title, id }: { title: string; id: string }) {
  const desk = useDesk();
  const text = useSignal(title);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const done = () => {
    const named = text.value.trim();
    desk.open("");
    if (named && named !== title) void desk.trying(() => desk.sessions.rename(id, named));
  };
  return (
    <input
      ref={input}
      class="ak-rename"
      aria-label="Title of the conversation"
      maxLength={500}
      value={text.value}
      onInput={(event) => {
        text.value = event.currentTarget.value;
      }}
      onBlur={() => desk.sheet.value === "rename" && done()}
      onKeyDown={(event) => {
        if (event.key === "Enter") done();
        if (event.key === "Escape") {
          event.preventDefault();
          desk.open("");
        }
      }}
    />
  );
}

function NotebookChip() {
  const { host } = usePanel();
  const { composing } = useDesk();
  if (!host.notebook) return null;
  const bound = host.notebook.bound.value;
  if (!bound) return <span class="ak-chip ak-kernel-none">no notebook</span>;
  const name = bound.path.split("/").at(-1) || bound.kernelName;
  const where = composing.where.value;
  // A draft is a copy of the kernel, so it cannot be made while the kernel is busy or gone.
  const elsewhere = bound.kernel && (where === "sandbox" || (where === "draft" && bound.kernelState === "idle"));
  const state = elsewhere ? where : KERNEL[bound.kernelState];
  const tone = elsewhere ? "sandbox" : bound.kernelState;
  return (
    <span class={`ak-chip ak-kernel ak-kernel-${tone}`} title={`${bound.path || "No file"}: ${state}`}>
      <span class="ak-dot" aria-hidden="true" />
      <span class="ak-cut">{name}</span>
      <span class="ak-state">{state}</span>
    </span>
  );
}

function ModelChip() {
  const desk = useDesk();
  const model = desk.engine.current.value;
  const turn = desk.conversation.running.value.at(0)?.view.value;
  const loading = turn?.loading;
  const where = model ? (model.local ? "local" : `sent to ${model.host}`) : "";
  const pulled = desk.engine.pulling.value;
  const state =
    typeof loading === "number"
      ? `loads ${Math.round(loading * 100)} %`
      : pulled && !pulled.failure
        ? "downloads"
        : desk.engine.missing.value
          ? "not here"
          : where;
  return (
    <button
      type="button"
      class={model?.local === false ? "ak-chip ak-model ak-remote" : "ak-chip ak-model"}
      title={model ? `${model.model}: ${where}. Choose another one.` : "Choose a model"}
      onClick={() => desk.open("model")}
    >
      <span class="ak-cut">{model?.model ?? "model"}</span>
      {state && <span class="ak-state">{state}</span>}
      {typeof loading === "number" && <progress max={1} value={loading} aria-label="Loading the model" />}
    </button>
  );
}
