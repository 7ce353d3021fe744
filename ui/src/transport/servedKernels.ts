/** The kernels for whose notebooks this page runs tool calls, and whether the server has confirmed that it knows them.
 * The server answers the messages of a connection in their order, so its answer to a ping confirms what was sent before
 * that ping. */
import type { ClientMessage, Serving } from "../wire/socket";

/** The longest time, in milliseconds, that a user's message waits for the confirmation before it is sent. Without the
 * confirmation, its turn may have the tools of the server only. */
const WITHIN_MS = 3_000;

export class ServedKernels {
  readonly #tools = new Map<string, string[]>();
  readonly #confirmed = new Set<string>();
  /** For each ping that is not answered yet, in the order in which they were sent: the kernel that the answer confirms;
   * empty for none. */
  #pings: string[] = [];
  readonly #waiting = new Map<string, Set<() => void>>();

  /** `ask` sends a message and returns false if there is no connection. */
  constructor(private readonly ask: (message: ClientMessage) => boolean) {}

  add({ kernel, tools }: Serving): () => void {
    this.#tools.set(kernel, tools);
    this.#announce(kernel, tools);
    return () => {
      if (this.#tools.get(kernel) !== tools) return;
      this.#tools.delete(kernel);
      this.#confirmed.delete(kernel);
      this.ask({ do: "unserve", kernel });
    };
  }

  /** Resolves when the server knows the tools of a kernel, at once for a kernel that this page does not serve, and after
   * WITHIN_MS in any case. */
  async confirmed(kernel: string): Promise<void> {
    if (!this.#tools.has(kernel) || this.#confirmed.has(kernel)) return;
    const waiting = this.#waiting.get(kernel) ?? new Set();
    this.#waiting.set(kernel, waiting);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, WITHIN_MS);
      waiting.add(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  ping(confirms = ""): void {
    if (this.ask({ do: "ping" })) this.#pings.push(confirms);
  }

  pong(): void {
    const kernel = this.#pings.shift();
    if (!kernel || !this.#tools.has(kernel)) return;
    this.#confirmed.add(kernel);
    for (const goOn of this.#waiting.get(kernel) ?? []) goOn();
    this.#waiting.delete(kernel);
  }

  /** Announce all kernels on a new connection, whose server knows none of them. */
  announceAll(): void {
    this.#pings = [];
    this.#confirmed.clear();
    for (const [kernel, tools] of this.#tools) this.#announce(kernel, tools);
  }

  #announce(kernel: string, tools: string[]): void {
    this.ask({ do: "serve", kernel, tools });
    this.ping(kernel);
  }
}
