/** The instructions of one conversation, in the metadata of its session on the server. They are not part of the notebook:
 * a notebook that comes from somebody else brings none. */
import type { Transport } from "../transport/transport";
import type { Session } from "../wire/schema";
import type { Conversation } from "./conversation";

const KEY = "agent_kernel.instructions";

export const instructionsOf = (session: Session | null): string => {
  const text = session?.metadata[KEY];
  return typeof text === "string" ? text : "";
};

/** Rejects with ApiError. */
export async function storeInstructions(
  transport: Transport,
  conversation: Conversation,
  session: Session,
  text: string,
): Promise<void> {
  const metadata = Object.fromEntries(Object.entries(session.metadata).filter(([name]) => name !== KEY));
  const described = text.trim() ? { ...metadata, [KEY]: text.trim() } : metadata;
  const changed = await transport.request<Session>("PATCH", `sessions/${session.id}`, { metadata: described });
  if (conversation.session.value?.id === session.id) conversation.session.value = changed;
}
