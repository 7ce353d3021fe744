/** A part of the page that may fail by itself: what can not be drawn becomes a note with its text, and all around it
 * stays. Another value is tried again. */
import { Component, type ComponentChildren } from "preact";

interface Part {
  /** What is drawn; as long as it is the same, a part that failed stays a note. */
  of: unknown;
  /** Its words, where it has some. */
  text?: string;
  children: ComponentChildren;
}

interface State {
  failed: { of: unknown } | null;
}

export class ErrorBoundary extends Component<Part, State> {
  override state: State = { failed: null };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ failed: { of: this.props.of } });
  }

  override render({ of, text = "", children }: Part, { failed }: State) {
    if (!failed || failed.of !== of) return children;
    return (
      <div>
        <p class="ak-quiet">This could not be shown.</p>
        {text && <div class="ak-plain">{text}</div>}
      </div>
    );
  }
}
