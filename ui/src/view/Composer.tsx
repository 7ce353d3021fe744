import { useSignal } from "@preact/signals";
import { useSurroundings } from "./Panel";

export function Composer() {
  const { conversation } = useSurroundings();
  const text = useSignal("");
  const send = () => {
    const prompt = text.value.trim();
    if (!prompt) return;
    text.value = "";
    void conversation.send({ prompt });
  };
  return (
    <form
      class="ak-composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="Message to the agent"
        rows={3}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <button type="submit">Send</button>
    </form>
  );
}
