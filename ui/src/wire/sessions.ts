/** Bodies about stored sessions: lists, search, branches, permissions. */
import type { Session } from "./api";

export interface Listed extends Session {
  /** Whether it is the session of the notebook in the request. */
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

/** `ran` names the tools that ran; their effects stay. */
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

/** How much of the model's context the newest turn used; `window` is 0 if unknown. */
export interface Usage {
  total: { turns: number; prompt_tokens: number; completion_tokens: number; estimated: boolean };
  context?: { tokens: number; window: number };
}

export interface KernelVariable {
  name: string;
  summary: string;
}
