/** Attachments of a message: variables by name, uploaded files, images. */
import { signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { Medium } from "../wire/events";
import type { Attachment, Entry, FileAttachment, ImageAttachment } from "./entry";
import { trans } from "../translation/translation";

export const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGES = 16;
/** Limit for all images of one message together; the server applies the same one. */
const MAX_IMAGES_BYTES = 20 * 2 ** 20;

export class Attachments {
  readonly all = signal<readonly Attachment[]>([]);
  /** Why the last file was not accepted; empty if it was. */
  readonly problem = signal("");
  /** The attachments of the draft, kept here while the user edits an earlier message. */
  #aside: readonly Attachment[] = [];
  readonly #stops = new Map<string, AbortController>();
  #made = 0;

  constructor(private readonly transport: Transport) {}

  /** Attach files to the message. The model sees the images; any other file is uploaded, and the turn copies it into
   * the work directory of the agent's code. */
  async take(files: Iterable<File>, session: string): Promise<void> {
    this.problem.value = "";
    for (const file of files) {
      if (IMAGES.includes(file.type)) await this.#image(file);
      else await this.#file(file, session);
    }
  }

  variable(name: string, summary: string): void {
    const others = this.all.value.filter((one) => one.kind !== "variable" || one.name !== name);
    this.all.value = [...others, { kind: "variable", key: `variable ${name}`, name, summary }];
  }

  remove(key: string): void {
    this.#stops.get(key)?.abort();
    this.#stops.delete(key);
    this.all.value = this.all.value.filter((one) => one.key !== key);
    this.problem.value = "";
  }

  /** Remove all attachments from the composer and return them, to send them with a message. */
  taken(): readonly Attachment[] {
    const all = this.all.value;
    this.all.value = [];
    this.problem.value = "";
    return all;
  }

  /** Whether an upload or a download of an attachment is still running. */
  get pending(): boolean {
    return this.all.value.some(
      (one) => !("failure" in one && one.failure) && ((one.kind === "file" && !one.id) || isFetched(one)),
    );
  }

  /** Hide the attachments of the draft while the user edits an earlier message. */
  setAside(): void {
    this.#aside = this.all.value;
    this.all.value = [];
  }

  /** Show the attachments of the draft again. */
  putBack(): void {
    this.all.value = this.#aside;
    this.#aside = [];
  }

  /** Return the attachments of a sent message to the composer, before those that are there. With `aside`, they are put
   * before the attachments of the draft, which are hidden while the user edits an earlier message. Images that this
   * page does not hold are fetched from the store. */
  async takeAgain({ attached, media = [], inputs = [], view }: Entry, aside = false): Promise<void> {
    if (attached) {
      this.#prepend(attached, aside);
      return;
    }
    const files = inputs.map(({ id, name, size }): FileAttachment => {
      return { kind: "file", key: `file ${++this.#made}`, name, size, id, part: 1, failure: "" };
    });
    const images = media.map((medium, index): ImageAttachment => {
      const name = media.length > 1 ? trans.__("image %1", index + 1) : trans.__("image");
      const { mime, size = 0, data } = medium;
      return { kind: "image", key: `image ${++this.#made}`, name, size, mime, data: data ?? "", failure: "" };
    });
    this.#prepend([...images, ...files], aside);
    const { session } = view.peek();
    await Promise.all(media.map((medium, index) => this.#fetch(images[index]?.key ?? "", session, medium)));
  }

  #prepend(attached: readonly Attachment[], aside: boolean): void {
    if (aside) this.#aside = [...attached, ...this.#aside];
    else this.all.value = [...attached, ...this.all.value];
  }

  async #fetch(key: string, session: string, { data, hash = "" }: Medium): Promise<void> {
    if (data) return;
    try {
      const blob = await this.transport.bytes(`sessions/${session}/blobs/${hash}`);
      this.#changed(key, { data: await base64(blob), size: blob.size });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#changed(key, { failure: error.message });
    }
  }

  async #image(file: File): Promise<void> {
    if (file.size === 0) {
      this.problem.value = trans.__("%1 was not attached: the file is empty.", file.name || trans.__("The image"));
      return;
    }
    const images = this.all.value.filter((one) => one.kind === "image");
    const bytes = images.reduce((sum, image) => sum + image.size, 0);
    if (images.length >= MAX_IMAGES || bytes + file.size > MAX_IMAGES_BYTES) {
      this.problem.value = trans.__(
        "%1 was not attached: a message can have at most %2 images, %3 MiB together.",
        file.name || trans.__("The image"),
        MAX_IMAGES,
        MAX_IMAGES_BYTES >> 20,
      );
      return;
    }
    const data = await base64(file);
    const key = `image ${++this.#made}`;
    const { name, size, type: mime } = file;
    this.all.value = [
      ...this.all.value,
      { kind: "image", key, name: name || trans.__("image"), size, mime, data, failure: "" },
    ];
  }

  async #file(file: File, session: string): Promise<void> {
    if (!this.transport.upload) {
      this.problem.value = trans.__("This page cannot send files.");
      return;
    }
    const { name, size } = file;
    if (!(await isReadable(file))) {
      this.problem.value = trans.__("%1 was not attached: it is a folder, or it cannot be read.", name);
      return;
    }
    const key = `file ${++this.#made}`;
    this.all.value = [...this.all.value, { kind: "file", key, name, size, id: "", part: 0, failure: "" }];
    const form = new FormData();
    form.append("purpose", "user_data");
    if (session) form.append("session", session);
    form.append("file", file);
    const stop = new AbortController();
    this.#stops.set(key, stop);
    try {
      const told = (part: number) => this.#changed(key, { part });
      const { id } = await this.transport.upload<{ id: string }>("files", form, told, stop.signal);
      this.#changed(key, { id, part: 1 });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#changed(key, { failure: error.message });
    }
    this.#stops.delete(key);
  }

  #changed(key: string, change: Partial<Omit<FileAttachment, "kind"> & Omit<ImageAttachment, "kind">>): void {
    const changed = (one: Attachment): Attachment => (one.key === key ? { ...one, ...change } : one);
    this.all.value = this.all.value.map(changed);
    this.#aside = this.#aside.map(changed);
  }
}

const isFetched = (one: Attachment): boolean => one.kind === "image" && !one.data;

/** Whether the page can read the file. The browser passes a dropped folder as a file too, and only reading it fails. */
function isReadable(file: Blob): Promise<boolean> {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(true);
    reader.onerror = () => resolve(false);
    reader.readAsArrayBuffer(file.slice(0, 1));
  });
}

function base64(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error(trans.__("The image cannot be read.")));
    reader.readAsDataURL(file);
  });
}
