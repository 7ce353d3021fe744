/** The width of the side bar that the panel is in. */
import type { SplitPanel, Widget } from "@lumino/widgets";

const WIDTH_PX = 380;
/** The notebook keeps at least this share of the width of the notebook and the side bar together. */
const REST = 0.4;

/** Make the side bar of the widget WIDTH_PX wide if it is narrower. Returns whether its width could be read. */
export function widen(widget: Widget): boolean {
  const found = splitOf(widget);
  if (!found) return false;
  const { split, at } = found;
  const total = split.node.offsetWidth;
  if (!total || widget.node.offsetWidth >= WIDTH_PX) return total > 0;
  const sizes = split.relativeSizes();
  const largest = sizes.indexOf(Math.max(...sizes.filter((_, index) => index !== at)));
  const both = (sizes[at] ?? 0) + (sizes[largest] ?? 0);
  const wanted = Math.min(WIDTH_PX / total, both * (1 - REST));
  split.setRelativeSizes(
    sizes.map((size, index) => (index === at ? wanted : index === largest ? both - wanted : size)),
  );
  return true;
}

/** Whether the side bar of the widget is narrower than the widget, whose edge is then cut off. */
export function isCut(widget: Widget): boolean {
  const found = splitOf(widget);
  const side = found?.split.widgets[found.at];
  return side !== undefined && side.node.clientWidth < widget.node.clientWidth;
}

/** The split panel around the widget, and the index of the part that the widget is in. */
function splitOf(widget: Widget): { split: SplitPanel; at: number } | null {
  for (let inner = widget, outer = widget.parent; outer; inner = outer, outer = outer.parent) {
    if ("relativeSizes" in outer) {
      const split = outer as SplitPanel;
      return { split, at: split.widgets.indexOf(inner) };
    }
  }
  return null;
}
