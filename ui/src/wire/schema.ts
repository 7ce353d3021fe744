/** Types of the API, described in its OpenAPI document. Written by `python -m tests.jupyter_ext.record_panel_types`; a
 * test compares them with the server. */
/* eslint-disable max-lines */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Facts = Record<string, Json>;

export interface AnswerChecked {
  numbers: Facts[];
}

export interface AnswerLogprobs {
  tokens: Facts[];
}

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
  editable: string;
}

export interface ApprovalResolved {
  approval: string;
  call: string;
  decision: string;
  reason: string;
  edited: string | null;
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

export interface CallClaimed {
  call: string;
  client: string;
  where: string;
  state: string;
}

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

export interface CallReturned {
  call: string;
  name: string;
  arguments: Facts;
}

export interface CallStarted {
  call: string;
  name: string;
  arguments: Facts;
  where: string;
}

export interface Context {
  tokens: number;
  window: number;
}

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

export interface Engine {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  vision: boolean;
  state: string;
  details: Facts;
}

export interface ErrorFacts {
  code: string;
  message: string;
  hint: string;
  details: Facts;
  request_id: string;
}

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

export interface Found {
  hits: Hit[];
  searched: "all" | "own";
  seconds: number;
}

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

export interface InfillEvent {
  text: string;
  silence: "" | "busy" | "unloaded" | "unsupported";
  error?: Facts;
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

export interface Medium {
  mime: string;
  hash: string;
  size: number;
  data?: string;
}

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
}

export interface ModelLoading {
  model: string;
  stage: string;
  fraction: number | null;
}

export interface ModelServer {
  name: string;
  url: string;
  model: string;
  local: boolean;
  host: string;
  key: "" | "keyring" | "file";
}

export interface ModelServers {
  servers: ModelServer[];
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

export interface Models {
  object: "list";
  may_change: boolean;
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

export interface Notice {
  level: string;
  text: string;
  details: string;
}

export interface Outputs {
  turn: string;
  session: string;
  outputs: Facts[];
}

export interface Permissions {
  policy: Record<string, Ruling>;
  approval_timeout_s: number;
  effort: "quick" | "auto" | "thorough";
  instructions: boolean;
  web: boolean;
  session: string;
  grants: Grant[];
}

export interface Ping {
  do: "ping";
}

export interface ProbeFinding {
  feature: string;
  state: "ok" | "lacks" | "unsure";
  detail: string;
}

export interface ProbeReport {
  model: string;
  local: boolean;
  host: string;
  context_length: number;
  models: string[];
  problem: string;
  findings: ProbeFinding[];
  missing: string[];
}

export interface PullEvent {
  stage: string;
  done?: number | null;
  total?: number | null;
  message?: string;
  path?: string | null;
  error?: Facts;
}

export interface Queued {
  position: number;
  reason: string;
}

export interface ReasoningDelta {
  text: string;
}

export interface Recommendation {
  machine: ServerMachine;
  recommended: string | null;
  models: SuitableModel[];
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

export interface ServerGpu {
  name: string;
  memory_bytes: number;
}

export interface ServerMachine {
  memory_bytes: number | null;
  available_bytes: number | null;
  cores: number;
  gpus: ServerGpu[];
}

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

export interface Snippet {
  seq: number;
  turn: string;
  cell: string;
  role: string;
  text: string;
  time: number;
}

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

export interface StateLost {
  reason: string;
}

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

export interface SuitableModel {
  name: string;
  memory_bytes: number;
  fits: boolean | null;
  fit_reason: string;
  tokens_per_s: number | null;
  speed_basis: "measured" | "scaled" | "unknown";
  speed_note: string;
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

export interface TurnFinished {
  state: "open" | "committed" | "cancelled" | "failed" | "interrupted";
  reason: string;
  rounds: number;
  usage: Record<string, number>;
  error: Facts | null;
  finish: string;
  stopped: string;
}

export interface TurnStarted {
  model: string;
  local: boolean;
  where: string;
  host: string;
}

export interface TurnVersion {
  branch: string;
  number: number;
  count: number;
  replaces: string;
  kept_on: string;
  later: number;
  changed: boolean;
}

export interface Turns {
  turns: ShownTurn[];
  older: boolean;
  waiting: ShownTurn[];
}

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

export interface Watch {
  do: "watch" | "unwatch";
  session?: string;
  kernel?: string;
}
