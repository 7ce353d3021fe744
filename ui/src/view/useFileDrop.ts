/** Takes files that are dropped anywhere on the panel as attachments of the message. A browser would otherwise leave the
 * page and show the file. */
import type { Desk } from "../conversation/panelState";

interface Drop {
  onDragOver: (event: DragEvent) => void;
  onDragLeave: (event: DragEvent) => void;
  onDrop: (event: DragEvent) => void;
}

/** The event handlers for files that are dragged over the panel. `covered`: a sheet covers the message field, so that
 * dropped files are refused. A file input in the sheet handles files that are dropped on it itself. */
export function useFileDrop(desk: Desk, covered: boolean): Drop {
  const { dropping, attachments } = desk.composing;
  const isOurs = ({ target, dataTransfer }: DragEvent): boolean =>
    dataTransfer?.types.includes("Files") === true && !(target instanceof HTMLInputElement && target.type === "file");
  return {
    onDragOver: (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      if (covered && event.dataTransfer) event.dataTransfer.dropEffect = "none";
      dropping.value = !covered;
    },
    onDragLeave: ({ currentTarget, relatedTarget }) => {
      const within =
        currentTarget instanceof Node && relatedTarget instanceof Node && currentTarget.contains(relatedTarget);
      if (!within) dropping.value = false;
    },
    onDrop: (event) => {
      dropping.value = false;
      if (!isOurs(event)) return;
      event.preventDefault();
      if (!covered) void attachments.take([...(event.dataTransfer?.files ?? [])], desk.session);
    },
  };
}
