/** All commands and keys, on one sheet. */
import { COMMANDS } from "../conversation/commands";
import { useDesk } from "../conversation/panelContext";
import { trans } from "../translation/translation";

export function Help() {
  const { composing, conversation } = useDesk();
  const { enterSends } = composing;
  const besideNotebook = (...rows: [string, string][]) => (conversation.notebook ? rows : []);
  const keys: [string, string][] = [
    [
      enterSends.value ? trans.__("Enter") : trans.__("Ctrl+Enter, Shift+Enter"),
      trans.__("Send; while a turn runs, the message is queued"),
    ],
    [enterSends.value ? trans.__("Shift+Enter") : trans.__("Enter"), trans.__("New line")],
    [trans.__("Arrow up"), trans.__("In an empty message: edit your last message and ask it again on a new branch")],
    ["/", trans.__("Commands")],
    ...besideNotebook(
      ["@", trans.__("Attach variables, cells or the last error")],
      [trans.__("Escape"), trans.__("Back to the notebook")],
    ),
    [trans.__("Escape twice, Ctrl+. or Cmd+."), trans.__("Stop the running turn")],
    ...besideNotebook(
      [trans.__("Ctrl+Shift+L or Cmd+Shift+L"), trans.__("Move from the notebook to the message field")],
      [trans.__("Alt+F5, Alt+Shift+F5"), trans.__("Go to the next or previous change of a cell")],
    ),
    [trans.__("Alt+Up, Alt+Down"), trans.__("Go to the previous or next turn")],
    [trans.__("Alt+Enter"), trans.__("Go to the first approval, or to the first proposed change")],
    ["A, R", trans.__("On an approval: allow once, deny")],
  ];
  return (
    <>
      <h3>{trans.__("Keys")}</h3>
      <dl class="ak-facts ak-keys">
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd class="ak-does">{does}</dd>
          </div>
        ))}
      </dl>
      <h3>{trans.__("Commands")}</h3>
      <dl class="ak-facts ak-keys">
        {COMMANDS.filter(({ needsNotebook }) => !needsNotebook || conversation.notebook).map(
          ({ name, label, help }) => (
            <div key={name}>
              <dt>
                <kbd>/{name}</kbd>
              </dt>
              <dd class="ak-does">
                {label().replace("...", "")}. {help()}
              </dd>
            </div>
          ),
        )}
      </dl>
    </>
  );
}
