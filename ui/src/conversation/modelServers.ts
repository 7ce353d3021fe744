/** The model servers that the user has added to this Jupyter server. The page sends the key of a model server to the
 * Jupyter server and does not keep it. */
import { signal } from "@preact/signals";
import type { Transport } from "../transport/transport";
import type { ModelServer, ModelServers as List, ProbeReport } from "../wire/schema";

export interface ServerFields {
  url: string;
  model: string;
  /** The key of the model server. Null keeps the key that is stored for this name and address. */
  key: string | null;
}

/** All methods reject with ApiError. */
export class ModelServers {
  readonly all = signal<readonly ModelServer[]>([]);

  constructor(private readonly transport: Transport) {}

  async load(): Promise<void> {
    this.all.value = (await this.transport.request<List>("GET", "model_servers")).servers;
  }

  /** Test a model server as `agent-kernel doctor --model` does. The report also has the models that the server
   * lists. */
  async probe(fields: ServerFields): Promise<ProbeReport> {
    return await this.transport.request<ProbeReport>("POST", "model_servers/probe", fields);
  }

  async save(name: string, fields: ServerFields): Promise<ModelServer> {
    const path = `model_servers/${encodeURIComponent(name)}`;
    const saved = await this.transport.request<ModelServer>("PUT", path, fields);
    await this.load();
    return saved;
  }

  async remove(name: string): Promise<void> {
    await this.transport.request("DELETE", `model_servers/${encodeURIComponent(name)}`);
    await this.load();
  }
}

/** A name for a server, from its host: `localhost-8000`. */
export function nameOf(url: string): string {
  try {
    return new URL(url).host.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 64);
  } catch {
    return "";
  }
}
