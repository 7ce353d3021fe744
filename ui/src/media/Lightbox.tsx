/** An image in full size, until Escape, a click beside it, or the close button. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "../markdown/IconButton";
import { trans } from "../translation/translation";

export function Lightbox({
  label,
  children,
  onEnd,
}: {
  label: string;
  children: ComponentChildren;
  onEnd: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      class="ak-enlarged"
      aria-label={label}
      onClose={onEnd}
      onKeyDown={(event) => event.stopPropagation()} // the notebook must not react to keys that are pressed here
      onClick={(event) => event.target === event.currentTarget && event.currentTarget.close()}
    >
      <div class="ak-media-bar">
        <span>{label}</span>
        <IconButton icon="close" label={trans.__("Close")} onClick={() => dialog.current?.close()} />
      </div>
      {children}
    </dialog>
  );
}
