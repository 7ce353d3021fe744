// Builds the panel for its hosts. The results are committed, so that installing the package needs no node:
//   jupyter_ext/labextensions  what JupyterLab and Notebook 7 load (a module federation container and the panel)
//   agent_kernel/notebook/panel/static  one module and its styles, for anywidget and for the page of agent-kernel serve
//   jupyter_ext/api/webapp/static  what that page has beside them
// Names of files hold a hash of their content: a browser never keeps an old one.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = process.argv.includes("--into") ? process.argv[process.argv.indexOf("--into") + 1] : dirname(here);
const { name, version, license } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
const lab = join(root, "jupyter_ext", "labextensions", name);
const widget = join(root, "agent_kernel", "notebook", "panel", "static");
const webapp = join(root, "jupyter_ext", "api", "webapp", "static");

const common = {
  bundle: true,
  minify: true,
  write: false,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir: "out",
  absWorkingDir: here,
  logLevel: "warning",
};

/** Lab's own modules are not bundled: the container finds them in the scope that Lab shares. */
const shared = {
  name: "shared",
  setup(build) {
    build.onResolve({ filter: /^@(jupyterlab|lumino)\// }, ({ path }) => ({ path, namespace: "shared" }));
    build.onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
      contents: `module.exports = globalThis.__agent_kernel_shared[${JSON.stringify(path)}];`,
    }));
  },
};

/** The page loads the panel from the module of the widget, which the server serves beside its own. */
const besideWidget = {
  name: "beside the widget",
  setup(build) {
    build.onResolve({ filter: /\/widget\/widget$/ }, () => ({ path: "./widget.js", external: true }));
  },
};

async function bundle(entry, options) {
  const { outputFiles } = await esbuild.build({ ...common, entryPoints: [entry], ...options });
  const text = (suffix) => outputFiles.find((file) => file.path.endsWith(suffix))?.text ?? "";
  return { js: text(".js"), css: text(".css") };
}

/** With a hash of its content in its name. */
function named(stem, extension, content) {
  return `${stem}.${createHash("sha256").update(content).digest("hex").slice(0, 12)}.${extension}`;
}

/** In the place of all that is in the directory. */
async function replace(directory, files) {
  await rm(directory, { recursive: true, force: true });
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, name)), { recursive: true });
    await writeFile(join(directory, name), content);
  }
}

const kilobytes = (text) => `${(gzipSync(text).length / 1024).toFixed(1)} kB gzipped`;

const panel = await bundle("src/panel.ts", { format: "esm" });
const panelFile = named("panel", "js", panel.js);
const styleFile = named("panel", "css", panel.css);
const container = await bundle("src/lab/container.ts", {
  format: "iife",
  plugins: [shared],
  define: { PANEL_FILE: JSON.stringify(panelFile), STYLE_FILE: JSON.stringify(styleFile) },
});
const load = `static/${named("remoteEntry", "js", container.js)}`;
const about = { name, version, license, jupyterlab: { extension: true, _build: { load, extension: "./extension" } } };
/** Tells Lab's extension manager how the extension is removed. */
const install = {
  packageManager: "python",
  packageName: name,
  uninstallInstructions: `Use your Python package manager (pip, conda or others) to remove the package ${name}.`,
};
const inCell = await bundle("src/widget/widget.ts", { format: "esm" });
const page = await bundle("src/webapp/webapp.ts", { format: "esm", plugins: [besideWidget] });

// Only now, when everything could be built.
await replace(lab, {
  [`schemas/${name}/panel.json`]: await readFile(join(here, "schema", "panel.json"), "utf8"),
  [`schemas/${name}/settings.json`]: await readFile(join(here, "schema", "settings.json"), "utf8"),
  "package.json": `${JSON.stringify(about, null, 2)}\n`,
  "install.json": `${JSON.stringify(install, null, 2)}\n`,
  [`static/${panelFile}`]: panel.js,
  [`static/${styleFile}`]: panel.css,
  [load]: container.js,
});
await replace(widget, { "widget.js": inCell.js, "widget.css": inCell.css });
await replace(webapp, {
  "page.html": await readFile(join(here, "src", "webapp", "page.html"), "utf8"),
  "icon.svg": await readFile(join(here, "src", "webapp", "icon.svg"), "utf8"),
  "webapp.js": page.js,
  "webapp.css": page.css,
});

console.log(`panel ${kilobytes(panel.js)}, styles ${kilobytes(panel.css)}`);
console.log(
  `at the start of Lab ${kilobytes(container.js)}; widget ${kilobytes(inCell.js)}, page ${kilobytes(page.js)}`,
);
