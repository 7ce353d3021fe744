/** An icon button on the bar of a code block or of media. */
import { ToolbarIcon, type IconName } from "./ToolbarIcon";

export function IconButton({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="ak-code-tool" title={label} aria-label={label} onClick={onClick}>
      <ToolbarIcon name={icon} />
    </button>
  );
}
