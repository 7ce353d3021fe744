/** Values that the browser keeps for the panel: drafts for the tab (`sessionStorage`), preferences for all pages
 * (`localStorage`). When storage is full or not allowed, values are lost silently: the panel works without them. */
const PREFIX = "agent-kernel:";

interface KeyValueStorage {
  read(key: string): string;
  /** An empty value removes the key. */
  write(key: string, value: string): void;
}

function storageOver(storage: () => Storage): KeyValueStorage {
  return {
    read(key) {
      try {
        return storage().getItem(PREFIX + key) ?? "";
      } catch {
        return "";
      }
    },
    write(key, value) {
      try {
        if (value) storage().setItem(PREFIX + key, value);
        else storage().removeItem(PREFIX + key);
      } catch {
        // the value is lost, as described at the top of this file
      }
    },
  };
}

/** Remove what this tab keeps, such as drafts of messages, so that the next user of the tab does not see it. */
export function clearTab(): void {
  try {
    const { sessionStorage } = globalThis;
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
  } catch {
    // nothing is kept where storage is not allowed
  }
}

export const tabStorage = storageOver(() => globalThis.sessionStorage);
export const browserStorage = storageOver(() => globalThis.localStorage);
