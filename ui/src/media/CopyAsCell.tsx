/** A button that puts the code of a table or a plot into the notebook. */
import { useContext } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { copy } from "../markdown/clipboard";
import { IconButton } from "../markdown/IconButton";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

/** `say` shows the user whether the code was inserted or copied. */
export function CopyAsCell({ code, say }: { code: string; say: (text: string) => void }) {
  const notebook = useContext(PanelContext)?.host.notebook;
  const insert = async (): Promise<string> => {
    // Where the host cannot change cells, such as in a widget, there is no notebook for this button either.
    if (!notebook?.bound.value || !notebook.changes) {
      await copy(code);
      return trans.__("There is no notebook here, so the code was copied.");
    }
    notebook.reveal(await notebook.insert(code, "below"));
    return trans.__("Inserted");
  };
  const attempt = () => insert().then(say, (error: unknown) => say(errorMessage(error)));
  return <IconButton icon="cell" label={trans.__("Copy as cell")} onClick={() => void attempt()} />;
}
