/** The folders of `src` are layers: no folder and no file imports itself by way of others, also not for a type alone. */
import { expect, test } from "vitest";

declare global {
  interface ImportMeta {
    /** Vite replaces this call by the files that match, by path. */
    glob(pattern: string, options: { query: "?raw"; import: "default"; eager: true }): Record<string, string>;
  }
}

const SRC = "../src/";
const TEXTS = import.meta.glob("../src/**/*.{ts,tsx}", { query: "?raw", import: "default", eager: true });
const SOURCES = new Map(Object.entries(TEXTS).map(([path, text]) => [path.slice(SRC.length), text]));
/** `from "./x"`, `import "./x"` and `import("./x")`. */
const IMPORT = /(?:from|import)\s*\(?\s*"(\.[^"]+)"/g;

type Graph = Map<string, Set<string>>;

/** Every file with the files that it imports, styles included; paths below `src`. */
function importsOfFiles(): Graph {
  const graph: Graph = new Map();
  for (const [file, text] of SOURCES) {
    const targets = [...text.matchAll(IMPORT)].map(([, target = ""]) => {
      const path = new URL(target, `file:///${file}`).pathname.slice(1);
      return [path, `${path}.ts`, `${path}.tsx`].find((name) => SOURCES.has(name)) ?? path;
    });
    graph.set(file, new Set(targets));
  }
  return graph;
}

/** The same by folder; a file of `src` itself counts as a folder of its own. */
function importsOfFolders(files: Graph): Graph {
  const folderOf = (file: string) => file.split("/")[0] ?? file;
  const graph: Graph = new Map();
  for (const [file, targets] of files) {
    const known = graph.get(folderOf(file)) ?? new Set<string>();
    for (const target of targets) if (folderOf(target) !== folderOf(file)) known.add(folderOf(target));
    graph.set(folderOf(file), known);
  }
  return graph;
}

/** One circle as a path that ends where it begins; empty without one. Depth first. */
function circleIn(graph: Graph): string[] {
  const finished = new Set<string>();
  const visit = (node: string, path: readonly string[]): string[] => {
    if (path.includes(node)) return [...path.slice(path.indexOf(node)), node];
    if (finished.has(node)) return [];
    for (const target of graph.get(node) ?? []) {
      const circle = visit(target, [...path, node]);
      if (circle.length > 0) return circle;
    }
    finished.add(node);
    return [];
  };
  for (const node of graph.keys()) {
    const circle = visit(node, []);
    if (circle.length > 0) return circle;
  }
  return [];
}

test("a circle is found", () => {
  const edges: [string, string[]][] = [
    ["a", ["b"]],
    ["b", ["c", "d"]],
    ["d", ["b"]],
  ];
  expect(circleIn(new Map(edges.map(([node, targets]) => [node, new Set(targets)])))).toEqual(["b", "d", "b"]);
});

test("no file imports itself by way of others", () => {
  const files = importsOfFiles();
  expect(files.get("panel.ts")).toContain("view/Panel.tsx");
  expect(circleIn(files)).toEqual([]);
});

test("no folder imports itself by way of others", () => {
  expect(circleIn(importsOfFolders(importsOfFiles()))).toEqual([]);
});
