/** Files that a turn produced, with downloads. */
import { useSignal } from "@preact/signals";
import type { Facts } from "../wire/schema";
import { saveFile } from "../media/saveFile";
import { formatBytes } from "../turn/labels";
import { Icon } from "../markdown/Icon";
import { markInvisible } from "./Source";
import { Problem } from "./Problem";
import { usePanel } from "../conversation/panelContext";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

export function Files({ files }: { files: readonly Facts[] }) {
  if (files.length === 0) return null;
  return (
    <ul class="ak-files" aria-label={trans.__("Files")}>
      {files.map((file) => (
        <File key={text(file["id"])} file={file} />
      ))}
    </ul>
  );
}

function File({ file }: { file: Facts }) {
  const { host } = usePanel();
  const problem = useSignal(text(file["code"]) && (text(file["message"]) || trans.__("The file could not be saved.")));
  const name = text(file["name"]) || text(file["filename"]) || trans.__("file");
  const size = typeof file["bytes"] === "number" ? formatBytes(file["bytes"]) : "";
  const fetched = async () => {
    problem.value = "";
    try {
      saveFile(await host.transport.bytes(`files/${encodeURIComponent(text(file["id"]))}/content`), name);
    } catch (error) {
      problem.value = errorMessage(error);
    }
  };
  return (
    <li>
      <Icon name="file" />
      <bdi class="ak-file-name">{markInvisible(name)}</bdi> <span class="ak-quiet">{size}</span>
      {!file["code"] && (
        <button type="button" class="ak-tool" onClick={() => void fetched()} aria-label={trans.__("Download %1", name)}>
          <Icon name="save" />
          {trans.__("Download")}
        </button>
      )}
      <Problem text={problem.value} inline />
    </li>
  );
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
