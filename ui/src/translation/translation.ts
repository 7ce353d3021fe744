/** The texts of the panel in the user's language. JupyterLab provides its own translation of our domain; elsewhere the
 * language of the page selects a catalog that ships with the panel. `trans` is called where a text is shown, never while
 * a module is loaded: the translation is set afterwards. */

/** The functions of JupyterLab's `TranslationBundle` that the panel uses. `%1`, `%2` stand for the values. */
export interface Texts {
  __(text: string, ...values: unknown[]): string;
  /** `%1` is the number, `%2` the first of the values. */
  _n(one: string, many: string, count: number, ...values: unknown[]): string;
}

export interface Translation {
  texts: Texts;
  /** The language tag of the texts, such as `de-DE`; also used to write numbers. */
  language: string;
}

/** The translated texts under their English text, as `jupyterlab-translate` writes them (Jed 2.x). The entry ""
 * describes the catalog. */
export type Catalog = Readonly<Record<string, unknown>>;

/** The domain of our catalog in JupyterLab. */
export const DOMAIN = "agent_kernel";

function fill(text: string, values: readonly unknown[]): string {
  return text.replace(/%(\d+)/g, (mark, place: string) => {
    const at = Number(place) - 1;
    return at in values ? String(values[at]) : mark;
  });
}

/** The texts of a catalog whose language has one form for the number 1 and one for all other numbers. A text that the
 * catalog lacks stays English. */
export function textsOf(catalog: Catalog): Texts {
  const find = (key: string, form: number): string | undefined => {
    const found = key && Object.hasOwn(catalog, key) ? catalog[key] : undefined;
    return Array.isArray(found) ? ((found[form] as string | undefined) ?? undefined) : undefined;
  };
  return {
    __: (text, ...values) => fill(find(text, 0) ?? text, values),
    _n: (one, many, count, ...values) => {
      const form = count === 1 ? 0 : 1;
      return fill(find(one, form) ?? (form === 0 ? one : many), [count, ...values]);
    },
  };
}

export const ENGLISH: Translation = { texts: textsOf({}), language: "en" };

/** The translation for a language tag such as `de-AT`. `catalogs` has one catalog for each language, such as `de`;
 * without one for the tag, the texts are English. */
export function translationFor(tag: string, catalogs: Readonly<Record<string, Catalog>>): Translation {
  const language = tag.split(/[-_]/)[0]?.toLowerCase() ?? "";
  const catalog = Object.hasOwn(catalogs, language) ? catalogs[language] : undefined;
  return catalog ? { texts: textsOf(catalog), language: tag.replace("_", "-") } : ENGLISH;
}

let current = ENGLISH;

/** Set the translation for all texts of this bundle. JupyterLab loads two bundles of ours, the plugin and the panel,
 * each with a copy of this module. */
export function setTranslation(translation: Translation): void {
  current = translation;
}

export const trans: Texts = {
  __: (text, ...values) => current.texts.__(text, ...values),
  _n: (one, many, count, ...values) => current.texts._n(one, many, count, ...values),
};

/** A whole number or a fraction with the separators of the user's language. */
export function formatNumber(value: number, options?: Intl.NumberFormatOptions): string {
  try {
    return value.toLocaleString(current.language, options);
  } catch {
    return value.toLocaleString("en", options); // JupyterLab allows language tags that the browser does not know
  }
}

export const DATE_ALONE: Intl.DateTimeFormatOptions = { dateStyle: "medium" };
const DATE_AND_TIME: Intl.DateTimeFormatOptions = { dateStyle: "medium", timeStyle: "short" };

/** A time in seconds since the epoch, as the user's language writes it: only the time of day if it is today, otherwise
 * in the format `earlier`. */
export function formatMoment(seconds: number, earlier = DATE_AND_TIME): string {
  const when = new Date(seconds * 1_000);
  const options: Intl.DateTimeFormatOptions =
    when.toDateString() === new Date().toDateString() ? { timeStyle: "short" } : earlier;
  const language = current === ENGLISH ? undefined : current.language; // in English as the browser writes it
  try {
    return when.toLocaleString(language, options);
  } catch {
    return when.toLocaleString(undefined, options);
  }
}
