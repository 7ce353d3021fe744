/** What is sent with the message: parts of the notebook, variables, files, images. Each can be removed. */
import type { ComponentChildren } from "preact";
import { IMAGES } from "../conversation/attachments";
import { shownTitle } from "../turn/cellName";
import type { Attachment } from "../conversation/entry";
import { formatBytes } from "../turn/labels";
import { useDesk } from "../conversation/panelContext";
import { ButtonIcon } from "./ButtonIcon";
import { Problem } from "./Problem";
import { markInvisible } from "./Source";
import { trans } from "../translation/translation";

export function AttachmentChips() {
  const { composing, conversation, engine } = useDesk();
  const sides = composing.sides.value;
  const attached = composing.attachments.all.value;
  const noted = conversation.notes.value;
  const blind = engine.current.value?.state === "ready" && !engine.current.value.vision;
  const problem = composing.attachments.problem.value;
  if (sides.length + attached.length + noted.length === 0 && !problem) return null;
  return (
    <>
      <ul class="ak-chips" aria-label={trans.__("Attachments of this message")}>
        {sides.map(({ side, label, cells }) => (
          <Chip
            key={side}
            name={shownTitle(label)}
            title={cells[0]?.source ?? ""}
            remove={() => composing.leaveOut(side)}
          >
            {shownTitle(label)}
          </Chip>
        ))}
        {noted.map((note, index) => (
          <Chip
            key={`${index} ${note.title}`}
            name={shownTitle(note.title)}
            title={note.text}
            remove={() => {
              conversation.notes.value = noted.filter((other) => other !== note);
            }}
          >
            {shownTitle(note.title)}
          </Chip>
        ))}
        {attached.map((one) => (
          <Chip key={one.key} name={one.name} title={about(one)} remove={() => composing.attachments.remove(one.key)}>
            <Attached one={one} />
          </Chip>
        ))}
      </ul>
      {blind && attached.some(({ kind }) => kind === "image") && (
        <p class="ak-hint">{trans.__("%1 reads text only and does not see the image.", engine.current.value.model)}</p>
      )}
      <Problem text={problem} />
    </>
  );
}

interface ChipProps {
  name: string;
  title: string;
  remove: () => void;
  children: ComponentChildren;
}

function Chip({ name, title, remove, children }: ChipProps) {
  return (
    <li class="ak-chip ak-along" title={title.slice(0, 500)}>
      <span class="ak-cut">{children}</span>
      <button type="button" class="ak-chip-remove" aria-label={trans.__("Leave out %1", name)} onClick={remove}>
        <ButtonIcon sign="close" />
      </button>
    </li>
  );
}

function Attached({ one }: { one: Attachment }) {
  const name = <bdi>{markInvisible(one.name)}</bdi>;
  if (one.kind === "variable") return <>@{one.name}</>;
  if (one.failure) {
    return (
      <span class="ak-problem">
        {name}: {one.failure}
      </span>
    );
  }
  if (one.kind === "image") {
    return (
      <>
        {IMAGES.includes(one.mime) && one.data && (
          <img class="ak-thumb" src={`data:${one.mime};base64,${one.data}`} alt="" />
        )}{" "}
        {name} {one.data ? "" : <progress aria-label={trans.__("Fetching %1", one.name)} />}
      </>
    );
  }
  return (
    <>
      {name} {one.id ? "" : <progress max={1} value={one.part} aria-label={trans.__("Upload of %1", one.name)} />}
    </>
  );
}

const about = (one: Attachment): string =>
  one.kind === "variable" ? one.summary : `${one.name}, ${formatBytes(one.size)}`;
