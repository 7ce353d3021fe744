/** The model servers that the user added: the details of each, and a form that tests and adds one. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ModelServers, nameOf, type ServerFields } from "../conversation/modelServers";
import { usePanel, useDesk } from "../conversation/panelContext";
import { ApiError } from "../transport/transport";
import { trans } from "../translation/translation";
import type { ModelServer, ProbeReport } from "../wire/schema";
import { Problem } from "./Problem";
import { useFocusReturn } from "./useFocusReturn";

/** The model servers of the user, loaded with the component. Null until they are loaded, and if the server does not
 * allow this panel to read them, for example in a cell where it has the rights of the kernel only. */
export function useModelServers(): ModelServers | null {
  const { host } = usePanel();
  const servers = useMemo(() => new ModelServers(host.transport), [host.transport]);
  const allowed = useSignal(false);
  useEffect(() => {
    servers.load().then(
      () => (allowed.value = true),
      () => (allowed.value = false),
    );
  }, [servers]);
  return allowed.value ? servers : null;
}

/** For a model server that the user added: says where its key is stored, and has a button that removes the server. */
export function AddedServer({ servers, server }: { servers: ModelServers; server: ModelServer }) {
  const { engine } = useDesk();
  const problem = useSignal("");
  const remove = () => {
    servers.remove(server.name).then(
      () => engine.load(),
      (error: unknown) => (problem.value = reason(error)),
    );
  };
  return (
    <>
      <p class="ak-hint">{placeOfKey(server)}</p>
      <button type="button" onClick={remove}>
        {trans.__("Remove %1", server.name)}
      </button>
      {problem.value && <Problem text={problem.value} />}
    </>
  );
}

export function AddServer({ servers }: { servers: ModelServers }) {
  const { engine } = useDesk();
  const adds = useSignal(false);
  const message = useSignal("");
  const add = useRef<HTMLButtonElement>(null);
  return (
    <>
      {adds.value ? (
        <Form
          servers={servers}
          saved={(server) => {
            adds.value = false;
            message.value = trans.__("%1 was added. Choose it above to use it.", server.name);
            void engine.load();
          }}
          close={() => (adds.value = false)}
          origin={() => add.current}
        />
      ) : (
        <button type="button" ref={add} onClick={() => (adds.value = true)}>
          {trans.__("Add a model server...")}
        </button>
      )}
      {message.value && <p role="status">{message.value}</p>}
    </>
  );
}

interface Adding {
  servers: ModelServers;
  saved: (server: ModelServer) => void;
  close: () => void;
  /** Returns the button that opens the form, after the form is closed; the focus returns to it. */
  origin: () => HTMLElement | null;
}

function Form({ servers, saved, close, origin }: Adding) {
  const form = useRef<HTMLFormElement>(null);
  useFocusReturn(form, origin);
  useEffect(() => form.current?.querySelector("input")?.focus(), []);
  const url = useSignal("");
  const key = useSignal("");
  const model = useSignal("");
  const name = useSignal("");
  const report = useSignal<ProbeReport | null>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  const fields = (): ServerFields => ({
    url: url.value.trim(),
    model: model.value.trim(),
    key: key.value.trim() || null,
  });
  const during = async (work: () => Promise<void>) => {
    busy.value = true;
    problem.value = "";
    try {
      await work();
    } catch (error) {
      problem.value = reason(error);
    }
    busy.value = false;
  };
  const test = () =>
    during(async () => {
      report.value = null;
      report.value = await servers.probe(fields());
      if (!model.value && report.value.models.length === 1) model.value = report.value.models[0] ?? "";
    });
  const save = () =>
    during(async () => {
      const server = await servers.save(name.value.trim() || nameOf(url.value), fields());
      key.value = "";
      saved(server);
    });
  return (
    <form
      class="ak-server"
      ref={form}
      aria-label={trans.__("Add a model server")}
      autocomplete="off"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <h3>{trans.__("Add a model server")}</h3>
      <p class="ak-hint">
        {trans.__(
          "A server with OpenAI's API, such as vLLM, Ollama or a company's gateway. Conversations for which you choose this server are sent to it; each turn shows the server.",
        )}
      </p>
      <label>
        {trans.__("URL")}
        <input
          type="url"
          required
          placeholder="http://localhost:8000/v1"
          value={url.value}
          onInput={(event) => {
            url.value = event.currentTarget.value;
            report.value = null;
          }}
        />
      </label>
      <label>
        {trans.__("Key, if it needs one")}
        <input
          type="password"
          autocomplete="new-password"
          value={key.value}
          onInput={(event) => {
            key.value = event.currentTarget.value;
          }}
        />
      </label>
      <label>
        {trans.__("Model")}
        <input
          list="ak-server-models"
          placeholder={trans.__("Test the server to see its models")}
          value={model.value}
          onInput={(event) => {
            model.value = event.currentTarget.value;
          }}
        />
        <datalist id="ak-server-models">
          {(report.value?.models ?? []).map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      </label>
      <label>
        {trans.__("Name")}
        <input
          placeholder={nameOf(url.value)}
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
      </label>
      <div class="ak-confirm">
        <button type="button" disabled={busy.value || !url.value.trim()} onClick={() => void test()}>
          {busy.value ? trans.__("Working...") : trans.__("Test")}
        </button>
        <button type="submit" class="ak-primary" disabled={busy.value || !url.value.trim()}>
          {trans.__("Save")}
        </button>
        <button type="button" onClick={close}>
          {trans.__("Cancel")}
        </button>
      </div>
      <Problem text={problem.value} />
      {report.value && <Report report={report.value} choose={(one) => (model.value = one)} />}
    </form>
  );
}

const MOST_MODELS = 8;

function Report({ report, choose }: { report: ProbeReport; choose: (model: string) => void }) {
  const { models, missing } = report;
  const [first] = report.findings;
  const failed = first?.feature === "answers" && first.state === "lacks"; // then the test ended here
  const findings = failed ? [] : report.findings;
  const problem = report.problem || (failed ? first.detail : "");
  return (
    <section role="status" aria-label={trans.__("Result of the test")}>
      <p>
        {report.local
          ? trans.__("%1 is on this machine.", report.host)
          : trans.__("%1 is another machine: conversations leave this one.", report.host)}
      </p>
      {problem && <p class="ak-problem">{problem}</p>}
      {models.length > 1 && report.findings.length === 0 && (
        <>
          <p>{trans.__("The server has these models. Choose one and test again:")}</p>
          <ul class="ak-models ak-confirm">
            {models.slice(0, MOST_MODELS).map((one) => (
              <li key={one}>
                <button type="button" onClick={() => choose(one)}>
                  {one}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      {findings.length > 0 && (
        <>
          <p>
            <strong>
              {missing.length > 0
                ? trans.__("%1 cannot serve the agent: it lacks %2.", report.model, missing.join(", "))
                : trans.__("%1 can serve the agent.", report.model)}
            </strong>
          </p>
          <dl class="ak-facts">
            {findings.map(({ feature, state, detail }) => (
              <div key={feature}>
                <dt>{feature}</dt>
                <dd title={detail}>{stateWord(state)}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </section>
  );
}

function stateWord(state: ProbeReport["findings"][number]["state"]): string {
  if (state === "ok") return trans.__("works");
  return state === "lacks" ? trans.__("missing") : trans.__("not determined");
}

function placeOfKey({ key }: ModelServer): string {
  if (key === "keyring") return trans.__("Its key is in the keyring of the server's system.");
  if (key === "file") return trans.__("The system has no keyring: its key is in a file that only you can read.");
  return trans.__("It has no key.");
}

const reason = (error: unknown): string =>
  error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(" ") : trans.__("The request failed.");
