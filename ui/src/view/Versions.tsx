/** Switches between several answers to one prompt, each on its own branch. */
import { useSignal } from "@preact/signals";
import { ApiError } from "../transport/transport";
import type { TurnView } from "../turn/turn";
import { Icon } from "./Icon";
import { Problem } from "./Problem";
import { usePanel } from "../conversation/panelContext";
import { trans } from "../translation/translation";

interface Listed {
  versions: { turn: string; branch: string }[];
}

export function Versions({ turn }: { turn: TurnView }) {
  const { conversation, host } = usePanel();
  const problem = useSignal("");
  const { version } = turn;
  if (!version || version.count < 2) return null;
  const to = async (step: number) => {
    problem.value = "";
    try {
      const path = `turns/${turn.id}/versions?session=${encodeURIComponent(turn.session)}`;
      const { versions } = await host.transport.request<Listed>("GET", path);
      const other = versions[versions.findIndex((one) => one.turn === turn.id) + step];
      if (other) await conversation.toBranch(other.branch);
    } catch (error) {
      problem.value = error instanceof ApiError ? error.message : trans.__("The branch could not be shown.");
    }
  };
  return (
    <span class="ak-versions" role="group" aria-label={trans.__("Version %1 of %2", version.number, version.count)}>
      <Arrow name="left" label={trans.__("Previous version")} off={version.number <= 1} onClick={() => void to(-1)} />
      <span title={trans.__("Branch %1", version.branch)}>
        {version.number}/{version.count}
      </span>
      <Arrow
        name="right"
        label={trans.__("Next version")}
        off={version.number >= version.count}
        onClick={() => void to(1)}
      />
      <Problem text={problem.value} inline />
    </span>
  );
}

function Arrow({
  name,
  label,
  off,
  onClick,
}: {
  name: "left" | "right";
  label: string;
  off: boolean;
  onClick: () => void;
}) {
  return (
    <button type="button" class="ak-tool" aria-label={label} title={label} disabled={off} onClick={onClick}>
      <Icon name={name} />
    </button>
  );
}
