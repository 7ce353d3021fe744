/** All commands and keys, on one sheet. */
import { COMMANDS } from "../conversation/commands";
import { useDesk } from "./panelStateContext";

export function Help() {
  const { enterSends } = useDesk().composing;
  const keys: [string, string][] = [
    [enterSends.value ? "Enter" : "Shift+Enter", "Send; while a turn runs, the message is queued"],
    [enterSends.value ? "Shift+Enter" : "Enter", "New line"],
    ["Arrow up", "In an empty message: edit the last one; it is asked again on a branch"],
    ["/", "Commands"],
    ["@", "Attach variables, cells or the last error"],
    ["Escape", "Back to the notebook"],
    ["Escape twice, Ctrl+. or Cmd+.", "Stop the running turn"],
    ["Ctrl+Shift+L or Cmd+Shift+L", "From the notebook to the message"],
    ["Alt+Up, Alt+Down", "From turn to turn"],
    ["Alt+Enter", "To the first approval"],
    ["A, R", "On an approval: allow once, deny"],
  ];
  return (
    <>
      <h3>Keys</h3>
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
      <h3>Commands</h3>
      <dl class="ak-facts ak-keys">
        {COMMANDS.map(({ name, label, help }) => (
          <div key={name}>
            <dt>
              <kbd>/{name}</kbd>
            </dt>
            <dd class="ak-does">
              {label.replace("...", "")}. {help}
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}
