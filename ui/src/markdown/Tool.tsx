/** An icon button on the bar of a code block or of media. */
import { Icon, type IconName } from "./Icon";

export function Tool({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="ak-code-tool" title={label} aria-label={label} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}
