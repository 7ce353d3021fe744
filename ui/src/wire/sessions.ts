/** Bodies about sessions as a person keeps them: lists, search, branches, what is allowed. */
import type { Session } from "./api";

export interface Listed extends Session {
  /** The session of the notebook that asked. */
  bound?: boolean;
  notebooks?: string[];
}

export interface Snippet {
  text: string;
  role: string;
  turn: string;
}

export interface Hit {
  session: Session;
  notebooks: string[];
  snippets: Snippet[];
}

export interface Branch {
  name: string;
  current: boolean;
  turns: number;
  created: number;
}

/** `ran` names what it ran, whose effects stay. */
export interface Undone {
  turn: string;
  items: number;
  prompt: string;
  ran: string[];
}

export interface Ruling {
  permission: string;
  because: string;
}

export interface Grant {
  kind: string;
  tool: string;
  decision: string;
}

export interface Permissions {
  policy: Record<string, Ruling>;
  approval_timeout_s: number;
  grants?: Grant[];
}

export interface Trust {
  folder: string | null;
  trusted: boolean;
  folders: { path: string }[];
}

/** What the newest turn took of the model's context; `window` 0: unknown. */
export interface Usage {
  total: { turns: number; prompt_tokens: number; completion_tokens: number; estimated: boolean };
  context?: { tokens: number; window: number };
}

export interface KernelVariable {
  name: string;
  summary: string;
}
