/** The bytes of media, each fetched once per page. Bytes that no component shows any more stay until they exceed
 * MAX_UNUSED together; then the least recently used ones are dropped. */
import { BUNDLE, drawable } from "./bundle";
import type { Transport } from "../transport/transport";
import type { Medium } from "../wire/events";
import { trans } from "../translation/translation";

const MAX_UNUSED = 64 << 20;

interface Kept {
  blob: Promise<Blob>;
  size: number;
  users: number;
}

/** One cache for each transport. Its entries are in the order of their last use. */
const stores = new WeakMap<Transport, Map<string, Kept>>();

export interface Use {
  blob: Promise<Blob>;
  /** Call this once, when the medium is not shown any more. */
  end(): void;
}

/** Return the bytes of a medium from the cache, or fetch them. The promise `blob` rejects with ApiError, or with Error
 * if the medium has neither bytes nor a hash. */
export function acquireMedium(transport: Transport, session: string, medium: Medium): Use {
  const store = stores.get(transport) ?? new Map<string, Kept>();
  stores.set(transport, store);
  const key = medium.hash ?? `inline ${medium.mime} ${medium.data ?? ""}`;
  const kept = store.get(key) ?? { blob: load(transport, session, medium), size: medium.size ?? 0, users: 0 };
  kept.users++;
  store.delete(key);
  store.set(key, kept);
  kept.blob.then(
    (blob) => (kept.size = blob.size),
    () => store.get(key) === kept && store.delete(key), // so that the next request tries again
  );
  let ended = false;
  return {
    blob: kept.blob,
    end() {
      if (ended) return;
      ended = true;
      kept.users--;
      giveUp(store);
    },
  };
}

async function load(transport: Transport, session: string, medium: Medium): Promise<Blob> {
  const blob = await fetchBytes(transport, session, medium);
  return medium.mime === BUNDLE ? await drawable(blob) : blob;
}

async function fetchBytes(transport: Transport, session: string, { data, hash }: Medium): Promise<Blob> {
  if (data) return new Blob([decodeBase64(data)]);
  if (!hash || !/^[0-9a-f]{64}$/.test(hash)) throw new Error(trans.__("This medium was not stored."));
  return await transport.bytes(`sessions/${encodeURIComponent(session)}/blobs/${hash}`);
}

function decodeBase64(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function giveUp(store: Map<string, Kept>): void {
  let unused = 0;
  for (const kept of store.values()) if (kept.users === 0) unused += kept.size;
  for (const [key, kept] of store) {
    if (unused <= MAX_UNUSED) return;
    if (kept.users > 0) continue;
    store.delete(key);
    unused -= kept.size;
  }
}
