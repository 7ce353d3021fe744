import { useSurroundings } from "./Panel";

export function Header() {
  const { conversation, host } = useSurroundings();
  const { binding, session, running } = conversation;
  const bound = host.notebook?.bound.value ?? null;
  return (
    <header class="ak-header">
      <strong class="ak-title">{session.value?.title || "New conversation"}</strong>
      <span class={`ak-chip ak-kernel-${bound?.kernelState ?? "none"}`}>{bound?.path || "no notebook"}</span>
      <span class="ak-chip">{binding.value?.model.model ?? ""}</span>
      {running.value.length > 0 && (
        <button class="ak-stop" type="button" onClick={() => void conversation.stop()}>
          Stop
        </button>
      )}
    </header>
  );
}
