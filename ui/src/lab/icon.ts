/** The icon of the agent, in the colour of Lab's icons. */
import { LabIcon } from "@jupyterlab/ui-components";

const PATHS =
  "M4 4h16a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2h-7l-5 4v-4H4a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm0 2v10h6v2.2l2.3-2.2H20V6H4z" +
  "M6.5 8.5h7v1.6h-7zm0 3.4h11v1.6h-11z";

function svg(width: number, fill: string): string {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" viewBox="0 0 24 24">` +
    `<path class="jp-icon3" fill="${fill}" fill-rule="evenodd" d="${PATHS}"/></svg>`
  );
}

export const agentIcon = new LabIcon({ name: "agent-kernel:agent", svgstr: svg(16, "#616161") });

function strokedIcon(path: string): string {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">` +
    `<path class="jp-icon3" style="fill:none" stroke="#616161" stroke-width="2" stroke-linecap="round" ` +
    `stroke-linejoin="round" d="${path}"/></svg>`
  );
}

/** A question mark. */
export const explainIcon = new LabIcon({
  name: "agent-kernel:explain",
  svgstr: strokedIcon("M8 9a4 4 0 1 1 5.6 3.7c-1 .5-1.6 1.2-1.6 2.3M12 19v.1"),
});

/** A wrench. */
export const fixIcon = new LabIcon({
  name: "agent-kernel:fix",
  svgstr: strokedIcon("M20 7l-3.5 3.5-3-3L17 4a5 5 0 0 0-5.8 6.8L4.5 17.5l2 2 6.7-6.7A5 5 0 0 0 20 7z"),
});

/** The icon for the launcher, whose notebook cards show pictures of kernels. Its colour is visible on light and dark
 * themes. */
export const agentIconUrl = `data:image/svg+xml,${encodeURIComponent(svg(64, "#1e88e5"))}`;
