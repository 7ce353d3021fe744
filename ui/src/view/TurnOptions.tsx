/** How the next message runs: the permission mode, and where code runs. */
import type { Permission, Where } from "../conversation/composerState";
import { useDesk } from "./panelStateContext";

/** A label and a description for each value. */
type Words<Value extends string> = Record<Value, [string, string]>;

const ASKS: Words<Permission> = {
  auto: ["Rules", "What may run: according to the rules of the server"],
  ask: ["Ask", "What may run: nothing without your approval"],
  deny: ["Deny", "What may run: nothing"],
};
const PLACES: Words<Where> = {
  draft: ["Draft", "Where code runs: in a draft of your kernel, which sees your variables and does not change them"],
  live: ["Kernel", "Where code runs: in your kernel, after asking"],
  sandbox: ["Sandbox", "Where code runs: in the sandbox, which has none of your variables"],
};

export function TurnOptions() {
  const { composing, conversation } = useDesk();
  return (
    <>
      <Choice
        label="What may run"
        options={ASKS}
        value={composing.permission.value}
        choose={(value) => {
          composing.permission.value = value;
        }}
      />
      {conversation.place.value.kernel && !conversation.notebook?.apart && (
        <Choice
          label="Where code runs"
          options={PLACES}
          value={composing.where.value}
          choose={(value) => {
            composing.where.value = value;
          }}
        />
      )}
    </>
  );
}

interface Choosing<Value extends string> {
  label: string;
  options: Words<Value>;
  value: Value;
  choose: (value: Value) => void;
}

function Choice<Value extends string>({ label, options, value, choose }: Choosing<Value>) {
  return (
    <select
      class="ak-mode"
      aria-label={label}
      title={options[value][1]}
      value={value}
      onChange={(event) => choose(event.currentTarget.value as Value)}
    >
      {Object.entries<[string, string]>(options).map(([name, [word, words]]) => (
        <option key={name} value={name} title={words}>
          {word}
        </option>
      ))}
    </select>
  );
}
