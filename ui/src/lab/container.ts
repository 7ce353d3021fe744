/** The module federation container that JupyterLab loads: `init` receives the scope of shared modules, `get` returns
 * the plugin. It is written by hand, because it exposes only one module and uses few of JupyterLab's, so that the
 * project needs no second bundler. */
import "./scriptUrl"; // first: `document.currentScript` is set only while this script is evaluated

interface Provided {
  get(): Promise<() => unknown>;
  loaded?: boolean | number;
}
type Scope = Record<string, Record<string, Provided>>;

declare global {
  var _JUPYTERLAB: Record<string, unknown> | undefined;
  var __agent_kernel_shared: Record<string, unknown>;
}

const NEEDED = [
  "@jupyterlab/application",
  "@jupyterlab/apputils",
  "@jupyterlab/cells",
  "@jupyterlab/completer",
  "@jupyterlab/coreutils",
  "@jupyterlab/launcher",
  "@jupyterlab/mermaid",
  "@jupyterlab/notebook",
  "@jupyterlab/services",
  "@jupyterlab/settingregistry",
  "@jupyterlab/statedb",
  "@jupyterlab/statusbar",
  "@jupyterlab/translation",
  "@jupyterlab/ui-components",
  "@lumino/signaling",
  "@lumino/widgets",
];

let scope: Scope = {};

async function loadProvided(name: string): Promise<unknown> {
  const versions = Object.values(scope[name] ?? {});
  const best = versions.find((one) => one.loaded) ?? versions.at(-1);
  return best ? (await best.get())() : undefined;
}

async function modules(): Promise<void> {
  // An application without one of these modules has no token for its service; the plugin then gets null for it.
  const found = await Promise.all(NEEDED.map(async (name) => [name, (await loadProvided(name)) ?? {}] as const));
  globalThis.__agent_kernel_shared = Object.fromEntries(found);
}

const container = {
  init(given: Scope): void {
    scope = given;
  },
  async get(name: string): Promise<() => unknown> {
    if (name !== "./extension") throw new Error(`agent-kernel has no module ${name}`);
    await modules();
    const { plugins } = await import("./plugin");
    return () => ({ __esModule: true, default: plugins });
  },
};

(globalThis._JUPYTERLAB ??= {})["agent-kernel"] = container;
