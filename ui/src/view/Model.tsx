/** The choice of the model: configured engines and models of the catalog, with their downloads, which the user must
 * start. */
import { useEffect } from "preact/hooks";
import { formatBytes } from "../turn/labels";
import type { Model } from "../wire/schema";
import { useDesk } from "./panelStateContext";
import { StateCard } from "./StateCard";

export function Model() {
  const { engine } = useDesk();
  useEffect(() => void engine.load(), [engine]);
  const models = engine.models.value;
  const current = engine.current.value;
  const failure = engine.failure.value;
  if (!models) return <p role="status">{failure?.message ?? "Loading..."}</p>;
  const own = models.engines.length > 0;
  return (
    <>
      {current && (
        <p>
          This conversation uses <strong>{current.model}</strong>:{" "}
          {current.local ? "a model on this machine." : `all messages are sent to ${current.host}.`}
          {current.context_length > 0 && ` Its context has ${current.context_length.toLocaleString()} tokens.`}
          {!current.vision && current.state === "ready" && " It reads text only."}
        </p>
      )}
      {failure && (
        <p class="ak-failure" role="alert">
          {failure.message} {failure.body.hint}
        </p>
      )}
      {own && <h3>Configured</h3>}
      <ul class="ak-models">
        {models.engines.map(({ name, model, local, host, refused }) => (
          <li key={name}>
            <Choice name={name} chosen={current?.name === name} disabled={refused}>
              <strong>{name}</strong> {model} · {local ? "local" : `sent to ${host}`}
              {refused && " · not allowed: this server sends nothing to other hosts"}
            </Choice>
          </li>
        ))}
      </ul>
      <h3>On this machine</h3>
      <ul class="ak-models">
        {models.models.map((offer) => (
          <li key={offer.name}>
            {offer.state === "missing" ? (
              <Offer offer={offer} />
            ) : (
              <Choice name={offer.name} chosen={current?.model === offer.name} disabled={offer.state !== "ready"}>
                <strong>{offer.title}</strong> {offer.name} · {offer.state}
              </Choice>
            )}
          </li>
        ))}
      </ul>
      <button type="button" onClick={() => void engine.choose("")}>
        Use the server's default
      </button>
    </>
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
  const { engine } = useDesk();
  const pulling = engine.pulling.value?.name === offer.name;
  return (
    <div class="ak-model-offer">
      <strong>{offer.title}</strong> {offer.name}
      <p class="ak-hint">{about(offer)}</p>
      {pulling ? (
        <Pulled />
      ) : (
        <button type="button" disabled={engine.pulling.value !== null} onClick={() => void engine.pull(offer.name)}>
          Download {formatBytes(offer.download_bytes ?? 0)}
        </button>
      )}
    </div>
  );
}

/** The model of the next turn is not on this machine: offers the download with its size and source. */
export function MissingModel() {
  const desk = useDesk();
  const { engine } = desk;
  const offer = engine.missing.value;
  if (!offer && !engine.pulling.value) return null;
  return (
    <StateCard tone="warning">
      {offer && (
        <p>
          {offer.title} is not on this machine. {about(offer)}
        </p>
      )}
      {engine.pulling.value ? (
        <Pulled />
      ) : (
        offer && (
          <button type="button" onClick={() => void engine.pull(offer.name)}>
            Download {formatBytes(offer.download_bytes ?? 0)}
          </button>
        )
      )}
      <button type="button" onClick={() => desk.open("model")}>
        Choose another model
      </button>
    </StateCard>
  );
}

function Pulled() {
  const { engine } = useDesk();
  const pulling = engine.pulling.value;
  if (!pulling) return null;
  if (pulling.failure) {
    return (
      <div role="alert">
        <p>{pulling.failure}</p>
        <button type="button" onClick={() => void engine.pull(pulling.name)}>
          Try again
        </button>
      </div>
    );
  }
  const { fraction } = pulling;
  return (
    <div class="ak-pulled">
      <progress
        aria-label={`Download of ${pulling.name}`}
        {...(fraction === null ? {} : { value: fraction })}
        max={1}
      />
      <span>
        {pulling.stage} {fraction !== null && `${Math.floor(fraction * 100)} %`} {pulling.message}
      </span>
    </div>
  );
}

const about = (offer: Model): string =>
  [`From ${offer.source}`, offer.publisher && `by ${offer.publisher}`, `licence ${offer.licence}`]
    .filter(Boolean)
    .join(", ") + (offer.disk_bytes ? `. It needs ${formatBytes(offer.disk_bytes)} on disk.` : ".");
