/** Bodies about models and engines, as `jupyter_ext/api/native/models.py` writes them. */
import type { ErrorBody } from "./events";

/** What a session talks to. `context_length` in tokens, 0: unknown. */
export interface EngineInfo {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  vision: boolean;
  state: string;
  /** Empty: the server's own. */
  name?: string;
  /** Why it can not be used. */
  problem?: string;
}

/** A model of the catalog. `state`: ready, missing, or broken and why. */
export interface ModelOffer {
  name: string;
  title: string;
  description?: string;
  licence: string;
  publisher: string;
  source: string;
  download_bytes: number;
  disk_bytes: number;
  state: string;
}

/** An engine of the configuration. `refused`: this server lets nothing out. */
export interface EngineOffer {
  name: string;
  model: string;
  local: boolean;
  host: string;
  refused: boolean;
}

export interface Models {
  models: ModelOffer[];
  engines: EngineOffer[];
  current: EngineInfo;
}

/** A line of a download; the last has the stage done or failed. */
export interface PullLine {
  stage: string;
  done?: number | null;
  total?: number | null;
  message?: string;
  error?: ErrorBody;
}
