/** Bodies of `agent/v1/beside`, as `handlers/beside.py` writes them. */

/** Times in seconds since the epoch, sizes in bytes. `refused` says why it can not come in; then the rest is missing. */
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
