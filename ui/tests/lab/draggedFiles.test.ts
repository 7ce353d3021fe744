import { expect, test } from "vitest";
import { relativePath, takeDraggedFiles } from "../../src/lab/draggedFiles";

const MIME = "application/x-jupyter-icontents";

function drag(type: string, mime: string, paths: readonly string[]) {
  const mimeData = { hasData: (one: string) => one === mime, getData: () => paths };
  const event = new Event(type, { bubbles: true, cancelable: true });
  return Object.assign(event, { mimeData, proposedAction: "move", dropAction: "none" });
}

test("files of the file browser become paths in the message, where the cursor is", () => {
  const node = document.createElement("div");
  node.innerHTML = "<form class='ak-composer'><textarea>Plot and sort</textarea></form>";
  const field = node.querySelector("textarea");
  if (!field) throw new Error("there is one");
  let typed = "";
  field.addEventListener("input", () => (typed = field.value));
  takeDraggedFiles(
    node,
    () => "work/",
    (path) => path.replace("RTC:", ""),
  );
  field.setSelectionRange(4, 4);
  const enter = drag("lm-dragenter", MIME, []);
  node.dispatchEvent(enter);
  expect(enter.defaultPrevented).toBe(true);
  const drop = drag("lm-drop", MIME, ["RTC:work/rain.csv", "work/two words.csv", "other.csv"]);
  node.dispatchEvent(drop);
  expect(drop.dropAction).toBe("move");
  expect(typed).toBe('Plot rain.csv, "two words.csv", "../other.csv" and sort');
});

test("other drags are left alone", () => {
  const node = document.createElement("div");
  takeDraggedFiles(
    node,
    () => "",
    (path) => path,
  );
  const enter = drag("lm-dragenter", "application/vnd.jupyter.cells", []);
  node.dispatchEvent(enter);
  expect(enter.defaultPrevented).toBe(false);
});

test.each([
  ["a.csv", "", "a.csv"],
  ["work/a.csv", "work/", "a.csv"],
  ["work/data/a.csv", "work", "data/a.csv"],
  ["data/a.csv", "work/deep", "../../data/a.csv"],
  ["work", "work", "../work"],
])("%s is named in the folder %s as %s", (path, folder, name) => {
  expect(relativePath(path, folder)).toBe(name);
});
