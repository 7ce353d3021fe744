/** A code block of an answer, with its buttons. A Mermaid diagram is drawn if the host has a library for it. */
import { useContext, useRef, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { copy } from "./clipboard";
import { Code } from "./Code";
import { IconButton } from "./Icon";
import { EnlargeButton } from "./Lightbox";
import { useDiagram } from "./mermaid";
import { useShortMessage } from "./useShortMessage";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

const MERMAID = "mermaid";
const RUN_HERE = new Set(["python", "py", "python3", "ipython"]);

interface Block {
  code: string;
  language: string;
  open?: boolean;
}

export function CodeBlock({ code, language, open = false }: Block) {
  const [message, say] = useShortMessage();
  const place = useRef<HTMLDivElement>(null);
  const diagram = useDiagram(language === MERMAID && !open ? code : null, place);
  const [asCode, setAsCode] = useState(false);
  const isDrawn = diagram.address !== "" && !asCode;
  const label = language ? trans.__("Code, %1", language) : trans.__("Code");
  return (
    <div class="ak-code-block" role="group" aria-label={label} ref={place}>
      <div class="ak-code-bar">
        <span class="ak-code-language">{language || trans.__("text")}</span>
        <span class="ak-code-said" role="status">
          {message}
        </span>
        {diagram.address && (
          <IconButton
            icon={isDrawn ? "code" : "picture"}
            label={isDrawn ? trans.__("Show the code") : trans.__("Show the diagram")}
            onClick={() => setAsCode(isDrawn)}
          />
        )}
        {!open && <Tools code={code} language={language} say={say} />}
      </div>
      {diagram.problem && <p class="ak-code-note">{diagram.problem}</p>}
      {isDrawn ? (
        <EnlargeButton address={diagram.address} alt={diagram.title || trans.__("Diagram")} name="ak-diagram" />
      ) : (
        <pre tabIndex={0} aria-label={trans.__("Source")}>
          <Code code={code} language={language} open={open} />
        </pre>
      )}
    </div>
  );
}

function Tools({ code, language, say }: { code: string; language: string; say: (text: string) => void }) {
  const around = useContext(PanelContext);
  const notebook = around?.host.notebook ?? null;
  const sending = useRef(false);
  const attempt = (work: Promise<unknown>, done: string) => {
    work.then(
      () => say(done),
      (error: unknown) => say(errorMessage(error)),
    );
  };
  const send = async () => {
    if (!around || sending.current) return;
    sending.current = true;
    try {
      say((await around.conversation.send(inSandbox(code))) ? trans.__("Sent") : trans.__("The message was not sent."));
    } catch (error) {
      say(errorMessage(error));
    } finally {
      sending.current = false;
    }
  };
  const insert = (where: "above" | "below" | "replace", done: string) => {
    if (notebook) attempt(notebook.insert(code, where), done);
  };
  return (
    <span class="ak-code-tools">
      <IconButton icon="copy" label={trans.__("Copy")} onClick={() => attempt(copy(code), trans.__("Copied"))} />
      {notebook?.bound.value && (
        <>
          <IconButton
            icon="above"
            label={trans.__("Insert above the active cell")}
            onClick={() => insert("above", trans.__("Inserted"))}
          />
          <IconButton
            icon="below"
            label={trans.__("Insert below the active cell")}
            onClick={() => insert("below", trans.__("Inserted"))}
          />
          <IconButton
            icon="replace"
            label={trans.__("Replace the active cell")}
            onClick={() => insert("replace", trans.__("Replaced"))}
          />
        </>
      )}
      {around && RUN_HERE.has(language) && (
        <IconButton
          icon="play"
          label={trans.__("Ask the agent to run this in the sandbox")}
          onClick={() => void send()}
        />
      )}
    </span>
  );
}

/** A message that asks the agent to run the code in the sandbox. The panel cannot run code there itself; the code runs
 * in a turn, which is then part of the session. */
function inSandbox(code: string) {
  const ticks = "`".repeat(Math.max(3, ...[...code.matchAll(/`+/g)].map(([run]) => run.length + 1)));
  return {
    prompt: `${trans.__("Run this code in the sandbox, exactly as it is, and say what came out.")}\n\n${ticks}python\n${code}\n${ticks}`,
    options: { where: "sandbox", tool_choice: "python" },
  };
}
