/** A chart that consists of data. The notebook can draw it, so the panel offers to insert a cell there. */
import { useContext, useState } from "preact/hooks";
import { Icon } from "../markdown/Icon";
import { PanelContext } from "../conversation/panelContext";
import { JsonTree } from "./JsonTree";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

const MAX_INSERTED = 200_000;

export function Chart({ mime, text, value, alt }: { mime: string; text: string; value: unknown; alt: string }) {
  const notebook = useContext(PanelContext)?.host.notebook;
  const [said, say] = useState("");
  const open = () => {
    notebook?.insert(cellOf(mime, text), "below").then(
      () => say(trans.__("Run the new cell to see it.")),
      (error: unknown) => say(errorMessage(error)),
    );
  };
  return (
    <div class="ak-chart">
      <p>
        {mime.includes("plotly") ? trans.__("A Plotly chart") : trans.__("A Vega chart")}: {alt}
      </p>
      {notebook?.bound.value && text.length <= MAX_INSERTED && (
        <button type="button" class="ak-more" onClick={open}>
          <Icon name="notebook" /> {trans.__("Open in the notebook")}
        </button>
      )}
      <span role="status">{said}</span>
      <JsonTree name="data" value={value} />
    </div>
  );
}

/** Python code that displays the chart. A quoted JSON string is a valid Python string too, whatever it contains. */
export function cellOf(mime: string, text: string): string {
  // Editors break lines at U+2028 and U+2029, which JSON allows in strings: escape both.
  const quoted = JSON.stringify(JSON.stringify(JSON.parse(text)))
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  return `import json\n\nfrom IPython.display import display\n\ndisplay({"${mime}": json.loads(${quoted})}, raw=True)`;
}
