/** Bodies about models and engines, as `jupyter_ext/api/native/models.py` writes them. */
import type { ErrorBody } from "./events";

/** The model of a session. `context_length` in tokens; 0 if unknown. */
export interface EngineInfo {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  vision: boolean;
  state: string;
  /** Empty for the default of the server. */
  name?: string;
  /** Why it cannot be used. */
  problem?: string;
}

/** A model of the catalog. `state`: ready, missing, or broken with the reason. */
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

/** A configured engine. `refused`: this server sends nothing to other hosts. */
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

/** A line of the download stream; the last one has the stage done or failed. */
export interface PullLine {
  stage: string;
  done?: number | null;
  total?: number | null;
  message?: string;
  error?: ErrorBody;
}
