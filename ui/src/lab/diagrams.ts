/** Draws Mermaid diagrams with JupyterLab's own library, which it loads at the first diagram. */
import type { IThemeManager } from "@jupyterlab/apputils";
import type { IMermaidManager } from "@jupyterlab/mermaid";
import type { signal as makeSignal, Signal } from "@preact/signals";
import type { DiagramLibrary, Drawing } from "../conversation/panelContext";

export class LabDiagrams implements DiagramLibrary {
  readonly theme: Signal<string>;

  /** `makeSignal` is the panel's, which redraws when its signals change. */
  constructor(
    private readonly mermaid: IMermaidManager,
    private readonly themes: IThemeManager | null,
    signal: typeof makeSignal,
  ) {
    this.theme = signal(themes?.theme ?? "");
    themes?.themeChanged.connect(this.#follow);
  }

  async draw(source: string): Promise<Drawing> {
    const { svg, accessibleTitle } = await this.mermaid.renderSvg(source);
    const background = getComputedStyle(document.body).getPropertyValue("--jp-layout-color1").trim();
    return { svg, title: accessibleTitle ?? "", background };
  }

  dispose(): void {
    this.themes?.themeChanged.disconnect(this.#follow);
  }

  readonly #follow = (): void => {
    this.theme.value = this.themes?.theme ?? "";
  };
}
