/** How the next message runs: who is asked, and where its code goes. */
import type { Permission, Where } from "../conversation/composing";
import { useDesk } from "./desk";

const ASKS: Record<Permission, string> = { auto: "By the rules", ask: "Ask always", deny: "Run nothing" };
const PLACES: Record<Where, string> = { live: "In the kernel", draft: "On a copy", sandbox: "In the sandbox" };

export function Mode() {
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
      {conversation.place.value.kernel && (
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
  options: Record<Value, string>;
  value: Value;
  choose: (value: Value) => void;
}

function Choice<Value extends string>({ label, options, value, choose }: Choosing<Value>) {
  return (
    <select
      class="ak-mode"
      aria-label={label}
      title={label}
      value={value}
      onChange={(event) => choose(event.currentTarget.value as Value)}
    >
      {Object.entries<string>(options).map(([name, words]) => (
        <option key={name} value={name}>
          {words}
        </option>
      ))}
    </select>
  );
}
