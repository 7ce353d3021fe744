/** The drawing of a Mermaid diagram by the library of the host, made when it comes near the visible area. */
import type { RefObject } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { imageOf, reasonAgainst, reasonOf } from "./mermaid";
import { useNear } from "./useNear";

/** `address` is empty while there is no drawing; `problem` says why there will be none. */
export interface Drawn {
  address: string;
  title: string;
  problem: string;
}

const NOTHING: Drawn = { address: "", title: "", problem: "" };

/** `source` is null for what is no diagram, or not complete yet. Hosts without the library draw nothing. */
export function useDiagram(source: string | null, place: RefObject<Element | null>): Drawn {
  const diagrams = useContext(PanelContext)?.host.diagrams;
  const theme = diagrams?.theme.value;
  const { ever } = useNear(place);
  const [drawn, setDrawn] = useState(NOTHING);
  useEffect(() => {
    setDrawn(NOTHING);
    if (source === null || !diagrams || !ever) return;
    const problem = reasonAgainst(source);
    if (problem) {
      setDrawn({ ...NOTHING, problem });
      return;
    }
    let current = true;
    const draw = async () => {
      try {
        const { svg, title, background } = await diagrams.draw(source);
        if (current) setDrawn({ address: imageOf(svg, background), title, problem: "" });
      } catch (error) {
        if (current) setDrawn({ ...NOTHING, problem: reasonOf(error) });
      }
    };
    void draw();
    return () => {
      current = false;
    };
  }, [source, diagrams, theme, ever]);
  return drawn;
}
