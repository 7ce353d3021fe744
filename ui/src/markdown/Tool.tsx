/** A button that is a drawing, on the bar of a block of code or of a medium. */
import { Icon, type IconName } from "./Icon";

export function Tool({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="ak-code-tool" title={label} aria-label={label} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}
