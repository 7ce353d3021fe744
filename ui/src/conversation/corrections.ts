/** Corrections of failed cells that the user requested in this page. They are not stored: a page that is loaded again
 * does not have them, and the turn shows the code that ran. */
import { signal, type Signal } from "@preact/signals";
import type { NotebookHost } from "../notebook/notebook";
import type { Change } from "../turn/cellChanges";
import { trans } from "../translation/translation";

export class Corrections {
  /** The proposed edits, at most one for each turn. */
  readonly proposed = signal<readonly Change[]>([]);

  /** The cell for which the user last requested a correction. Each request sets a new object, so that effects run even
   * if the cell is the same. */
  readonly asked = signal({ cell: "" });

  constructor(
    private readonly notebook: NotebookHost | null,
    private readonly message: Signal<string>,
  ) {}

  /** Correct a failed cell in its kernel, and propose the corrected cell as an edit. Returns false if the kernel cannot
   * correct cells. */
  async ask(cell: string, words = ""): Promise<boolean> {
    this.asked.value = { cell };
    const fix = await this.notebook?.fix?.(cell, words);
    if (!fix) return false;
    if (fix.change) this.proposed.value = [...this.proposed.value, fix.change];
    this.message.value = fix.message;
    return true;
  }

  reject(change: Change, name: string): void {
    this.proposed.value = this.proposed.value.filter((one) => one !== change);
    this.message.value = trans.__("The correction of %1 was rejected.", name);
  }
}
