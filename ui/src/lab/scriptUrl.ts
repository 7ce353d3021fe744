/** URL of the folder that this script was loaded from. The panel and its style sheet lie beside it. */
export const SCRIPT_FOLDER = new URL(".", (document.currentScript as HTMLScriptElement).src);
