/** Written by `python -m tests.jupyter_ext.record_panel_types`; do not edit. A test compares it with the server. */
/* eslint-disable max-lines */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Facts = Record<string, Json>;

/** Where the numbers of the answer come from.
 *
 * `numbers` lists the numbers of the last text of the turn in order, each `{start, end, text, status}`; those that
 * come from a call also have `{call, line, shown}` (`turn/number_check/check.py`). Sent just before the end of a
 * turn, in conversations in which tools ran. */
export interface AnswerChecked {
  numbers: Facts[];
}

/** The tokens of the text of one model call in order, each `{text, logprob}`.
 *
 * `top` holds the likeliest tokens at that position if they were requested. The event is sent only if log
 * probabilities were requested, the engine provides them, and no secret was removed from the text. */
export interface AnswerLogprobs {
  tokens: Facts[];
}

/** A person must decide about a call before it runs.
 *
 * `code` is exactly what will run, in a form that a person can read: every character in `code` and `label` that
 * would be invisible is replaced by its code point (`mark_invisible`), whoever constructs this value, and `unseen`
 * lists these code points. `arguments` are the arguments of the call, unchanged. `target` is where it runs.
 *
 * `shown` is the hash of name, target and arguments. A decision repeats it, so that the decision cannot apply to
 * another call. `remember` lists the decisions that may outlast this call (session, never; for a path also folder).
 * `until` is when the call is denied automatically (seconds since the epoch); None waits without a limit. `again`
 * explains why an earlier approval does not apply here. */
export interface ApprovalRequired {
  approval: string;
  call: string;
  name: string;
  kind: string;
  target: string;
  code: string;
  arguments: Facts;
  source: string;
  label: string;
  shown: string;
  remember: string[];
  until: number | null;
  again: string;
  unseen: string[];
}

export interface ApprovalResolved {
  approval: string;
  call: string;
  decision: string;
  reason: string;
}

export interface Arrival {
  sha256: string;
  refused: string;
  created?: number;
  updated?: number;
  models?: string[];
  format?: string;
  id?: string;
  title?: string;
  branches?: number;
  turns?: number;
  messages?: number;
  media?: number;
  media_bytes?: number;
  begins?: string;
  left_out?: Record<string, number>;
  files?: number;
}

/** Why the stored answer `turn` of a cell does not stand, in words; or `variables`: they are not what its code
 * left in the kernel, which knows them. */
export interface AskedAgain {
  reason: string;
  turn: string;
}

export interface Beside {
  name: string;
  kind: string;
  told: string;
  problem: string;
  saved: number | null;
  size: number;
  arrival: Arrival | null;
}

export interface Binding {
  session: Session | null;
  notebook: string | null;
  kernel: string | null;
  namespace: string;
  server: Server;
  model: CurrentEngine;
  notes: string[];
  open: boolean;
  environment: Record<string, string>;
}

/** One path through the tree of turns.
 *
 * Items up to `since` are shared with `parent` (empty for the first branch). `head` is the seq of its newest
 * item, and `turns` the number of turns on it. */
export interface Branch {
  name: string;
  parent: string;
  since: number;
  head: number;
  turns: number;
  created: number;
  current: boolean;
}

export interface Branches {
  branches: Branch[];
  revision: number;
}

/** What everybody of the namespace may see of a session. Times are seconds since the epoch. `turns` counts
 * those of all branches, `head` is the seq of the newest item; what was taken back does not count. */
export interface Brief {
  id: string;
  title: string;
  tags: string[];
  created: number;
  updated: number;
  accessed: number;
  turns: number;
  head: number;
  revision: number;
  branch: string;
  private: boolean;
}

/** A client runs the call.
 *
 * The event is repeated when that client reports another `where` (empty: as in `call.started`) or another
 * `state`: running, or waiting for an answer of the person at the client. */
export interface CallClaimed {
  call: string;
  client: string;
  where: string;
  state: string;
}

/** A tool call has ended.
 *
 * `text` is what the model reads. `media` are `{mime, hash, size, data}` with data in base64, without `data`
 * if the client that ran the call has already displayed them. `details` are facts for programs and depend on the
 * tool; `files` are file ids. */
export interface CallFinished {
  call: string;
  name: string;
  status: string;
  text: string;
  seconds: number;
  media: Facts[];
  details: Facts;
  files: string[];
}

/** Clients of this notebook may claim and run the call; `call.claimed` follows at most once for each claim. */
export interface CallOffered {
  call: string;
  name: string;
  arguments: Facts;
}

export interface CallOutput {
  call: string;
  text: string;
  stream: string;
}

/** A call of a function that the caller declared and runs itself.
 *
 * The turn ends; the caller's next turn brings the result under the same id. */
export interface CallReturned {
  call: string;
  name: string;
  arguments: Facts;
}

/** A tool call starts; `where` is the place that runs it: live, draft, sandbox, server or client. */
export interface CallStarted {
  call: string;
  name: string;
  arguments: Facts;
  where: string;
}

/** `window` 0: unknown. */
export interface Context {
  tokens: number;
  window: number;
}

/** What the model sees in this round.
 *
 * `messages` is the number of messages, `dropped` how many older ones did not fit, and `shortened` how many tool
 * results lost their middle. `summary` is true if a summary replaces the beginning of the conversation. */
export interface ContextBuilt {
  messages: number;
  dropped: number;
  shortened: number;
  summary: boolean;
}

export interface Cost {
  turns: number;
  summaries: number;
  prompt_tokens: number;
  completion_tokens: number;
  reused_tokens: number;
  seconds: number;
  estimated: boolean;
}

/** `problem` says why it can not be used. */
export interface CurrentEngine {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  vision: boolean;
  state: string;
  details: Facts;
  name: string;
  problem: string;
}

export interface EndedTurn {
  turn: string;
  cell: string;
  state: "open" | "committed" | "cancelled" | "failed" | "interrupted";
  reason: string;
  closed: number | null;
  prompt: string;
}

/** `context_length` 0: unknown. `host` is where conversations go when the engine is not local. */
export interface Engine {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  vision: boolean;
  state: string;
  details: Facts;
}

/** `code` is a word for programs, `message` and `hint` are for people; `request_id` is in the log too. */
export interface ErrorFacts {
  code: string;
  message: string;
  hint: string;
  details: Facts;
  request_id: string;
}

/** `seq` counts within its turn from 1; `round` is the request to the model that it belongs to. */
export interface Event {
  seq: number;
  turn: string;
  session: string;
  round: number;
  time: number;
  type: string;
  data: Facts;
}

export interface EventBodies {
  "turn.started": TurnStarted;
  "turn.version": TurnVersion;
  queued: Queued;
  "model.loading": ModelLoading;
  context: ContextBuilt;
  "text.delta": TextDelta;
  "reasoning.delta": ReasoningDelta;
  "call.started": CallStarted;
  "call.output": CallOutput;
  "approval.required": ApprovalRequired;
  "approval.resolved": ApprovalResolved;
  "call.offered": CallOffered;
  "call.claimed": CallClaimed;
  "call.finished": CallFinished;
  "call.returned": CallReturned;
  "answer.logprobs": AnswerLogprobs;
  "file.produced": FileProduced;
  "state.lost": StateLost;
  notice: Notice;
  "answer.checked": AnswerChecked;
  "turn.finished": TurnFinished;
}

/** A file is stored with the session.
 *
 * `file` is `File.to_json`, with the body (`text` or `data_base64`) if the file is small. */
export interface FileProduced {
  call: string;
  file: Facts;
}

export interface Folder {
  path: string;
  since: number;
  files: string[];
}

export interface Follow {
  do: "follow";
  turn: string;
  session?: string;
  after?: number;
  number?: number;
}

/** `searched`: all sessions of the namespace, or only the caller's own. */
export interface Found {
  hits: Hit[];
  searched: "all" | "own";
  seconds: number;
}

/** Calls of `tool` of this `kind` run without a question, or never (`deny`).
 *
 * For the kind `path` the tool is the path that may be opened: `read:PATH` or `write:PATH`. */
export interface Grant {
  kind: string;
  tool: string;
  decision: "approve" | "deny";
  time: number;
}

export interface Hit {
  session: Brief;
  score: number;
  notebooks: string[];
  snippets: Snippet[];
}

export interface InputFile {
  id: string;
  name: string;
  mime: string;
  size: number;
}

export interface KernelVariable {
  name: string;
  summary: string;
}

export interface KernelVariables {
  variables: KernelVariable[];
  problem: string;
}

/** `notebooks` are told to a person only. */
export interface Listed {
  id: string;
  title: string;
  tags: string[];
  created: number;
  updated: number;
  accessed: number;
  turns: number;
  head: number;
  revision: number;
  branch: string;
  private: boolean;
  bound: boolean;
  notebooks?: string[];
}

/** As OpenAI's clients list it, with mistral.rs's names and ours; of what is unknown before it is asked: null. */
export interface ListedModel {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
  title: string;
  status: string;
  local: boolean;
  host: string;
  context_length: number | null;
  capabilities: Record<string, boolean | null>;
  tools_available: boolean;
  mcp_tools_count: number;
  mcp_servers_connected: number;
}

export interface Lost {
  sandbox: string;
  pieces: number;
  kernel: string;
}

/** `tools` counts those that are offered, `left_out` says of the others why not. */
export interface McpServerState {
  name: string;
  state: "starting" | "connected" | "failed";
  tools: number;
  left_out: string[];
  problem: string;
}

export interface Meanwhile {
  session: string;
  since: number;
  turns: EndedTurn[];
  more: boolean;
  running: string[];
  approvals: Facts[];
  lost: Lost;
  problems: string[];
}

/** `data` is base64, and there only for media that the store does not have yet. */
export interface Medium {
  mime: string;
  hash: string;
  size: number;
  data?: string;
}

/** `state`: ready, missing, or why it is broken. */
export interface Model {
  name: string;
  title: string;
  licence: string;
  licence_from?: string;
  publisher: string;
  source: string;
  download_bytes?: number;
  disk_bytes?: number;
  sources?: ModelSource[];
  description?: string;
  state: string;
  path: string | null;
}

/** The engine loads its model; `fraction` is 0 to 1, or None while it is unknown. */
export interface ModelLoading {
  model: string;
  stage: string;
  fraction: number | null;
}

export interface ModelSource {
  kind: string;
  label: string;
  publisher: string;
  vouched: boolean;
  why: string;
  sha256: string;
  download_bytes: number;
}

/** `data` is what requests may name; `models` are the catalog, here or not. */
export interface Models {
  object: "list";
  data: ListedModel[];
  models: Model[];
  engines: NamedEngine[];
  engine: Engine;
  current: CurrentEngine;
  mcp_servers: McpServerState[];
}

export interface NamedEngine {
  name: string;
  model: string;
  local: boolean;
  host: string;
  refused: boolean;
}

/** One line for the person to read: a limit was reached, a save failed, a layer is missing. */
export interface Notice {
  level: string;
  text: string;
}

/** As in a notebook's file. */
export interface Outputs {
  turn: string;
  session: string;
  outputs: Facts[];
}

export interface Permissions {
  policy: Record<string, Ruling>;
  approval_timeout_s: number;
  session: string;
  grants: Grant[];
}

export interface Ping {
  do: "ping";
}

/** A step of a download, by its `stage`; the last one is `done` or `failed`. */
export interface PullEvent {
  stage: string;
  done?: number | null;
  total?: number | null;
  message?: string;
  path?: string | null;
  error?: Facts;
}

/** The turn waits for another turn of this session, or for the engine; `position` is at least 1. */
export interface Queued {
  position: number;
  reason: string;
}

export interface ReasoningDelta {
  text: string;
}

export interface Ruling {
  permission: "auto" | "ask" | "deny";
  because: string;
  firm: boolean;
}

export interface Serve {
  do: "serve";
  kernel: string;
  tools: string[];
}

export interface Server {
  version: string;
  url: string;
}

/** `imported` describes the document that the session was imported from: `id` and `revision` that it had
 * there, `sha256` of the document. Null: the session began here. No request changes it; a fork has it too. */
export interface Session {
  id: string;
  title: string;
  tags: string[];
  created: number;
  updated: number;
  accessed: number;
  turns: number;
  head: number;
  revision: number;
  branch: string;
  private: boolean;
  metadata: Facts;
  context: Json;
  imported: Facts | null;
}

export interface Sessions {
  sessions: Listed[];
}

export interface ShownTurn {
  turn: string;
  session: string;
  state: string;
  running: boolean;
  prompt: string;
  cell: string;
  context: string[];
  inputs: InputFile[];
  media: Medium[];
  model: string;
  where: string;
  usage: Record<string, number>;
  record: Facts;
  created: number;
  closed: number | null;
  events: Event[];
}

/** At most SNIPPET_CHARS characters of a message around the first matching word. */
export interface Snippet {
  seq: number;
  turn: string;
  cell: string;
  role: string;
  text: string;
  time: number;
}

/** `asked_again` comes with `rerun` "show", for a cell that was asked before. */
export interface Started {
  turn: string;
  session: string;
  title: string;
  created: boolean;
  notebook: string | null;
  private: boolean;
  stored: false;
  asked_again?: AskedAgain | null;
}

/** Variables that the conversation refers to no longer exist. */
export interface StateLost {
  reason: string;
}

/** The answer that is kept still holds: no model was asked. */
export interface Stored {
  turn: string;
  session: string;
  title: string;
  created: false;
  notebook: string | null;
  private: boolean;
  stored: true;
  answered: number | null;
  version: TurnVersion;
}

export interface TakenBack {
  undone: UndoResult | null;
  session: Session;
}

export interface TextDelta {
  text: string;
}

export interface ToolUse {
  count: number;
  seconds: number;
  outcomes: Record<string, number>;
}

export interface Trust {
  folder: string | null;
  trusted: boolean;
  folders: Folder[];
}

/** The last event of every turn.
 *
 * `error` is `{code, message, hint, details}` if the state is failed. `finish` is why the last model call of a
 * committed turn ended: stop, length, or calls (the caller runs them). `stopped` is the stop sequence that ended the
 * text, if one did and the engine reports it. */
export interface TurnFinished {
  state: "open" | "committed" | "cancelled" | "failed" | "interrupted";
  reason: string;
  rounds: number;
  usage: Record<string, number>;
  error: Facts | null;
  finish: string;
  stopped: string;
}

/** The turn has begun.
 *
 * `host` is the machine that receives the conversation when the engine is not `local`; empty if no machine does. */
export interface TurnStarted {
  model: string;
  local: boolean;
  where: string;
  host: string;
}

/** A cell was run again, so this turn is a new version of an earlier one.
 *
 * It is version `number` of `count` and stands on `branch` in place of the turn `replaces`. The replaced turn
 * stays on the branch `kept_on`, with the `later` turns that followed it. `changed` is true if the prompt was
 * edited, false for a plain retry. */
export interface TurnVersion {
  branch: string;
  number: number;
  count: number;
  replaces: string;
  kept_on: string;
  later: number;
  changed: boolean;
}

/** `older`: there are more before them. `waiting`: turns that were asked for and have not begun, in the order
 * in which they run; they are not stored yet. */
export interface Turns {
  turns: ShownTurn[];
  older: boolean;
  waiting: ShownTurn[];
}

/** `prompt` is the removed user message. `ran` names the calls that ran: their effects (variables, files, sent
 * data) remain, since a store does not know them. */
export interface UndoResult {
  turn: string;
  items: number;
  prompt: string;
  ran: string[];
}

export interface Unfollow {
  do: "unfollow";
  turn: string;
}

export interface Unserve {
  do: "unserve";
  kernel: string;
}

export interface Usage {
  total: Cost;
  states: Record<string, number>;
  models: Record<string, Cost>;
  days: Record<string, Cost>;
  branches: Record<string, Cost>;
  tools: Record<string, ToolUse>;
  context: Context;
}

/** Watch or unwatch a session or a kernel. */
export interface Watch {
  do: "watch" | "unwatch";
  session?: string;
  kernel?: string;
}
