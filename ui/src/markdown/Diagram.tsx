/** A drawn diagram, which a click enlarges. */
import { useState } from "preact/hooks";
import { Lightbox } from "./Lightbox";
import { trans } from "../translation/translation";

export function Diagram({ address, title }: { address: string; title: string }) {
  const [large, setLarge] = useState(false);
  const alt = title || trans.__("Diagram");
  return (
    <>
      <button
        type="button"
        class="ak-diagram"
        title={trans.__("Enlarge")}
        aria-label={trans.__("Enlarge: %1", alt)}
        onClick={() => setLarge(true)}
      >
        <img src={address} alt={alt} />
      </button>
      {large && <Lightbox address={address} alt={alt} onEnd={() => setLarge(false)} />}
    </>
  );
}
