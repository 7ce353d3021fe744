/** The options of the next message: which calls need the user's approval, and where code runs. */
import { useEffect } from "preact/hooks";
import type { Permission } from "../conversation/composerState";
import type { Where } from "../conversation/preferences";
import { trans } from "../translation/translation";
import { useDesk } from "../conversation/panelContext";

/** For each value of an option, its label and its description. */
type Words<Value extends string> = Record<Value, [string, string]>;

const permissions = (): Words<Permission> => ({
  auto: [trans.__("Rules"), trans.__("Permissions: by the rules of the server")],
  ask: [trans.__("Ask"), trans.__("Permissions: every call needs your approval")],
  deny: [trans.__("Deny"), trans.__("Permissions: no call runs")],
});
const places = (): Words<Where> => ({
  draft: [
    trans.__("Draft"),
    trans.__("Where code runs: in a draft of your kernel, which sees your variables and does not change them"),
  ],
  live: [trans.__("Kernel"), trans.__("Where code runs: in your kernel, after you approve it")],
  sandbox: [trans.__("Sandbox"), trans.__("Where code runs: in the sandbox, which has none of your variables")],
});

export function TurnOptions() {
  const { composing, conversation } = useDesk();
  const { rules } = conversation;
  useEffect(() => void rules.load(), [rules]);
  return (
    <>
      <Choice
        label={trans.__("Permissions")}
        options={permissions()}
        value={composing.permission.value}
        choose={(value) => {
          composing.permission.value = value;
        }}
      />
      {conversation.place.value.kernel && !conversation.notebook?.apart && (
        <Choice
          label={trans.__("Where code runs")}
          options={places()}
          value={rules.nearest(composing.where.value)}
          denial={(place) => rules.denial(place)}
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
  /** Returns who forbids a value; empty if it is allowed. */
  denial?: (value: Value) => string;
  choose: (value: Value) => void;
}

function Choice<Value extends string>({ label, options, value, denial, choose }: Choosing<Value>) {
  return (
    <select
      class="ak-mode"
      aria-label={label}
      title={options[value][1]}
      value={value}
      onChange={(event) => choose(event.currentTarget.value as Value)}
    >
      {Object.entries<[string, string]>(options).map(([name, [word, words]]) => {
        const because = denial?.(name as Value) ?? "";
        const why = because && trans.__("Not allowed here: %1", because);
        return (
          <option key={name} value={name} title={why || words} disabled={why !== ""}>
            {word}
          </option>
        );
      })}
    </select>
  );
}
