/** The choice of the model: configured engines and models of the catalog, with their downloads, which the user must
 * start. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { formatBytes } from "../turn/labels";
import type { ModelServers } from "../conversation/modelServers";
import type { Model } from "../wire/schema";
import { useDesk } from "../conversation/panelContext";
import { Elapsed } from "./Elapsed";
import { AddedServer, AddServer, useModelServers } from "./ModelServers";
import { StateCard } from "./StateCard";
import { withParts } from "./withParts";
import { formatNumber, trans } from "../translation/translation";

export function Model() {
  const { engine } = useDesk();
  const servers = useModelServers();
  useEffect(() => {
    void engine.load();
    void engine.recommend();
  }, [engine]);
  const models = engine.models.value;
  const current = engine.current.value;
  const failure = engine.failure.value;
  if (!models) return <p role="status">{failure?.message ?? trans.__("Loading...")}</p>;
  const own = models.engines.length > 0;
  return (
    <>
      {current && (
        <p>
          {withParts(
            current.local
              ? trans.__("This conversation uses %1: a model on this machine.", "%1")
              : trans.__("This conversation uses %1: all messages are sent to %2.", "%1", current.host),
            <strong>{current.model}</strong>,
          )}
          {current.context_length > 0 &&
            ` ${trans.__("Its context has %1 tokens.", formatNumber(current.context_length))}`}
          {!current.vision && current.state === "ready" && ` ${trans.__("It reads text only.")}`}
        </p>
      )}
      <Suits />
      <BetterModelOffer />
      {failure && (
        <p class="ak-problem" role="alert">
          {failure.message} {failure.hint}
        </p>
      )}
      {!engine.mayChange && <Administrators />}
      {own && <h3>{trans.__("Servers and other engines")}</h3>}
      <ul class="ak-models">
        {models.engines.map(({ name, model, local, host, refused }) => (
          <li key={name}>
            <Choice name={name} chosen={current?.name === name} disabled={refused || !engine.mayChange}>
              <strong>{name}</strong> {model} · {local ? trans.__("local") : trans.__("sent to %1", host)}
              {refused && ` · ${trans.__("not allowed: this server sends nothing to other hosts")}`}
            </Choice>
            {engine.mayChange && servers && addedServer(servers, name)}
          </li>
        ))}
      </ul>
      {engine.mayChange && servers && <AddServer servers={servers} />}
      <h3>{trans.__("On this machine")}</h3>
      <ul class="ak-models">
        {models.models.map((offer) => (
          <li key={offer.name}>
            {offer.state === "missing" ? (
              <Offer offer={offer} />
            ) : (
              <Choice
                name={offer.name}
                chosen={current?.model === offer.name}
                disabled={offer.state !== "ready" || !engine.mayChange}
              >
                <strong>{offer.title}</strong> {offer.name} ·{" "}
                {offer.state === "ready" ? trans.__("ready") : offer.state}
              </Choice>
            )}
          </li>
        ))}
      </ul>
      {engine.mayChange && (
        <button type="button" onClick={() => void engine.choose("")}>
          {trans.__("Use the server's default")}
        </button>
      )}
    </>
  );
}

function addedServer(servers: ModelServers, name: string) {
  const server = servers.all.value.find((one) => one.name === name);
  return server && <AddedServer servers={servers} server={server} />;
}

/** The memory and the speed of the model in use. */
function Suits() {
  const suits = useDesk().engine.suits.value;
  if (!suits) return null;
  const { tokens_per_s: speed, speed_basis: basis } = suits;
  const figure = formatNumber(speed ?? 0, { maximumFractionDigits: (speed ?? 0) < 10 ? 1 : 0 });
  return (
    <dl class="ak-facts" aria-label={trans.__("The model in use")}>
      <div>
        <dt>{trans.__("Memory, at most")}</dt>
        <dd title={suits.fit_reason}>{formatBytes(suits.memory_bytes)}</dd>
      </div>
      <div>
        <dt>{trans.__("Speed")}</dt>
        <dd title={suits.speed_note}>
          {!speed
            ? trans.__("not measured yet")
            : basis === "measured"
              ? trans.__("%1 tokens per second, measured here", figure)
              : trans.__("about %1 tokens per second", figure)}
        </dd>
      </div>
    </dl>
  );
}

/** Offers a better model that this machine can run: one click downloads it after a confirmation, one click switches to
 * it. */
function BetterModelOffer() {
  const { engine } = useDesk();
  const better = engine.better.value;
  if (!better) return null;
  const { model, suits } = better;
  return (
    <section class="ak-better" aria-label={trans.__("A model that suits this machine better")}>
      <p>
        {withParts(
          trans.__(
            "%1 is larger and suits this machine: it answers more questions correctly. It needs up to %2 of memory.",
            "%1",
            "%2",
          ),
          <strong>{model.title}</strong>,
          formatBytes(suits.memory_bytes),
        )}
      </p>
      {model.state === "ready" ? (
        <button type="button" class="ak-primary" onClick={() => void engine.choose(model.name)}>
          {trans.__("Use %1", model.name)}
        </button>
      ) : (
        <Download offer={model} />
      )}
    </section>
  );
}

interface Chosen {
  name: string;
  chosen: boolean;
  disabled: boolean;
  children: preact.ComponentChildren;
}

function Choice({ name, chosen, disabled, children }: Chosen) {
  const { engine } = useDesk();
  return (
    <label class="ak-model-choice">
      <input
        type="radio"
        name="ak-model"
        checked={chosen}
        disabled={disabled}
        onChange={() => void engine.choose(name)}
      />
      <span>{children}</span>
    </label>
  );
}

function Offer({ offer }: { offer: Model }) {
  return (
    <div class="ak-model-offer">
      <strong>{offer.title}</strong> {offer.name}
      <p class="ak-hint">{about(offer)}</p>
      <Download offer={offer} />
    </div>
  );
}

/** Downloads a model after a confirmation that names its size and source, and shows the progress. Nothing for users who
 * may not download. */
function Download({ offer }: { offer: Model }) {
  const { engine } = useDesk();
  const confirms = useSignal(false);
  const size = formatBytes(offer.download_bytes ?? 0);
  if (!engine.mayChange) return null;
  if (engine.pulling.value?.name === offer.name) return <Pulled />;
  if (!confirms.value) {
    return (
      <button type="button" disabled={engine.pulling.value !== null} onClick={() => (confirms.value = true)}>
        {trans.__("Download %1", size)}
      </button>
    );
  }
  const close = () => (confirms.value = false);
  return (
    <div role="alertdialog" aria-label={trans.__("Download %1", offer.name)} class="ak-confirm">
      <p>{trans.__("Download %1 of %2 from %3 to the machine of the server?", size, offer.title, offer.source)}</p>
      <button
        type="button"
        class="ak-primary"
        onClick={() => {
          close();
          void engine.pull(offer.name);
        }}
      >
        {trans.__("Download it")}
      </button>
      <button type="button" onClick={close}>
        {trans.__("Not now")}
      </button>
    </div>
  );
}

/** Shown if the model of the next turn is not on this machine: offers the download with its size and source. */
export function MissingModel() {
  const desk = useDesk();
  const { engine } = desk;
  const offer = engine.missing.value;
  if (!offer && !engine.pulling.value) return null;
  return (
    <StateCard tone="warning">
      {offer && <p>{trans.__("%1 is not on this machine. %2", offer.title, about(offer))}</p>}
      {engine.pulling.value ? <Pulled /> : offer && <Download offer={offer} />}
      {engine.mayChange ? (
        <button type="button" onClick={() => desk.open("model")}>
          {trans.__("Choose another model")}
        </button>
      ) : (
        <Administrators />
      )}
    </StateCard>
  );
}

/** Shown to users for whom the server would refuse the buttons. */
const Administrators = () => (
  <p class="ak-hint">{trans.__("An administrator of this server chooses and downloads its models.")}</p>
);

function Pulled() {
  const { engine } = useDesk();
  const pulling = engine.pulling.value;
  if (!pulling) return null;
  if (pulling.failure) {
    return (
      <div role="alert">
        <p>{pulling.failure}</p>
        <button type="button" onClick={() => void engine.pull(pulling.name)}>
          {trans.__("Try again")}
        </button>
      </div>
    );
  }
  const { fraction } = pulling;
  return (
    <div class="ak-pulled">
      <progress
        aria-label={trans.__("Download of %1", pulling.name)}
        {...(fraction === null ? {} : { value: fraction })}
        max={1}
      />
      <span>
        {pulling.stage} {fraction !== null && `${Math.floor(fraction * 100)} %`} <Elapsed since={pulling.since} />{" "}
        {pulling.message}
      </span>
    </div>
  );
}

const about = (offer: Model): string =>
  [
    offer.publisher
      ? trans.__("From %1, by %2, licence %3.", offer.source, offer.publisher, offer.licence)
      : trans.__("From %1, licence %2.", offer.source, offer.licence),
    offer.disk_bytes ? trans.__("It needs %1 on disk.", formatBytes(offer.disk_bytes)) : "",
  ]
    .filter(Boolean)
    .join(" ");
