/** Bodies of `agent/v1/beside`, as `jupyter_ext/api/native/sidecar.py` writes them. */

/** Times in seconds since the epoch, sizes in bytes. `refused` is the reason why it cannot be imported; the other
 * fields are missing then. */
export interface Arrival {
  sha256: string;
  refused: string;
  title: string;
  begins: string;
  turns: number;
  branches: number;
  messages: number;
  media: number;
  media_bytes: number;
  files: number;
  left_out: Record<string, number>;
  models: string[];
  created?: number;
  updated?: number;
}

export interface Sidecar {
  name: string;
  kind: "nothing" | "own" | "moved" | "copied" | "ahead" | "foreign" | "unreadable";
  told: string;
  problem: string;
  saved: number | null;
  size: number;
  arrival: Arrival | null;
}
