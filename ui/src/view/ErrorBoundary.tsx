/** Catches errors while a part of the page is rendered and shows a text instead, so that the rest of the page stays.
 * When the value `of` changes, the part is rendered again. */
import { Component, type ComponentChildren } from "preact";
import { trans } from "../translation/translation";

interface Part {
  /** The value that is rendered. After an error, the part is rendered again only when this value changes. */
  of: unknown;
  /** A text to show in place of the part after an error, if any. */
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
        <p class="ak-quiet">{trans.__("This part could not be shown.")}</p>
        {text && <div class="ak-plain">{text}</div>}
      </div>
    );
  }
}
