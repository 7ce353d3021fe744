/** What this browser remembers of the panel: drafts in the tab (`session`), wishes everywhere (`local`). A browser that
 * lets pages keep nothing, or is full, forgets them; that stops nobody from working. */
const PREFIX = "agent-kernel:";

export interface KeyValueStorage {
  read(key: string): string;
  /** Empty: forget it. */
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
        // not remembered, see above
      }
    },
  };
}

export const tabStorage = storageOver(() => globalThis.sessionStorage);
export const browserStorage = storageOver(() => globalThis.localStorage);
